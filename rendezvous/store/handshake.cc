#include "rendezvous/store/handshake.h"

#include <algorithm>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "rendezvous/store/encode.h"
#include "rendezvous/store/wire.h"

namespace drun {
namespace {

using Clock = std::chrono::steady_clock;
using Time = StoreStream::Time;

// What a client may begin with, newest first. A server that does not know it closes at once.
enum class Greeting { ValidateAndPing, Validate, Legacy };
constexpr Greeting kAll[] = {Greeting::ValidateAndPing, Greeting::Validate, Greeting::Legacy};

// A legacy server takes VALIDATE for a SET whose key's length is the magic number and the four
// bytes that come next. They must make it so large that no machine even tries to allocate it: then
// the server closes at once, instead of clearing gigabytes and waiting for a key. So does this
// nonce, and so do four CANCEL_WAITs, each of which other servers answer with a 1, waiting or not.
constexpr std::uint32_t kNonce = 0xFFFFFFFF;
constexpr int kCancels = 4;

// A server that is just stopping closes, too. After so many rounds it is no TCPStore.
constexpr int kMostRefusals = 3;

constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kLongestPause{1000};

std::span<const Greeting> greetings(std::optional<Dialect> dialect) {
  const std::span<const Greeting> all(kAll);
  if (!dialect) return all;
  return *dialect == Dialect::Current ? all.subspan(1, 1) : all.subspan(2, 1);
}

// The request, and the only answer there can be to it.
std::pair<std::string, std::string> exchange_of(Greeting greeting) {
  std::string request;
  std::string answer;
  bool is_known = true;
  if (greeting != Greeting::Legacy) request.append(kValidate);
  switch (greeting) {
    case Greeting::ValidateAndPing:
      is_known = encode(store::Ping{kNonce}, Dialect::Current, request);
      put_u32(answer, kNonce);
      break;
    case Greeting::Validate:
      for (int i = 0; i < kCancels; ++i) {
        is_known = encode(store::CancelWait{}, Dialect::Current, request);
        answer.push_back('\1');
      }
      break;
    case Greeting::Legacy:
      is_known = encode(store::Check{}, Dialect::Legacy, request);
      answer.push_back('\0');
      break;
  }
  static_cast<void>(is_known);  // all three dialects' own
  return {request, answer};
}

Result<void> greet(StoreStream& stream, Greeting greeting, Time deadline) {
  const auto [request, expected] = exchange_of(greeting);
  const Result<void> written = stream.write(request, deadline);
  if (!written) return written;
  std::string answer(expected.size(), '\0');
  const Result<void> got = stream.read(answer.data(), answer.size(), deadline);
  if (!got) return got;
  if (answer == expected) return {};
  return Error{ErrorCode::Refused,
               "what listens there is not a TCPStore; is it another program's "
               "port?"};
}

// One round over the greetings. Closed: it knows none of them.
Result<StoreHandshake> try_greetings(const Endpoint& endpoint, std::optional<Dialect> dialect,
                                     Time deadline) {
  Error error;
  for (const Greeting greeting : greetings(dialect)) {
    Result<StoreStream> stream = StoreStream::open(endpoint, deadline);
    if (!stream) return stream.error();
    const Result<void> result = greet(*stream, greeting, deadline);
    if (result) {
      const bool is_legacy = greeting == Greeting::Legacy;
      return StoreHandshake{.stream = *std::move(stream),
                            .dialect = is_legacy ? Dialect::Legacy : Dialect::Current};
    }
    error = result.error();
    if (error.code != ErrorCode::Closed) return error;
  }
  return error;
}

}  // namespace

Result<StoreHandshake> shake_hands(const Endpoint& endpoint, std::optional<Dialect> dialect,
                                   Time deadline) {
  std::minstd_rand random{std::random_device{}()};
  std::uniform_real_distribution<double> jitter(0.5, 1.5);
  std::chrono::duration<double> pause = kFirstPause;
  const std::string whom = "cannot connect to the store at " + to_string(endpoint);
  int refusals = 0;
  while (true) {
    Result<StoreHandshake> result = try_greetings(endpoint, dialect, deadline);
    if (result) return result;
    Error error = result.error();
    if (error.code == ErrorCode::Timeout)
      error.message = "it accepts connections but does not answer";
    if (error.code == ErrorCode::Closed && ++refusals == kMostRefusals) {
      error = {ErrorCode::Refused, "it closes the connection at once (" + error.message +
                                       "); is it another program's port?"};
    }
    const Time next =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(pause * jitter(random));
    const bool may_retry = error.code == ErrorCode::Unreachable || error.code == ErrorCode::Closed;
    if (!may_retry || next >= deadline) {
      if (error.code == ErrorCode::Unreachable) error.message += "; does it run there?";
      return with_context(std::move(error), whom);
    }
    wait_until(next);
    pause = std::min<std::chrono::duration<double>>(pause * 1.5, kLongestPause);
  }
}

}  // namespace drun
