#include "agent/nccl_ras/ras_text.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace drun::agent::ras {
namespace {

constexpr std::size_t kMostGroups = 4096;

template <typename Number>
std::optional<Number> text_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < Number{}) return {};
  return number;
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

}  // namespace drun::agent::ras
