#include "launcher/report/live_view.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "launcher/base/words.h"
#include "rendezvous/base/foreign_json.h"

namespace drun {
namespace {

struct StateLetter {
  const char* state;
  char letter;
  const char* color;
};
constexpr std::array kStateLetters{
    StateLetter{"joining", 'j', "\x1b[33m"},  StateLetter{"running", 'r', "\x1b[32m"},
    StateLetter{"stopping", 's', "\x1b[35m"}, StateLetter{"waiting", 'w', "\x1b[34m"},
    StateLetter{"ending", 'e', "\x1b[36m"},   StateLetter{"silent", '?', "\x1b[31m"},
    StateLetter{"lost", 'x', "\x1b[31m"}};

char letter_of(const std::string& state) {
  for (const StateLetter& each : kStateLetters)
    if (state == each.state) return each.letter;
  return ' ';
}

std::string colored(const std::string& letters) {
  std::string text;
  char last = 0;
  for (const char letter : letters) {
    if (letter != last) {
      const auto* each =
          std::find_if(kStateLetters.begin(), kStateLetters.end(),
                       [letter](const StateLetter& one) { return one.letter == letter; });
      text += each != kStateLetters.end() ? each->color : "\x1b[0m";
    }
    text += letter;
    last = letter;
  }
  return text + "\x1b[0m";
}

// The first `columns` characters of UTF-8 text. Escape sequences take no columns.
std::string_view cut(std::string_view line, std::size_t columns) {
  std::size_t shown = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b') {
      while (i < line.size() && line[i] != 'm') ++i;
      continue;
    }
    if ((static_cast<unsigned char>(line[i]) & 0xC0U) == 0x80) continue;
    if (++shown > columns) return line.substr(0, i);
  }
  return line;
}

}  // namespace

std::string repaint(std::string_view text, ScreenSize size) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const std::size_t rows = std::max<std::size_t>(size.rows, 2);
  const bool is_cut = lines.size() > rows;
  const std::size_t shown = is_cut ? rows - 1 : lines.size();
  std::string picture = "\x1b[H";
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) picture += "\r\n";
    picture += std::string(cut(lines[i], size.columns)) + "\x1b[0m\x1b[K";
  }
  if (is_cut)
    picture += "\r\n" +
               std::string(cut("... " + counted(lines.size() - shown, "more line"), size.columns)) +
               "\x1b[K";
  return picture + "\x1b[J";
}

void StateHistory::add(std::string_view job_json) {
  using Json = nlohmann::json;
  const Json job = parse_foreign_json<Json>(job_json);
  try {
    const std::string run_id = job.at("run_id").get<std::string>();
    std::size_t row = 0;
    for (const Json& node : job.at("nodes")) {
      if (row >= kMostNodes || nodes_.size() >= 4 * kMostNodes) break;
      auto& [name, letters] = nodes_[{run_id, row++}];
      const std::string now =
          (node.at("node_rank").is_number() ? "node " + std::to_string(int_of(node.at("node_rank")))
                                            : "spare") +
          "  " + printable(node.at("host").get<std::string>());
      if (name != now) letters.clear();  // another node has this row
      name = now;
      letters += letter_of(node.at("state").get<std::string>());
      if (letters.size() > kMostLetters) letters.erase(0, letters.size() - kMostLetters);
    }
  } catch (const Json::exception&) {
    // Not the status of a job.
  }
}

std::string StateHistory::text(std::size_t columns, bool has_color) const {
  std::size_t width = 0;
  for (const auto& [key, node] : nodes_) width = std::max(width, node.first.size());
  if (nodes_.empty() || columns < width + 12) return "";
  const std::size_t most = columns - width - 4;
  std::string text = "\n  states in the last seconds:";
  for (const StateLetter& each : kStateLetters) {
    const bool is_used = std::any_of(nodes_.begin(), nodes_.end(), [&each](const auto& node) {
      return node.second.second.find(each.letter) != std::string::npos;
    });
    if (is_used) text += std::string("  ") + each.letter + " " + each.state;
  }
  text += "\n";
  for (const auto& [key, node] : nodes_) {
    const auto& [name, letters] = node;
    const std::string latest =
        letters.size() > most ? letters.substr(letters.size() - most) : letters;
    text += "  " + name + std::string(width - name.size() + 2, ' ') +
            (has_color ? colored(latest) : latest) + "\n";
  }
  return text;
}

}  // namespace drun
