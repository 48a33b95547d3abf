#include "rendezvous/store/wire.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "rendezvous/base/bytes.h"
#include "rendezvous/base/result.h"

namespace drun {
namespace {

constexpr std::uint8_t kLegacyWatchKey = 7;
constexpr std::uint8_t kLastLegacy = 8;
constexpr std::uint8_t kLastCurrent = 18;

// The name of an operation and its fields: k a key, v a value, K counted keys, P counted pairs of
// key and value, w a u32, n an i64.
struct RequestForm {
  std::string_view name;
  std::string_view fields;
};
constexpr RequestForm kWatchKey{"WATCH_KEY", "k"};
constexpr RequestForm kForms[kLastCurrent + 1] = {  // by opcode
    {"VALIDATE", ""},    {"SET", "kv"},     {"COMPARE_SET", "kvv"}, {"GET", "k"},
    {"ADD", "kn"},       {"CHECK", "K"},    {"WAIT", "K"},          {"GETNUMKEYS", ""},
    {"DELETE_KEY", "k"}, {"APPEND", "kv"},  {"MULTI_GET", "K"},     {"MULTI_SET", "P"},
    {"CANCEL_WAIT", ""}, {"PING", "w"},     {"QUEUE_PUSH", "kv"},   {"QUEUE_POP", "k"},
    {"QUEUE_LEN", "k"},  {"LIST_KEYS", ""}, {"BARRIER", "kn"}};

const RequestForm& form_of(Opcode opcode) {
  return opcode == Opcode::WatchKey ? kWatchKey : kForms[static_cast<std::size_t>(opcode)];
}

}  // namespace

std::string_view to_string(Opcode opcode) { return form_of(opcode).name; }

std::optional<std::uint8_t> to_byte(Opcode opcode, Dialect dialect) {
  const auto byte = static_cast<std::uint8_t>(opcode);
  if (dialect == Dialect::Current) {
    return opcode == Opcode::WatchKey ? std::nullopt : std::optional(byte);
  }
  if (opcode == Opcode::WatchKey) return kLegacyWatchKey;
  if (opcode == Opcode::DeleteKey) return byte;
  if (opcode == Opcode::Validate || opcode > Opcode::NumKeys) return std::nullopt;
  return static_cast<std::uint8_t>(byte - 1);
}

std::optional<Opcode> to_opcode(std::uint8_t byte, Dialect dialect) {
  if (dialect == Dialect::Current) {
    return byte <= kLastCurrent ? std::optional(static_cast<Opcode>(byte)) : std::nullopt;
  }
  if (byte == kLegacyWatchKey) return Opcode::WatchKey;
  if (byte == kLastLegacy) return Opcode::DeleteKey;
  if (byte > kLastLegacy) return std::nullopt;
  return static_cast<Opcode>(byte + 1);
}

Decoded RequestDecoder::next(std::string_view& input) {
  if (broken_.empty() && (dialect_ || take_hello(input))) {
    if (std::optional<store::Request> request = run(input)) {
      held_bytes_ = 0;
      return *std::move(request);
    }
  }
  if (!broken_.empty()) return Malformed{broken_};
  return NeedMore{};
}

// Returns true once the dialect is known.
bool RequestDecoder::take_hello(std::string_view& input) {
  while (!input.empty()) {
    if (input.front() == kValidate[hello_bytes_]) {
      input.remove_prefix(1);
      if (++hello_bytes_ < kValidate.size()) continue;
      dialect_ = Dialect::Current;
      return true;
    }
    if (hello_bytes_ == 0 && !may_be_store(static_cast<std::uint8_t>(input.front())))
      return break_off("it does not begin as a TCPStore client does"), false;
    // Not VALIDATE, so a legacy client whose first bytes were the same by chance.
    dialect_ = Dialect::Legacy;
    std::string_view seen = kValidate.substr(0, hello_bytes_);
    const std::optional<store::Request> request = run(seen);
    assert(!request);  // a SET whose key length has not arrived completely
    return broken_.empty();
  }
  return false;
}

std::optional<store::Request> RequestDecoder::run(std::string_view& input) {
  // A text of no bytes and a request of no fields are complete without another byte.
  while (broken_.empty() && !input.empty()) {
    switch (step_) {
      case Step::Opcode:
        take_opcode(input);
        break;
      case Step::Number:
        if (take_integer(input, field_ == 'w' ? 4 : 8, UINT64_MAX)) {
          number_ = integer_;
          start_field();
        }
        break;
      case Step::Count:
        take_count(input);
        break;
      case Step::Length:
        take_length(input);
        break;
      case Step::Text:
        take_text(input);
        break;
    }
    if (broken_.empty() && step_ == Step::Opcode) return request();
  }
  return std::nullopt;
}

void RequestDecoder::take_opcode(std::string_view& input) {
  const auto byte = static_cast<std::uint8_t>(input.front());
  input.remove_prefix(1);
  const std::optional<Opcode> opcode = to_opcode(byte, *dialect_);
  if (!opcode || *opcode == Opcode::Validate) {
    return break_off("unknown operation " + std::to_string(byte) + " in the " +
                     std::string(to_string(*dialect_)) + " dialect");
  }
  opcode_ = *opcode;
  fields_ = form_of(opcode_).fields;
  texts_.clear();
  request_bytes_ = 0;
  number_ = 0;
  start_field();
}

// Continues to read an integer; returns true when it is complete. Bytes arrive lowest first, so a
// value above the limit may be detected before its last byte.
bool RequestDecoder::take_integer(std::string_view& input, std::size_t size_bytes,
                                  std::uint64_t limit) {
  const std::size_t count = std::min(size_bytes - integer_bytes_, input.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<std::uint8_t>(input[i]);
    integer_ |= static_cast<std::uint64_t>(byte) << (8 * integer_bytes_++);
  }
  input.remove_prefix(count);
  if (integer_ > limit) {
    const bool is_count = step_ == Step::Count;
    break_off((is_count     ? "more than "
               : is_value() ? "value of more than "
                            : "key of more than ") +
              std::to_string(limit) + (is_count ? " keys" : " bytes") + " in " +
              std::string(to_string(opcode_)));
    return false;
  }
  return integer_bytes_ == size_bytes;
}

void RequestDecoder::take_count(std::string_view& input) {
  if (!take_integer(input, 8, limits_.keys_per_request)) return;
  texts_left_ = field_ == 'P' ? 2 * integer_ : integer_;
  if (texts_left_ == 0) return start_field();
  texts_.reserve(std::min<std::uint64_t>(texts_left_, 1024));
  step_ = Step::Length;
  integer_ = 0;
  integer_bytes_ = 0;
}

void RequestDecoder::take_length(std::string_view& input) {
  if (!take_integer(input, 8, is_value() ? limits_.value_bytes : limits_.key_bytes)) return;
  text_left_bytes_ = static_cast<std::size_t>(integer_);
  request_bytes_ += text_left_bytes_;
  if (request_bytes_ > limits_.request_bytes) {
    return break_off("more than " + std::to_string(limits_.request_bytes) + " bytes in " +
                     std::string(to_string(opcode_)));
  }
  // Announced bytes that never arrive cost address space, not memory; beyond this, growing doubles.
  constexpr std::size_t kReservedBytes = 1 << 20;
  held_bytes_ += sizeof(std::string);
  texts_.emplace_back().reserve(std::min(text_left_bytes_, kReservedBytes));
  step_ = Step::Text;
  if (text_left_bytes_ == 0) end_text();
}

void RequestDecoder::take_text(std::string_view& input) {
  const std::size_t count = std::min(text_left_bytes_, input.size());
  texts_.back().append(input.substr(0, count));
  held_bytes_ += count;
  input.remove_prefix(count);
  text_left_bytes_ -= count;
  if (text_left_bytes_ == 0) end_text();
}

void RequestDecoder::end_text() {
  if (--texts_left_ == 0) return start_field();
  step_ = Step::Length;
  integer_ = 0;
  integer_bytes_ = 0;
}

// Continues with the next field, or with Step::Opcode after the last one.
void RequestDecoder::start_field() {
  integer_ = 0;
  integer_bytes_ = 0;
  texts_left_ = 1;
  if (fields_.empty()) {
    step_ = Step::Opcode;
    return;
  }
  field_ = fields_.front();
  fields_.remove_prefix(1);
  const bool is_counted = field_ == 'K' || field_ == 'P';
  const bool is_number = field_ == 'w' || field_ == 'n';
  step_ = is_counted ? Step::Count : is_number ? Step::Number : Step::Length;
}

// Whether the text that is read now or next is a value.
bool RequestDecoder::is_value() const {
  return field_ == 'v' || (field_ == 'P' && texts_left_ % 2 == 1);
}

void RequestDecoder::break_off(std::string_view what) { broken_ = what; }

store::Request RequestDecoder::request() {
  const auto text = [this](std::size_t i) { return std::move(texts_[i]); };
  const auto number = static_cast<std::int64_t>(number_);
  switch (opcode_) {
    case Opcode::Ping:
      return store::Ping{static_cast<std::uint32_t>(number_)};
    case Opcode::Set:
      return store::Set{.key = text(0), .value = text(1)};
    case Opcode::CompareSet:
      return store::CompareSet{.key = text(0), .expected = text(1), .desired = text(2)};
    case Opcode::Get:
      return store::Get{text(0)};
    case Opcode::Add:
      return store::Add{.key = text(0), .delta = number};
    case Opcode::Check:
      return store::Check{std::move(texts_)};
    case Opcode::Wait:
      return store::Wait{std::move(texts_)};
    case Opcode::NumKeys:
      return store::NumKeys{};
    case Opcode::DeleteKey:
      return store::DeleteKey{text(0)};
    case Opcode::Append:
      return store::Append{.key = text(0), .bytes = text(1)};
    case Opcode::MultiGet:
      return store::MultiGet{std::move(texts_)};
    case Opcode::MultiSet: {
      store::MultiSet request;
      request.entries.reserve(texts_.size() / 2);
      for (std::size_t i = 0; i < texts_.size(); i += 2)
        request.entries.emplace_back(text(i), text(i + 1));
      return request;
    }
    case Opcode::CancelWait:
      return store::CancelWait{};
    case Opcode::QueuePush:
      return store::QueuePush{.queue = text(0), .value = text(1)};
    case Opcode::QueuePop:
      return store::QueuePop{text(0)};
    case Opcode::QueueLen:
      return store::QueueLen{text(0)};
    case Opcode::ListKeys:
      return store::ListKeys{};
    case Opcode::Barrier:
      return store::Barrier{.key = text(0), .world_size = number};
    case Opcode::WatchKey:
      return store::WatchKey{text(0)};
    case Opcode::Validate:
      break;
  }
  assert(false);  // take_opcode rejects all others
  return store::CancelWait{};
}

namespace {

// Up to this size, a copy costs less than a separate piece.
constexpr std::size_t kCopiedBytes = 2048;
// The maximum size of a piece of copied bytes.
constexpr std::size_t kPieceBytes = 16 * 1024;

void append_blob(const Blob& value, OutQueue& out) {
  std::string length;
  put_u64(length, value ? value->size() : 0);
  out.append(length);
  if (value) out.append(value);
}

}  // namespace

void put_u32(std::string& out, std::uint32_t value) { ByteWriter(out).u32(value); }
void put_u64(std::string& out, std::uint64_t value) { ByteWriter(out).u64(value); }
void put_text(std::string& out, std::string_view text) {
  put_u64(out, text.size());
  out.append(text);
}

void OutQueue::append(std::string_view bytes) {
  if (bytes.empty()) return;
  const bool needs_piece = pieces_.size() == first_ || pieces_.back().value ||
                           pieces_.back().bytes.size() >= kPieceBytes;
  if (needs_piece) pieces_.emplace_back();
  pieces_.back().bytes.append(bytes);
  size_bytes_ += bytes.size();
  own_bytes_ += bytes.size();
}

void OutQueue::append(const Blob& value) {
  if (value->size() <= kCopiedBytes) return append(std::string_view(*value));
  pieces_.push_back({.bytes = {}, .value = value});
  size_bytes_ += value->size();
  own_bytes_ += sizeof(Piece);
}

std::size_t OutQueue::own_cost(std::size_t value_bytes) {
  return 8 + (value_bytes <= kCopiedBytes ? value_bytes : sizeof(Piece));
}

void OutQueue::front(std::size_t most, std::vector<std::string_view>& pieces) const {
  pieces.clear();
  for (std::size_t i = first_; i < pieces_.size() && pieces.size() < most; ++i) {
    pieces.push_back(pieces_[i].view());
  }
  if (!pieces.empty()) pieces.front().remove_prefix(taken_bytes_);
}

void OutQueue::consume(std::size_t count) {
  assert(count <= size_bytes_);
  size_bytes_ -= count;
  taken_bytes_ += count;
  while (first_ < pieces_.size() && taken_bytes_ >= pieces_[first_].view().size()) {
    const Piece& done = pieces_[first_];
    taken_bytes_ -= done.view().size();
    own_bytes_ -= done.value ? sizeof(Piece) : done.bytes.size();
    pieces_[first_++] = {};
  }
  // Moves the rest down only if at least as many pieces are finished, which keeps it linear.
  if (first_ * 2 >= pieces_.size()) {
    pieces_.erase(pieces_.begin(), pieces_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

void encode(const store::Answer& answer, OutQueue& out) {
  const auto put_integer = [&out](std::uint64_t value, std::size_t size_bytes) {
    std::string bytes;
    put_u64(bytes, value);
    out.append(std::string_view(bytes).substr(0, size_bytes));
  };
  std::visit(Overloaded{
                 [&](store::Signal signal) { put_integer(static_cast<std::uint64_t>(signal), 1); },
                 [&](const store::Nonce& nonce) { put_integer(nonce.value, 4); },
                 [&](const store::Number& number) {
                   put_integer(static_cast<std::uint64_t>(number.value), 8);
                 },
                 [&](const Blob& blob) { append_blob(blob, out); },
                 [&](const store::Values& values) {
                   for (const Blob& blob : values.blobs) append_blob(blob, out);
                 },
                 [&](const store::Keys& keys) {
                   put_integer(keys.keys.size(), 8);
                   for (const std::string& key : keys.keys) {
                     put_integer(key.size(), 8);
                     out.append(key);
                   }
                 },
                 [&](const store::Popped& popped) {
                   put_integer(static_cast<std::uint64_t>(popped.length_before), 8);
                   if (popped.length_before > 0) append_blob(popped.front, out);
                 },
                 [&](const store::Changed& changed) {
                   put_integer(static_cast<std::uint64_t>(changed.change), 1);
                   put_integer(changed.key.size(), 8);
                   out.append(changed.key);
                   append_blob(changed.before, out);
                   append_blob(changed.after, out);
                 },
             },
             answer);
}

}  // namespace drun
