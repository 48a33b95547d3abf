#include "rendezvous/store/encode.h"

#include <cassert>

#include "rendezvous/bytes.h"
#include "rendezvous/overloaded.h"
#include "rendezvous/store/wire.h"

namespace drun {
namespace {

// Copying so much costs less than keeping a piece of its own for it.
constexpr std::size_t kCopiedBytes = 2048;
// A piece of copied bytes grows up to this.
constexpr std::size_t kPieceBytes = 16 * 1024;

void put_keys(std::string& out, const std::vector<std::string>& keys) {
  put_u64(out, keys.size());
  for (const std::string& key : keys) put_text(out, key);
}

struct FieldsWriter {
  std::string& out;

  void operator()(const store::Ping& r) { put_u32(out, r.nonce); }
  void operator()(const store::Set& r) { texts({r.key, r.value}); }
  void operator()(const store::CompareSet& r) { texts({r.key, r.expected, r.desired}); }
  void operator()(const store::Get& r) { texts({r.key}); }
  void operator()(const store::Add& r) {
    texts({r.key});
    put_u64(out, static_cast<std::uint64_t>(r.delta));
  }
  void operator()(const store::Check& r) { put_keys(out, r.keys); }
  void operator()(const store::Wait& r) { put_keys(out, r.keys); }
  void operator()(const store::CancelWait&) {}
  void operator()(const store::NumKeys&) {}
  void operator()(const store::WatchKey& r) { texts({r.key}); }
  void operator()(const store::DeleteKey& r) { texts({r.key}); }
  void operator()(const store::Append& r) { texts({r.key, r.bytes}); }
  void operator()(const store::MultiGet& r) { put_keys(out, r.keys); }
  void operator()(const store::MultiSet& r) {
    put_u64(out, r.entries.size());
    for (const auto& [key, value] : r.entries) texts({key, value});
  }
  void operator()(const store::QueuePush& r) { texts({r.queue, r.value}); }
  void operator()(const store::QueuePop& r) { texts({r.queue}); }
  void operator()(const store::QueueLen& r) { texts({r.queue}); }
  void operator()(const store::ListKeys&) {}
  void operator()(const store::Barrier& r) {
    texts({r.key});
    put_u64(out, static_cast<std::uint64_t>(r.world_size));
  }

  void texts(std::initializer_list<std::string_view> list) {
    for (const std::string_view text : list) put_text(out, text);
  }
};

// In the order of store::Request's alternatives.
constexpr Opcode kOpcodes[] = {
    Opcode::Ping,      Opcode::Set,      Opcode::CompareSet, Opcode::Get,      Opcode::Add,
    Opcode::Check,     Opcode::Wait,     Opcode::CancelWait, Opcode::NumKeys,  Opcode::WatchKey,
    Opcode::DeleteKey, Opcode::Append,   Opcode::MultiGet,   Opcode::MultiSet, Opcode::QueuePush,
    Opcode::QueuePop,  Opcode::QueueLen, Opcode::ListKeys,   Opcode::Barrier};
static_assert(std::size(kOpcodes) == std::variant_size_v<store::Request>);

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

bool encode(const store::Request& request, Dialect dialect, std::string& out) {
  const std::optional<std::uint8_t> byte = to_byte(kOpcodes[request.index()], dialect);
  if (!byte) return false;
  out.push_back(static_cast<char>(*byte));
  std::visit(FieldsWriter{out}, request);
  return true;
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
  // Moving the rest down only when at least as many are done with keeps it linear.
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
