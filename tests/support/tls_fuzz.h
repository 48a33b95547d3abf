// What a stranger can send where a job has a secret, given to the session that reads it: driven by
// libFuzzer, and by a seeded edge test.
#pragma once

#include <string_view>

namespace drun::test {

// `bytes`: the first two say which side hears them, and in pieces of which size. Asserts that
// nobody gets through without the secret, and that little is answered.
void fuzz_tls_session(std::string_view bytes);

// `bytes`: what happens on the way to the records of an established session, and bytes of a
// stranger between them. Asserts that what is understood is the beginning of what was sealed, all
// of it as long as nothing was changed on the way, and that nothing comes after trouble.
void fuzz_tls_records(std::string_view bytes);

}  // namespace drun::test
