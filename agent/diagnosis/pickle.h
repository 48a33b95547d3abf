// core. Decodes the part of Python's pickle format, protocols 2 to 4, that PyTorch's Flight
// Recorder writes: numbers, text, bytes, lists, tuples, dicts and references to earlier values.
// Anything else is an error, in particular whatever names a class or calls a function.
//
// Values are nodes of one table, so that a value that is referred to twice, or that contains
// itself, costs nothing and needs no recursion. Readers bound their own walks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/result.h"

namespace drun::agent::pickle {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kMostNodes = std::size_t{1} << 20;
constexpr std::size_t kMostDepth = 64;  // of containers that are open at the same time

using NodeId = std::uint32_t;

struct None {
  bool operator==(const None&) const = default;
};
struct Text {
  std::string_view value{};  // of the input; not checked to be UTF-8
  bool operator==(const Text&) const = default;
};
struct Bytes {
  std::string_view value{};
  bool operator==(const Bytes&) const = default;
};
struct Sequence {  // a list or a tuple
  std::vector<NodeId> items{};
  bool is_tuple = false;
  bool operator==(const Sequence&) const = default;
};
struct Dict {
  std::vector<std::pair<NodeId, NodeId>> items{};  // a key may be there twice; the last one counts
  bool operator==(const Dict&) const = default;
};
using Node = std::variant<None, bool, std::int64_t, double, Text, Bytes, Sequence, Dict>;

class Document {
 public:
  NodeId root() const { return root_; }
  const Node& at(NodeId id) const { return nodes_[id]; }
  std::size_t size() const { return nodes_.size(); }

  // Absent: it is of another type, or not there.
  std::optional<std::int64_t> number(NodeId id) const;
  std::optional<bool> flag(NodeId id) const;
  std::optional<std::string_view> text(NodeId id) const;
  // Null: no list or tuple.
  const std::vector<NodeId>* items(NodeId id) const;
  const Dict* dict(NodeId id) const;
  std::optional<NodeId> find(NodeId dict, std::string_view key) const;

 private:
  friend Result<Document> decode(std::string_view bytes);
  friend Result<Document> from_json(const nlohmann::json& json);
  std::vector<Node> nodes_;
  NodeId root_ = 0;
};

// The document refers to `bytes`, which have to stay. Errors: Refused, with the position.
Result<Document> decode(std::string_view bytes);
// The same table from JSON, which has to stay. Errors: Refused.
Result<Document> from_json(const nlohmann::json& json);

}  // namespace drun::agent::pickle
