#include "agent/diagnosis/pickle.h"

#include <bit>
#include <nlohmann/json.hpp>
#include <string>

namespace drun::agent::pickle {
namespace {

// Python's pickletools describes each.
enum class Opcode : std::uint8_t {
  Mark = '(',
  Stop = '.',
  Pop = '0',
  BinInt = 'J',
  BinInt1 = 'K',
  BinInt2 = 'M',
  NoneValue = 'N',
  BinFloat = 'G',
  BinUnicode = 'X',
  ShortBinUnicode = 0x8c,
  BinUnicode8 = 0x8d,
  BinBytes = 'B',
  ShortBinBytes = 'C',
  BinBytes8 = 0x8e,
  EmptyDict = '}',
  SetItem = 's',
  SetItems = 'u',
  EmptyList = ']',
  Append = 'a',
  Appends = 'e',
  EmptyTuple = ')',
  TupleOf1 = 0x85,
  TupleOf2 = 0x86,
  TupleOf3 = 0x87,
  TupleOfMark = 't',
  NewTrue = 0x88,
  NewFalse = 0x89,
  Long1 = 0x8a,
  Long4 = 0x8b,
  BinPut = 'q',
  LongBinPut = 'r',
  BinGet = 'h',
  LongBinGet = 'j',
  Memoize = 0x94,
  Proto = 0x80,
  Frame = 0x95,
};

constexpr NodeId kNoNode = 0xffffffff;

class Decoder {
 public:
  explicit Decoder(std::string_view bytes) : bytes_(bytes) {}

  // The root, or why there is none.
  std::variant<NodeId, const char*> run() {
    if (bytes_.size() > kMostBytes) return "it is too large";
    while (reason_ == nullptr) {
      if (at_ >= bytes_.size()) return fail("it ends too early"), reason_;
      const auto opcode = static_cast<Opcode>(bytes_[at_++]);
      if (opcode == Opcode::Stop) {
        if (stack_.size() != 1 || !marks_.empty()) return fail("it has no single value"), reason_;
        return stack_.back();
      }
      step(opcode);
    }
    return reason_;
  }
  std::vector<Node> take_nodes() { return std::move(nodes_); }
  std::size_t at() const { return at_; }

 private:
  void fail(const char* reason) {
    if (reason_ == nullptr) reason_ = reason;
  }

  // Little-endian.
  std::uint64_t number(std::size_t size) {
    if (bytes_.size() - at_ < size) return fail("it ends too early"), 0;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value |= std::uint64_t{static_cast<unsigned char>(bytes_[at_ + i])} << (8 * i);
    at_ += size;
    return value;
  }
  std::string_view text(std::size_t size_bytes) {
    const std::uint64_t size = number(size_bytes);
    if (size > bytes_.size() - at_)
      return fail("a text is longer than the rest"), std::string_view();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

  void push(Node node) {
    if (nodes_.size() >= kMostNodes) return fail("it has too many values");
    nodes_.push_back(std::move(node));
    push_id(static_cast<NodeId>(nodes_.size() - 1));
  }
  void push_id(NodeId id) {
    // References to earlier values also cost memory.
    if (++pushed_ > 2 * kMostNodes) return fail("it has too many values");
    stack_.push_back(id);
  }
  // How many values stand above the last mark; values below it are not touched.
  std::size_t available() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  bool needs(std::size_t count) {
    if (available() >= count) return true;
    fail("a value is missing");
    return false;
  }
  NodeId pop() {
    const NodeId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  // What stands above the last mark, which is removed.
  std::vector<NodeId> pop_to_mark() {
    if (marks_.empty()) return fail("a mark is missing"), std::vector<NodeId>();
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<NodeId> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }

  void tuple(std::size_t count) {
    if (!needs(count)) return;
    Sequence items{.is_tuple = true};
    items.items.assign(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    push(std::move(items));
  }
  void append(const std::vector<NodeId>& items) {
    if (!needs(1)) return;
    auto* list = std::get_if<Sequence>(&nodes_[stack_.back()]);
    if (list == nullptr || list->is_tuple) return fail("something is appended to what is no list");
    list->items.insert(list->items.end(), items.begin(), items.end());
  }
  void set(const std::vector<NodeId>& items) {
    if (!needs(1)) return;
    auto* dict = std::get_if<Dict>(&nodes_[stack_.back()]);
    if (dict == nullptr) return fail("an item is set in what is no dict");
    if (items.size() % 2 != 0) return fail("a key has no value");
    for (std::size_t i = 0; i < items.size(); i += 2)
      dict->items.emplace_back(items[i], items[i + 1]);
  }

  void put(std::uint64_t index) {
    if (!needs(1)) return;
    if (index >= kMostNodes) return fail("a reference is out of range");
    if (index >= memo_.size()) memo_.resize(index + 1, kNoNode);
    if (memo_[index] == kNoNode) ++memoized_;
    memo_[index] = stack_.back();
  }
  void get(std::uint64_t index) {
    if (index >= memo_.size() || memo_[index] == kNoNode)
      return fail("it refers to a value that is not there");
    push_id(memo_[index]);
  }
  void integer(std::size_t size) {
    // Two's complement with the sign in the last byte.
    if (size > sizeof(std::uint64_t)) return fail("a number is too large");
    std::uint64_t value = number(size);
    if (size > 0 && size < sizeof value && (value >> (8 * size - 1) & 1) != 0)
      value |= ~std::uint64_t{0} << (8 * size);
    push(static_cast<std::int64_t>(value));
  }
  void real() {  // big-endian
    std::uint64_t bits = 0;
    if (bytes_.size() - at_ < sizeof bits) return fail("it ends too early");
    for (std::size_t i = 0; i < sizeof bits; ++i)
      bits = bits << 8 | static_cast<unsigned char>(bytes_[at_ + i]);
    at_ += sizeof bits;
    push(std::bit_cast<double>(bits));
  }

  void step(Opcode opcode) {
    switch (opcode) {
      case Opcode::Proto:
        if (const std::uint64_t version = number(1); version < 2 || version > 4)
          fail("it is of another protocol");
        return;
      case Opcode::Frame:
        number(8);
        return;
      case Opcode::Mark:
        if (marks_.size() >= kMostDepth) return fail("it is nested too deeply");
        marks_.push_back(stack_.size());
        return;
      case Opcode::Pop:
        if (needs(1)) pop();
        return;
      case Opcode::NoneValue:
        return push(None{});
      case Opcode::NewTrue:
        return push(true);
      case Opcode::NewFalse:
        return push(false);
      case Opcode::BinInt:
        return integer(4);
      case Opcode::BinInt1:
        return push(static_cast<std::int64_t>(number(1)));
      case Opcode::BinInt2:
        return push(static_cast<std::int64_t>(number(2)));
      case Opcode::Long1:
        return integer(number(1));
      case Opcode::Long4:
        return integer(number(4));
      case Opcode::BinFloat:
        return real();
      case Opcode::ShortBinUnicode:
        return push(Text{text(1)});
      case Opcode::BinUnicode:
        return push(Text{text(4)});
      case Opcode::BinUnicode8:
        return push(Text{text(8)});
      case Opcode::ShortBinBytes:
        return push(Bytes{text(1)});
      case Opcode::BinBytes:
        return push(Bytes{text(4)});
      case Opcode::BinBytes8:
        return push(Bytes{text(8)});
      case Opcode::EmptyList:
        return push(Sequence{});
      case Opcode::EmptyTuple:
        return push(Sequence{.is_tuple = true});
      case Opcode::EmptyDict:
        return push(Dict{});
      case Opcode::TupleOf1:
        return tuple(1);
      case Opcode::TupleOf2:
        return tuple(2);
      case Opcode::TupleOf3:
        return tuple(3);
      case Opcode::TupleOfMark:
        return push(Sequence{.items = pop_to_mark(), .is_tuple = true});
      case Opcode::Append:
        if (needs(2)) append({pop()});
        return;
      case Opcode::Appends:
        return append(pop_to_mark());
      case Opcode::SetItem:
        if (needs(3)) {
          const NodeId value = pop();
          const NodeId key = pop();
          set({key, value});
        }
        return;
      case Opcode::SetItems:
        return set(pop_to_mark());
      case Opcode::BinPut:
        return put(number(1));
      case Opcode::LongBinPut:
        return put(number(4));
      case Opcode::Memoize:
        return put(memoized_);
      case Opcode::BinGet:
        return get(number(1));
      case Opcode::LongBinGet:
        return get(number(4));
      case Opcode::Stop:
        break;
    }
    fail("it has something else than plain values");
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  const char* reason_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<NodeId> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::vector<NodeId> memo_;
  std::size_t memoized_ = 0;
  std::size_t pushed_ = 0;
};

// Children come before their list or dict. Recursive: JSON of others is limited in depth.
NodeId add_json(std::vector<Node>& nodes, const nlohmann::json& json) {
  Node node;
  if (json.is_boolean()) node = json.get<bool>();
  if (json.is_number_integer()) node = json.get<std::int64_t>();
  if (json.is_number_float()) node = json.get<double>();
  if (json.is_string()) node = Text{json.get_ref<const std::string&>()};
  if (json.is_array()) {
    Sequence list;
    for (const nlohmann::json& each : json)
      if (nodes.size() < kMostNodes) list.items.push_back(add_json(nodes, each));
    node = std::move(list);
  }
  if (json.is_object()) {
    Dict dict;
    for (auto each = json.begin(); each != json.end() && nodes.size() < kMostNodes; ++each) {
      nodes.emplace_back(Text{each.key()});
      const auto key = static_cast<NodeId>(nodes.size() - 1);
      dict.items.emplace_back(key, add_json(nodes, *each));
    }
    node = std::move(dict);
  }
  nodes.push_back(std::move(node));
  return static_cast<NodeId>(nodes.size() - 1);
}

}  // namespace

std::optional<std::int64_t> Document::number(NodeId id) const {
  const auto* value = std::get_if<std::int64_t>(&at(id));
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<bool> Document::flag(NodeId id) const {
  const auto* value = std::get_if<bool>(&at(id));
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<std::string_view> Document::text(NodeId id) const {
  const auto* value = std::get_if<Text>(&at(id));
  return value == nullptr ? std::nullopt : std::optional(value->value);
}

const std::vector<NodeId>* Document::items(NodeId id) const {
  const auto* value = std::get_if<Sequence>(&at(id));
  return value == nullptr ? nullptr : &value->items;
}

const Dict* Document::dict(NodeId id) const { return std::get_if<Dict>(&at(id)); }

std::optional<NodeId> Document::find(NodeId id, std::string_view key) const {
  const Dict* items = dict(id);
  if (items == nullptr) return std::nullopt;
  for (std::size_t i = items->items.size(); i-- > 0;)
    if (text(items->items[i].first) == key) return items->items[i].second;
  return std::nullopt;
}

Result<Document> decode(std::string_view bytes) {
  Decoder decoder(bytes);
  const auto root = decoder.run();
  if (const auto* reason = std::get_if<const char*>(&root))
    return Error{ErrorCode::Refused,
                 "cannot read the pickle at byte " + std::to_string(decoder.at()) + ": " + *reason};
  Document document;
  document.nodes_ = decoder.take_nodes();
  document.root_ = std::get<NodeId>(root);
  return document;
}

Result<Document> from_json(const nlohmann::json& json) {
  if (json.is_discarded()) return Error{ErrorCode::Refused, "it is no JSON"};
  Document document;
  document.root_ = add_json(document.nodes_, json);
  if (document.nodes_.size() >= kMostNodes)
    return Error{ErrorCode::Refused, "the JSON has too many values"};
  return document;
}

}  // namespace drun::agent::pickle
