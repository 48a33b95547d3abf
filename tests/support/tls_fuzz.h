// Feeds arbitrary bytes to the TLS session of a job with a secret. Used by libFuzzer and by a
// seeded edge test.
#pragma once

#include <string_view>

namespace drun::test {

// The first two bytes choose the end that reads the rest, and the size of the pieces. Asserts that
// no handshake completes without the secret, and that the answer is small.
void fuzz_tls_session(std::string_view bytes);

// `bytes` choose modifications of the records of an established session, and an attacker's bytes
// between them. Asserts that the decrypted data is a prefix of the sealed data, that it is complete
// as long as nothing was modified, and that nothing is accepted after an error.
void fuzz_tls_records(std::string_view bytes);

}  // namespace drun::test
