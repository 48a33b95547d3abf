#include "tests/support/tls_fuzz.h"

#include <algorithm>
#include <cassert>
#include <string>

#include "rendezvous/net/tls_session.h"

namespace drun::test {

void fuzz_tls_session(std::string_view bytes) {
  using rendezvous::TlsContext;
  using rendezvous::TlsSession;
  static const auto context =
      *TlsContext::make(*Secret::make("0123456789abcdef", "fuzz"), "run id");
  if (bytes.size() < 2) return;
  const bool is_connecting = (bytes[0] & 1) != 0;
  const std::size_t piece = static_cast<unsigned char>(bytes[1]) + std::size_t{1};
  bytes.remove_prefix(2);
  TlsSession session(context,
                     is_connecting ? TlsSession::Side::Connecting : TlsSession::Side::Accepting);
  if (is_connecting) session.start();
  session.seal("what nobody may hear");
  std::string plain;
  std::size_t answered = session.outgoing().size();
  bool is_over = false;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    const bool has_trouble = session.take(bytes.substr(0, piece), plain).has_value();
    assert(!(is_over && has_trouble));
    is_over = is_over || has_trouble;
    answered += session.outgoing().size();
  }
  assert(!session.is_established());
  assert(plain.empty());
  assert(answered < 4096);
}

}  // namespace drun::test
