// edge. What of Boost.Asio is no template, compiled here once for all of drun.
#include "rendezvous/net/asio.h"

#include <boost/asio/impl/src.hpp>
