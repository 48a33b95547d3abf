#include "worker_lib/hosted_store.h"
