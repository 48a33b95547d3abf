// edge. Loads OpenSSL. Errors: System, if it cannot be loaded; none if drun is linked with it.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace drun {

// Call it before any function of OpenSSL, one call at a time. openssl_late.cc loads the library;
// openssl_linked.cc does nothing.
Result<void> load_openssl();

// SHA-256, hexadecimal; loads OpenSSL. Defined in tls_session.cc, which includes OpenSSL's headers.
Result<std::string> sha256_text(std::string_view bytes);

}  // namespace drun
