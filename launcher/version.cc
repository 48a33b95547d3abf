#include "launcher/version.h"
