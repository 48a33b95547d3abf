#include "agent/nccl_ras/ras_json.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

namespace drun::agent::ras {
namespace {

constexpr std::size_t kMostLevels = 32;
constexpr std::size_t kMostText = 256;

bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

bool is_of_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '+' || c == '.';
}

}  // namespace

bool JsonScanner::take(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size() && !is_broken_; ++i) is_broken_ = !step(bytes[i]);
  return !is_broken_;
}

bool JsonScanner::step(char c) {
  switch (in_) {
    case In::Between:
      return step_between(c);
    case In::String:
      return step_string(c);
    case In::Escape:
      // Hosts, hashes and kinds have none: the character itself will do.
      in_ = In::String;
      text_ += c;
      return text_.size() <= kMostText;
    case In::Word:
      if (!is_of_word(c)) return end_text(false) && step_between(c);
      text_ += c;
      return text_.size() <= kMostText;
  }
  return false;
}

bool JsonScanner::step_between(char c) {
  if (is_blank(c)) return true;
  if (is_complete_) return false;
  if (c == '{' || c == '[') return open(c == '[');
  if (are_lists_.empty()) return false;
  if (c == '}' || c == ']') return close(c == ']');
  if (c == ',' || c == ':') return true;
  in_ = c == '"' ? In::String : In::Word;
  text_.clear();
  if (c == '"') return true;
  text_ += c;
  return is_of_word(c);
}

bool JsonScanner::step_string(char c) {
  if (c == '\\') {
    in_ = In::Escape;
    return true;
  }
  if (c == '"') return end_text(true);
  text_ += c;
  return text_.size() <= kMostText;
}

bool JsonScanner::open(bool is_list) {
  const bool needs_key = !are_lists_.empty() && !are_lists_.back();
  if (are_lists_.size() >= kMostLevels || needs_key != has_key_) return false;
  listener_.on_open(has_key_ ? key_ : "", is_list);
  has_key_ = false;
  are_lists_.push_back(is_list);
  return true;
}

bool JsonScanner::close(bool is_list) {
  if (are_lists_.back() != is_list || has_key_) return false;
  are_lists_.pop_back();
  listener_.on_close();
  is_complete_ = are_lists_.empty();
  return true;
}

bool JsonScanner::end_text(bool is_string) {
  in_ = In::Between;
  if (are_lists_.back()) {
    listener_.on_value("", text_);
  } else if (std::exchange(has_key_, false)) {
    listener_.on_value(key_, text_);
  } else {
    key_ = text_;
    has_key_ = true;
    return is_string;
  }
  return true;
}

}  // namespace drun::agent::ras

namespace drun::agent::ras {
namespace {

template <typename Number>
std::optional<Number> json_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

int positive_of(std::string_view text) { return std::max(json_number<int>(text).value_or(0), 0); }

}  // namespace

JsonAnswer::Place JsonAnswer::place_of(std::string_view key, bool is_list) const {
  if (places_.empty()) return is_list ? Place::Other : Place::Top;
  switch (places_.back()) {
    case Place::Top:
      return is_list && key == "communicators" ? Place::Communicators : Place::Other;
    case Place::Communicators:
      return is_list ? Place::Other : Place::Communicator;
    case Place::Communicator:
      if (is_list && key == "ranks") return Place::Ranks;
      return is_list && key == "missing_ranks" ? Place::Missing : Place::Other;
    case Place::Ranks:
    case Place::Missing:
      return is_list ? Place::Other : Place::Rank;
    case Place::Rank:
      if (is_list) return Place::Other;
      if (key == "collective_counts") return Place::Counts;
      return key == "status" ? Place::Rank : Place::Other;
    case Place::Counts:
    case Place::Other:
      return Place::Other;
  }
  return Place::Other;
}

void JsonAnswer::on_open(std::string_view key, bool is_list) {
  const Place place = place_of(key, is_list);
  const bool is_inside_rank = !places_.empty() && places_.back() == Place::Rank;
  if (place == Place::Communicators) has_communicators_ = true;
  if (place == Place::Communicator) report_.communicators.emplace_back();
  if (place == Place::Rank && !is_inside_rank) {
    rank_ = {};
    is_missing_ = places_.back() == Place::Missing;
    is_unresponsive_ = is_dead_ = false;
  }
  places_.push_back(place);
  if (report_.communicators.size() > kMostRanks) is_too_large_ = true;
}

void JsonAnswer::on_close() {
  const Place place = places_.back();
  places_.pop_back();
  const bool is_inside_rank = !places_.empty() && places_.back() == Place::Rank;
  if (place == Place::Rank && !is_inside_rank) end_rank();
}

void JsonAnswer::end_rank() {
  if (++ranks_ > kMostRanks) {
    is_too_large_ = true;
    return;
  }
  if (!is_missing_) return report_.communicators.back().ranks.push_back(std::exchange(rank_, {}));
  // A rank that answers but is not in this communicator has left it, or is about to join.
  if (is_unresponsive_ || is_dead_)
    add_lost(report_, {.process = rank_.process, .is_dead = is_dead_});
}

void JsonAnswer::on_value(std::string_view key, std::string_view value) {
  if (places_.empty()) return;
  if (places_.back() == Place::Communicator) {
    Communicator& communicator = report_.communicators.back();
    if (key == "hash") communicator.hash = value;
    if (key == "size") communicator.size = positive_of(value);
  } else if (places_.back() == Place::Counts) {
    const auto count = json_number<std::uint64_t>(value);
    const auto kind = count ? kind_of(report_, std::string(key)) : std::nullopt;
    if (kind) rank_.counts[*kind] = *count;
  } else if (places_.back() == Place::Rank) {
    value_of_rank(key, value);
  }
}

void JsonAnswer::value_of_rank(std::string_view key, std::string_view value) {
  if (key == "rank") rank_.rank = positive_of(value);
  if (key == "host" && value != "unknown") rank_.process.host = value;
  if (key == "pid") rank_.process.pid = positive_of(value);
  if (key == "unresponsive") is_unresponsive_ = value == "true";
  if (key == "considered_dead") is_dead_ = value == "true";
}

}  // namespace drun::agent::ras
