#include "rendezvous/store/exchange.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/bytes.h"
#include "rendezvous/store/encode.h"

namespace drun {
namespace {

// Answers bigger than this are taken for nonsense.
constexpr std::uint64_t kMostAnswerBytes = std::uint64_t{1} << 32;
constexpr std::size_t kMostReadBytes = 1 << 20;
// For the answer to CANCEL_WAIT, which a living server gives at once.
constexpr std::chrono::seconds kCancelTime{10};

}  // namespace

StoreStream::Time after(std::chrono::milliseconds timeout) {
  // Longer than anybody waits.
  constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
  return std::chrono::steady_clock::now() +
         std::clamp(timeout, std::chrono::milliseconds(0), kForever);
}

StoreExchange& StoreExchange::begin(Opcode opcode, std::string_view subject, Milliseconds timeout) {
  opcode_ = opcode;
  subject_ = subject;
  timeout_ = timeout;
  deadline_ = after(timeout);
  request_.clear();
  if (const std::optional<std::uint8_t> byte = to_byte(opcode, dialect_)) {
    request_.push_back(static_cast<char>(*byte));
  }
  return *this;
}

StoreExchange& StoreExchange::key(std::string_view key) {
  put_u64(request_, key.size() + 1);
  request_.push_back('/');
  request_.append(key);
  return *this;
}

StoreExchange& StoreExchange::text(std::string_view value) {
  put_text(request_, value);
  return *this;
}

StoreExchange& StoreExchange::number(std::int64_t value) {
  put_u64(request_, static_cast<std::uint64_t>(value));
  return *this;
}

StoreExchange& StoreExchange::keys(std::span<const std::string> keys) {
  put_u64(request_, keys.size());
  for (const std::string& one : keys) key(one);
  return *this;
}

Result<void> StoreExchange::send() {
  if (!to_byte(opcode_, dialect_)) {
    return named({ErrorCode::Usage, "a server of the " + std::string(to_string(dialect_)) +
                                        " dialect has no such operation"});
  }
  if (const Result<void> open = reopen(); !open) return open;
  return checked(stream_->write(request_, deadline_));
}

Result<std::uint8_t> StoreExchange::read_byte() {
  char byte = 0;
  const Result<void> got = checked(stream_->read(&byte, 1, deadline_));
  if (!got) return got.error();
  return static_cast<std::uint8_t>(byte);
}

Result<std::int64_t> StoreExchange::read_number() {
  std::array<char, 8> bytes{};
  const Result<void> got = checked(stream_->read(bytes.data(), bytes.size(), deadline_));
  if (!got) return got.error();
  return ByteReader({bytes.data(), bytes.size()}).i64();
}

Result<std::int64_t> StoreExchange::ask_number() {
  const Result<void> sent = send();
  if (!sent) return sent.error();
  return read_number();
}

Error StoreExchange::timed_out() const { return named({ErrorCode::Timeout, "timed out"}); }

Error StoreExchange::nonsense(std::string_view what) {
  return broken({ErrorCode::Refused, "the answer makes no sense: " + std::string(what)});
}

Error StoreExchange::named(Error error) const {
  if (error.code == ErrorCode::Timeout) {
    error.message += " after " + std::to_string(timeout_.count()) + " ms";
  }
  return with_context(std::move(error), std::string(to_string(opcode_)) + " " + subject_ +
                                            " at the store " + to_string(endpoint_));
}

Error StoreExchange::broken(Error error) {
  stream_.reset();
  return named(std::move(error));
}

Result<void> StoreExchange::checked(Result<void> result) {
  if (result) return result;
  return broken(result.error());
}

Result<void> StoreExchange::reopen() {
  if (stream_) return {};
  if (!std::exchange(needs_reopening_, false)) {
    return named({ErrorCode::Closed, "an earlier error closed the connection"});
  }
  Result<StoreHandshake> again = shake_hands(endpoint_, dialect_, deadline_);
  if (!again) return named(again.error());
  stream_ = std::move(again->stream);
  return {};
}

Result<std::string> StoreExchange::read_text() {
  const Result<std::int64_t> length = read_number();
  if (!length) return length.error();
  std::uint64_t left_bytes = static_cast<std::uint64_t>(*length);
  if (left_bytes > kMostAnswerBytes) return nonsense(std::to_string(left_bytes) + " bytes");
  std::string text;
  // Piece by piece: a length that is a lie costs one piece.
  while (left_bytes > 0) {
    const std::size_t count = std::min<std::uint64_t>(left_bytes, kMostReadBytes);
    const std::size_t old_size = text.size();
    text.resize(old_size + count);
    const Result<void> got = checked(stream_->read(text.data() + old_size, count, deadline_));
    if (!got) return got.error();
    left_bytes -= count;
  }
  return text;
}

Result<void> StoreExchange::send_and_wait() {
  const Result<void> sent = send();
  if (!sent) return sent;
  char byte = 0;
  const Result<void> got = stream_->read(&byte, 1, deadline_);
  if (!got && got.error().code == ErrorCode::Timeout) return cancel_wait();
  if (!got) return broken(got.error());
  return byte == 0 ? Result<void>() : Result<void>(nonsense("not the end of waiting"));
}

Result<void> StoreExchange::cancel_wait() {
  const Error late = timed_out();
  if (dialect_ == Dialect::Legacy) {
    // There is no cancelling: the answer may come at any time. Only a new connection is free of it.
    stream_.reset();
    needs_reopening_ = true;
    return late;
  }
  deadline_ = after(kCancelTime);
  request_.clear();
  if (!encode(store::CancelWait{}, dialect_, request_)) return late;
  if (const Result<void> sent = checked(stream_->write(request_, deadline_)); !sent) return sent;
  const Result<std::uint8_t> first = read_byte();
  if (!first) return first.error();
  if (*first == 1) return late;
  // The end of waiting was under way when the time was up, and is as good as in time.
  const Result<std::uint8_t> second = read_byte();
  if (!second) return second.error();
  if (*first != 0 || *second != 1) return nonsense("not the end of waiting, nor of its cancelling");
  return {};
}

}  // namespace drun
