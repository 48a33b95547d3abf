#include "agent/nccl_ras/ras_report.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "rendezvous/base/text.h"

namespace drun::agent::ras {

std::optional<std::size_t> kind_of(Report& report, const std::string& name) {
  const auto found = std::find(report.kinds.begin(), report.kinds.end(), name);
  if (found != report.kinds.end())
    return static_cast<std::size_t>(std::distance(report.kinds.begin(), found));
  if (report.kinds.size() >= kMostKinds) return std::nullopt;
  report.kinds.push_back(name);
  return report.kinds.size() - 1;
}

void add_lost(Report& report, const Lost& lost) {
  const auto found =
      std::find_if(report.lost.begin(), report.lost.end(),
                   [&lost](const Lost& each) { return each.process == lost.process; });
  if (found != report.lost.end())
    found->is_dead = found->is_dead || lost.is_dead;
  else if (report.lost.size() < kMostLost)
    report.lost.push_back(lost);
}

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

namespace {

int positive_of(std::string_view text) { return std::max(whole_number<int>(text).value_or(0), 0); }

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
    const auto count = whole_number<std::uint64_t>(value);
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

namespace {

constexpr std::size_t kMostGroups = 4096;

template <typename Number>
std::optional<Number> text_number(std::string_view text) {
  const auto number = whole_number<Number>(text);
  return number && *number >= Number{} ? number : std::nullopt;
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::size_t kMostWords = 32;
  std::vector<std::string_view> words;
  while (words.size() < kMostWords) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == line.npos) break;
    line.remove_prefix(begin);
    const std::size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

// What follows these words in a line; nothing when they are not there.
std::optional<std::string_view> word_after(const std::vector<std::string_view>& words,
                                           std::string_view first, std::string_view second) {
  for (std::size_t i = 0; i + 2 < words.size(); ++i)
    if (words[i] == first && words[i + 1] == second) return words[i + 2];
  return std::nullopt;
}

// "... process 4711 on node 10.0.0.1 ..."
Process process_in(const std::vector<std::string_view>& words) {
  Process process;
  for (std::size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == "process" || words[i] == "Process")
      process.pid = text_number<int>(words[i + 1]).value_or(0);
  if (const auto host = word_after(words, "on", "node")) process.host = *host;
  return process;
}

// "... have launched up to operation 812", "... have not launched any operations"
std::optional<std::uint64_t> count_in(const std::vector<std::string_view>& words) {
  if (word_after(words, "not", "launched")) return 0;
  const auto count = word_after(words, "to", "operation");
  return count ? text_number<std::uint64_t>(*count) : std::nullopt;
}

}  // namespace

bool TextAnswer::take(std::string_view line) {
  if (take_heading(line)) return true;
  switch (part_) {
    case Part::None:
      break;
    case Part::Groups:
      take_group(line);
      break;
    case Part::Missing:
    case Part::Dead:
      take_process(line);
      break;
    case Part::Counts:
      take_count(line);
      break;
  }
  return ranks_ <= kMostRanks && report_.communicators.size() <= kMostRanks;
}

bool TextAnswer::take_heading(std::string_view line) {
  constexpr std::string_view kDifferent = "Communicator ranks have different ";
  const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
  const std::string_view text = line.substr(begin);
  const auto is = [&](std::string_view heading) { return begin == 0 && text == heading; };
  if (begin == 0 && text.starts_with("#")) {
    part_ = Part::None;
    if (text.ends_with(" MISMATCH")) enter(text);
  } else if (text.starts_with(kDifferent)) {
    const std::vector<std::string_view> words = words_of(text.substr(kDifferent.size()));
    const bool are_counts = !report_.communicators.empty() && words.size() >= 3 &&
                            words[words.size() - 2] == "operation";
    part_ = are_counts ? Part::Counts : Part::None;
    count_.reset();
    kind_ = are_counts ? kind_of(report_, std::string(words.front())) : std::nullopt;
  } else if (is("INCOMPLETE") || is("DEAD")) {
    part_ = is("DEAD") ? Part::Dead : Part::Missing;
  } else if (is("Errors") || is("Warnings") || is("TIMEOUT")) {
    part_ = Part::None;
    is_last_part_ = is_last_part_ || is("Warnings");
  } else if (begin == 0 && text.starts_with("Group ")) {
    part_ = Part::Groups;
  } else {
    return false;
  }
  return true;
}

// "    0         1         4         8        32        32   RUNNING  MISMATCH"
void TextAnswer::take_group(std::string_view line) {
  const std::vector<std::string_view> words = words_of(line);
  if (words.size() < 5 || sizes_.size() >= kMostGroups) return;
  const auto group = text_number<int>(words[0]);
  const auto size = text_number<int>(words[4]);
  if (group && size) sizes_[*group] = *size;
}

void TextAnswer::take_process(std::string_view line) {
  const std::vector<std::string_view> words = words_of(line);
  if (words.empty() || words.front() != "Process") return;
  const Process process = process_in(words);
  if (process.pid > 0) add_lost(report_, {.process = process, .is_dead = part_ == Part::Dead});
}

// "#0-0 (27a079b828ff1a75) MISMATCH"
void TextAnswer::enter(std::string_view heading) {
  const std::string name(heading.substr(0, heading.rfind(' ')));
  const auto [found, is_new] = at_.try_emplace(name, report_.communicators.size());
  communicator_ = found->second;
  if (!is_new) return;
  Communicator communicator;
  const std::size_t open = name.find('(');
  const std::size_t close = name.find(')');
  if (open != name.npos && close != name.npos && open < close)
    communicator.hash = "0x" + name.substr(open + 1, close - open - 1);
  const auto group = text_number<int>(std::string_view(name).substr(1, name.find('-') - 1));
  const auto size = group ? sizes_.find(*group) : sizes_.end();
  if (size != sizes_.end()) communicator.size = size->second;
  report_.communicators.push_back(std::move(communicator));
}

void TextAnswer::take_count(std::string_view line) {
  const std::vector<std::string_view> words = words_of(line);
  if (words.size() < 2 || !kind_) return;
  const auto count = count_in(words);
  if (words[0] == "Rank") {
    const auto rank = text_number<int>(words[1]);
    if (count) count_ = count;
    if (rank && count_) add_rank(*rank, process_in(words), *count_);
  } else if (const auto ranks = text_number<int>(words[0]); ranks && words[1] == "ranks" && count) {
    count_ = count;
    ++ranks_;
    report_.communicators[communicator_].crowds.push_back({*kind_, *count, *ranks});
  }
}

void TextAnswer::add_rank(int rank, const Process& process, std::uint64_t count) {
  ++ranks_;
  std::vector<Rank>& ranks = report_.communicators[communicator_].ranks;
  // Named ranks are few, or sorted: of another kind's list the same one is near the end.
  constexpr std::ptrdiff_t kLookBack = 256;
  const auto from = ranks.end() - std::min<std::ptrdiff_t>(kLookBack, std::ssize(ranks));
  auto found = std::find_if(from, ranks.end(), [&](const Rank& each) {
    return each.rank == rank && each.process == process;
  });
  if (found == ranks.end()) found = ranks.insert(ranks.end(), {.rank = rank, .process = process});
  found->counts[*kind_] = count;
}

namespace {

constexpr std::size_t kMostLine = 4096;

}  // namespace

bool Answer::take(std::string_view bytes) {
  bytes_ += bytes.size();
  if (bytes_ > kMostAnswerBytes) is_broken_ = true;
  while (!bytes.empty() && !is_broken_ && !is_json_) {
    if (line_.empty() && bytes.front() == '{') {
      is_json_ = true;
      break;
    }
    const std::size_t end = bytes.find('\n');
    line_ += bytes.substr(0, end);
    if (line_.size() > kMostLine) is_broken_ = true;
    if (end == bytes.npos) return !is_broken_;
    bytes.remove_prefix(end + 1);
    is_broken_ = is_broken_ || !take_line(line_);
    line_.clear();
  }
  if (is_json_ && !is_broken_) is_broken_ = !is_greeted_ || !json_.take(bytes);
  return !is_broken_;
}

bool Answer::take_line(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (!is_greeted_) return is_greeted_ = line.starts_with("SERVER PROTOCOL ");
  return text_.take(line);
}

std::optional<Report> Answer::finish() {
  if (!is_json_ && !is_broken_ && !line_.empty()) is_broken_ = !take_line(line_);
  const bool is_whole = is_json_ ? json_.is_complete() : text_.is_complete();
  if (is_broken_ || !is_whole) return std::nullopt;
  return std::move(report_);
}

}  // namespace drun::agent::ras
