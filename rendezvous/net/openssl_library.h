// edge. OpenSSL is there from here on.
// Thread:  one at a time; before the first of its functions is called.
// Errors:  System, when it cannot be loaded; never where it is linked.
#pragma once

#include <string>
#include <string_view>

#include "rendezvous/base/result.h"

namespace drun {

// Two of these are there: openssl_linked.cc has nothing to do, openssl_late.cc loads it.
Result<void> load_openssl();

// SHA-256, hexadecimal; loads OpenSSL. In tls_session.cc, which sees OpenSSL's headers.
Result<std::string> sha256_text(std::string_view bytes);

}  // namespace drun
