#include "rendezvous/store/client.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/base/bytes.h"

namespace drun {
namespace {

// Larger answers are invalid.
constexpr std::uint64_t kMostAnswerBytes = std::uint64_t{1} << 32;
constexpr std::size_t kMostReadBytes = 1 << 20;
// The time limit for the answer to CANCEL_WAIT, which a working server sends at once.
constexpr std::chrono::seconds kCancelTime{10};

std::string shown(std::string_view key) {
  return "\"" + std::string(key.substr(0, 100)) + (key.size() > 100 ? "...\"" : "\"");
}

std::string shown(std::span<const std::string> keys) {
  if (keys.empty()) return "nothing";
  return shown(keys.front()) +
         (keys.size() > 1 ? " and " + std::to_string(keys.size() - 1) + " more" : "");
}

}  // namespace

Result<StoreClient> StoreClient::connect(const Options& options) {
  Result<StoreHandshake> handshake =
      shake_hands(options.endpoint, options.dialect, after(options.timeout));
  if (!handshake) return handshake.error();
  return StoreClient(options.endpoint, *std::move(handshake), options.timeout);
}

StoreClient::StoreClient(const Endpoint& endpoint, StoreHandshake handshake, Milliseconds timeout)
    : endpoint_(endpoint),
      dialect_(handshake.dialect),
      timeout_(timeout),
      stream_(std::move(handshake.stream)) {}

// --- Operations

Result<std::int64_t> StoreClient::announce() {
  begin(Opcode::Add, "init/");
  put_text(request_, "init/");
  put_u64(request_, 1);
  if (const Result<void> sent = send(); !sent) return sent.error();
  return read_number();
}

Result<void> StoreClient::set(std::string_view key, std::string_view value) {
  begin(Opcode::Set, shown(key));
  put_key(key);
  put_text(request_, value);
  return send();
}

Result<std::string> StoreClient::get(std::string_view key) {
  const std::string name(key);
  if (const Result<void> waited = wait({&name, 1}); !waited) return waited.error();
  begin(Opcode::Get, shown(key));
  put_key(key);
  if (const Result<void> sent = send(); !sent) return sent.error();
  return read_text();
}

Result<std::int64_t> StoreClient::add(std::string_view key, std::int64_t delta) {
  begin(Opcode::Add, shown(key));
  put_key(key);
  put_u64(request_, static_cast<std::uint64_t>(delta));
  if (const Result<void> sent = send(); !sent) return sent.error();
  return read_number();
}

Result<std::string> StoreClient::compare_set(std::string_view key, std::string_view expected,
                                             std::string_view desired) {
  begin(Opcode::CompareSet, shown(key));
  put_key(key);
  put_text(request_, expected);
  put_text(request_, desired);
  if (const Result<void> sent = send(); !sent) return sent.error();
  return read_text();
}

// Waits for the byte that ends the wait; cancels the wait at the timeout.
Result<void> StoreClient::wait(std::span<const std::string> keys) {
  begin(Opcode::Wait, shown(keys));
  put_keys(keys);
  if (const Result<void> sent = send(); !sent) return sent;
  char byte = 0;
  const Result<void> got = stream_->read(&byte, 1, deadline_);
  if (!got && got.error().code == ErrorCode::Timeout) return cancel_wait();
  if (!got) return broken(got.error());
  return byte == 0 ? Result<void>() : Result<void>(nonsense("not the end of waiting"));
}

Result<void> StoreClient::cancel_wait() {
  const Error late = named({ErrorCode::Timeout, "timed out"});
  const std::optional<std::uint8_t> cancel = to_byte(Opcode::CancelWait, dialect_);
  if (!cancel) {
    // The wait cannot be canceled, and the answer may come at any time. Only a new connection is
    // free of it.
    stream_.reset();
    needs_reopening_ = true;
    return late;
  }
  deadline_ = after(kCancelTime);
  request_.assign(1, static_cast<char>(*cancel));
  if (const Result<void> sent = send(); !sent) return sent;
  std::array<char, 1> byte{};
  if (const Result<void> first = read(byte.data(), 1); !first) return first;
  if (byte[0] == 1) return late;
  // The answer was sent before the cancellation arrived; it counts as in time.
  if (byte[0] != 0) return nonsense("not the end of waiting, nor of its canceling");
  if (const Result<void> second = read(byte.data(), 1); !second) return second;
  if (byte[0] != 1) return nonsense("not the end of waiting, nor of its canceling");
  return {};
}

Result<bool> StoreClient::check(std::span<const std::string> keys) {
  begin(Opcode::Check, shown(keys));
  put_keys(keys);
  if (const Result<void> sent = send(); !sent) return sent.error();
  char answer = 0;
  if (const Result<void> got = read(&answer, 1); !got) return got.error();
  if (answer != 0 && answer != 1) return nonsense("neither ready nor not ready");
  return answer == 0;
}

Result<bool> StoreClient::remove(std::string_view key) {
  begin(Opcode::DeleteKey, shown(key));
  put_key(key);
  if (const Result<void> sent = send(); !sent) return sent.error();
  const Result<std::int64_t> count = read_number();
  if (!count) return count.error();
  return *count > 0;
}

// --- Requests and answers

void StoreClient::begin(Opcode opcode, std::string subject) {
  opcode_ = opcode;
  subject_ = std::move(subject);
  deadline_ = after(timeout_);
  request_.assign(1, static_cast<char>(to_byte(opcode, dialect_).value()));
}

void StoreClient::put_key(std::string_view key) {
  put_u64(request_, key.size() + 1);
  request_.push_back('/');
  request_.append(key);
}

void StoreClient::put_keys(std::span<const std::string> keys) {
  put_u64(request_, keys.size());
  for (const std::string& key : keys) put_key(key);
}

Result<void> StoreClient::send() {
  if (!stream_) {
    if (!std::exchange(needs_reopening_, false))
      return named({ErrorCode::Closed, "an earlier error closed the connection"});
    Result<StoreHandshake> again = shake_hands(endpoint_, dialect_, deadline_);
    if (!again) return named(again.error());
    stream_ = std::move(again->stream);
  }
  const Result<void> written = stream_->write(request_, deadline_);
  return written ? written : Result<void>(broken(written.error()));
}

Result<void> StoreClient::read(char* to, std::size_t size_bytes) {
  const Result<void> got = stream_->read(to, size_bytes, deadline_);
  return got ? got : Result<void>(broken(got.error()));
}

Result<std::int64_t> StoreClient::read_number() {
  std::array<char, 8> bytes{};
  if (const Result<void> got = read(bytes.data(), bytes.size()); !got) return got.error();
  return ByteReader({bytes.data(), bytes.size()}).i64();
}

Result<std::string> StoreClient::read_text() {
  const Result<std::int64_t> length = read_number();
  if (!length) return length.error();
  std::uint64_t left_bytes = static_cast<std::uint64_t>(*length);
  if (left_bytes > kMostAnswerBytes) return nonsense(std::to_string(left_bytes) + " bytes");
  std::string text;
  // Reads in pieces, so that a wrong length allocates only one piece.
  while (left_bytes > 0) {
    const std::size_t count = std::min<std::uint64_t>(left_bytes, kMostReadBytes);
    const std::size_t old_size = text.size();
    text.resize(old_size + count);
    if (const Result<void> got = read(text.data() + old_size, count); !got) return got.error();
    left_bytes -= count;
  }
  return text;
}

Error StoreClient::named(Error error) const {
  if (error.code == ErrorCode::Timeout)
    error.message += " after " + std::to_string(timeout_.count()) + " ms";
  return with_context(std::move(error), std::string(to_string(opcode_)) + " " + subject_ +
                                            " at the store " + to_string(endpoint_));
}

Error StoreClient::broken(Error error) {
  stream_.reset();
  return named(std::move(error));
}

Error StoreClient::nonsense(std::string_view what) {
  return broken({ErrorCode::Refused, "the answer makes no sense: " + std::string(what)});
}

}  // namespace drun
