#include "rendezvous/net/openssl_library.h"

namespace drun {

Result<void> load_openssl() { return {}; }

}  // namespace drun
