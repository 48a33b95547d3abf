#include "rendezvous/tls/openssl_library.h"

namespace drun {

Result<void> load_openssl() { return {}; }

}  // namespace drun
