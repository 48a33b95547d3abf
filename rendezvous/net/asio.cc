// edge. Compiles the parts of Boost.Asio that are not templates, once for all of drun.
#include "rendezvous/net/asio.h"

#include <boost/asio/impl/src.hpp>
