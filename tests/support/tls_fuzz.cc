#include "tests/support/tls_fuzz.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <string>
#include <utility>

#include "rendezvous/tls/tls_session.h"

namespace drun::test {
namespace {

using rendezvous::TlsContext;
using rendezvous::TlsSession;

std::shared_ptr<const TlsContext> context_of_job() {
  return *TlsContext::make(*Secret::make("0123456789abcdef", "fuzz"), "run id");
}

// Removes and returns the first byte of `rest`, or returns 0 if it is empty.
unsigned next_byte(std::string_view& rest) {
  const unsigned byte = rest.empty() ? 0 : static_cast<unsigned char>(rest.front());
  rest.remove_prefix(std::min<std::size_t>(1, rest.size()));
  return byte;
}

// Two sessions of one job after their handshake, and one direction between them.
class Way {
 public:
  explicit Way(bool is_to_accepting)
      : connecting_(context(), TlsSession::Side::Connecting),
        accepting_(context(), TlsSession::Side::Accepting),
        from_(is_to_accepting ? connecting_ : accepting_),
        to_(is_to_accepting ? accepting_ : connecting_) {
    std::string nothing;
    bool is_good = !connecting_.start();
    for (int i = 0; i < 2; ++i) {
      is_good = is_good && !accepting_.take(connecting_.outgoing(), nothing);
      is_good = is_good && !connecting_.take(accepting_.outgoing(), nothing);
    }
    assert(is_good && nothing.empty());
    assert(connecting_.is_established() && accepting_.is_established());
  }

  // Seals new data and returns its bytes on the wire.
  std::string sealed(std::size_t size_bytes) {
    std::string plain;
    for (std::size_t i = 0; i < size_bytes; ++i)
      plain += static_cast<char>('a' + (said_.size() + i) % 26);
    said_ += plain;
    from_.seal(plain);
    return from_.outgoing();
  }

  void deliver(std::string_view bytes) {
    const std::size_t heard_bytes = heard_.size();
    const bool has_trouble = to_.take(bytes, heard_).has_value();
    assert(!(is_over_ && (has_trouble || heard_.size() > heard_bytes)));
    is_over_ = is_over_ || has_trouble;
    assert(said_.starts_with(heard_));
    assert(!(is_intact && is_over_));
  }
  void check() const { assert(!is_intact || heard_ == said_); }

  bool is_intact = true;  // so far

 private:
  static const std::shared_ptr<const TlsContext>& context() {
    static const auto shared = context_of_job();
    return shared;
  }

  TlsSession connecting_;
  TlsSession accepting_;
  TlsSession& from_;
  TlsSession& to_;
  std::string said_;
  std::string heard_;
  bool is_over_ = false;
};

}  // namespace

void fuzz_tls_records(std::string_view bytes) {
  constexpr int kMostRecords = 32;
  if (bytes.empty()) return;
  Way way((next_byte(bytes) & 1) != 0);
  std::string held;  // overtaken by the next record
  for (int i = 0; i < kMostRecords && !bytes.empty(); ++i) {
    const unsigned action = next_byte(bytes);
    const unsigned number = next_byte(bytes);
    if (action % 8 == 0) {  // an attacker's bytes
      const std::string_view noise = bytes.substr(0, number);
      bytes.remove_prefix(noise.size());
      way.is_intact = way.is_intact && noise.empty();
      way.deliver(noise);
      continue;
    }
    std::string record = way.sealed(action % 16 == 1 ? number * 200U : 1 + number);
    const bool is_changed = action % 8 >= 4 && !record.empty();
    way.is_intact = way.is_intact && !is_changed && held.empty();
    switch (is_changed ? action % 8 : 0U) {
      case 4: {
        char& byte = record[(number + next_byte(bytes) * 7U) % record.size()];
        byte = static_cast<char>(static_cast<unsigned char>(byte) ^ 1U << next_byte(bytes) % 8);
        break;
      }
      case 5:
        record += record;
        break;
      case 6:
        record.resize(record.size() - 1 - number % record.size());
        break;
      case 7:
        held = std::exchange(record, std::move(held));
        break;
      default:
        break;
    }
    const std::size_t piece = action % 8 == 3 ? 1 + number : record.size() + 1;
    for (std::string_view rest = record; !rest.empty();
         rest.remove_prefix(std::min(piece, rest.size())))
      way.deliver(rest.substr(0, piece));
    way.check();
  }
}

void fuzz_tls_session(std::string_view bytes) {
  static const auto context = context_of_job();
  if (bytes.size() < 2) return;
  const bool is_connecting = (bytes[0] & 1) != 0;
  const std::size_t piece = static_cast<unsigned char>(bytes[1]) + std::size_t{1};
  bytes.remove_prefix(2);
  TlsSession session(context,
                     is_connecting ? TlsSession::Side::Connecting : TlsSession::Side::Accepting);
  if (is_connecting) session.start();
  session.seal("a secret");
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
