#include "agent/stacks/stack_trace.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>

#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

constexpr std::size_t kFrameBytes = 160;

// Without line ends.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines = split(text, '\n');
  for (std::string_view& line : lines)
    if (line.ends_with('\r')) line.remove_suffix(1);
  return lines;
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// What stands between the last pair of quotes.
std::string quoted(std::string_view line) {
  const std::size_t end = line.rfind('"');
  const std::size_t begin = end == line.npos || end == 0 ? line.npos : line.rfind('"', end - 1);
  return begin == line.npos ? "" : std::string(line.substr(begin + 1, end - begin - 1));
}

// "0x00007f12 in poll ..." -> "poll ...".
std::string_view without_address(std::string_view text) {
  if (!text.starts_with("0x")) return text;
  const std::size_t end = std::min(text.find(' '), text.size());
  text = trimmed(text.substr(end));
  return text.starts_with("in ") ? text.substr(3) : text;
}

// Where the arguments begin: the bracket that the last closing one belongs to.
std::string_view without_arguments(std::string_view text) {
  text = trimmed(text);
  if (!text.ends_with(')')) return text;
  int depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) return i == 0 ? text : trimmed(text.substr(0, i));
  }
  return text;
}

std::string frame(std::string_view function, std::string_view place) {
  std::string text(function.empty() ? "??" : function);
  if (!place.empty()) text += " (" + std::string(place) + ")";
  if (text.size() > kFrameBytes) text = text.substr(0, kFrameBytes - 3) + "...";
  return text;
}

// "#3  rest" -> "rest"; empty: no frame.
std::string_view after_number(std::string_view line) {
  if (!line.starts_with('#')) return {};
  std::size_t at = 1;
  while (at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0) ++at;
  return at == 1 ? std::string_view() : trimmed(line.substr(at));
}

void add_frame(std::vector<ThreadStack>& threads, std::string text) {
  if (threads.empty() || threads.back().frames.size() >= kMostFrames) return;
  threads.back().frames.push_back(std::move(text));
}

// The part behind the arguments: "at /src/group.cc:12", "from /lib/libc.so.6".
std::string gdb_frame(std::string_view rest) {
  rest = without_address(rest);
  for (const std::string_view word : {std::string_view(" at "), std::string_view(" from ")}) {
    const std::size_t at = rest.rfind(word);
    if (at == rest.npos || at < rest.rfind(')')) continue;
    return frame(without_arguments(rest.substr(0, at)), file_name(rest.substr(at + word.size())));
  }
  return frame(without_arguments(rest), "");
}

// "poll@@GLIBC_2.2.5 - /lib/libc.so.6", "- /usr/bin/sleep", "main".
std::string eu_frame(std::string_view named) {
  if (named.starts_with("- ")) return frame("", file_name(trimmed(named.substr(2))));
  const std::size_t module = named.find(" - ");
  const std::string_view function = named.substr(0, module);
  const std::string_view place =
      module == named.npos ? std::string_view() : trimmed(named.substr(module + 3));
  return frame(function.substr(0, function.find('@')), file_name(place));
}

std::vector<ThreadStack> without_empty(std::vector<ThreadStack> threads) {
  std::erase_if(threads, [](const ThreadStack& thread) { return thread.frames.empty(); });
  if (threads.size() > kMostThreads) threads.resize(kMostThreads);
  return threads;
}

}  // namespace

std::vector<ThreadStack> parse_py_spy(std::string_view text) {
  std::vector<ThreadStack> threads;
  for (const std::string_view line : lines_of(text)) {
    if (line.starts_with("Thread ")) threads.push_back({.name = quoted(line)});
    const std::string_view shown = trimmed(line);
    const std::size_t place = shown.rfind(" (");
    if (!line.starts_with("    ") || place == shown.npos || !shown.ends_with(')')) continue;
    const std::string_view where = shown.substr(place + 2, shown.size() - place - 3);
    add_frame(threads, frame(shown.substr(0, place), file_name(where)));
  }
  return without_empty(std::move(threads));
}

std::vector<ThreadStack> parse_gdb(std::string_view text) {
  std::vector<ThreadStack> threads;
  for (const std::string_view line : lines_of(text)) {
    if (line.starts_with("Thread ") && line.ends_with(':'))
      threads.push_back({.name = quoted(line)});
    else if (const std::string_view rest = after_number(line); !rest.empty())
      add_frame(threads, gdb_frame(rest));
  }
  // gdb counts from the newest thread down: the main one is last.
  std::reverse(threads.begin(), threads.end());
  return without_empty(std::move(threads));
}

std::vector<ThreadStack> parse_eu_stack(std::string_view text) {
  std::vector<ThreadStack> threads;
  for (const std::string_view line : lines_of(text)) {
    if (line.starts_with("TID "))
      threads.emplace_back();
    else if (const std::string_view rest = after_number(line); !rest.empty())
      add_frame(threads, eu_frame(without_address(rest)));
  }
  return without_empty(std::move(threads));
}

// --- Comparable lines

namespace {

constexpr std::size_t kShownFrames = 32;
constexpr std::size_t kShownNameBytes = 48;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// "pt_autograd_3" -> "pt_autograd_".
std::string without_number(std::string name) {
  while (!name.empty() && is_digit(name.back())) name.pop_back();
  return name.substr(0, kShownNameBytes);
}

// "0x7f12ab" -> "0x?".
std::string without_addresses(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size();) {
    plain += text[i];
    const bool is_address =
        text[i] == '0' && i + 2 < text.size() && text[i + 1] == 'x' && is_hex(text[i + 2]);
    ++i;
    if (!is_address) continue;
    plain += "x?";
    ++i;
    while (i < text.size() && is_hex(text[i])) ++i;
  }
  return plain;
}

std::vector<std::string> thread_lines(const ThreadStack& thread) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < thread.frames.size(); ++i) {
    if (lines.size() == kShownFrames) {
      lines.push_back("    ... " + std::to_string(thread.frames.size() - i) + " more");
      break;
    }
    const std::string line = "    " + without_addresses(thread.frames[i]);
    // Recursion, and the nameless frames of programs without symbols.
    if (lines.empty() || line != lines.back()) lines.push_back(line);
  }
  return lines;
}

using Counted = std::vector<std::pair<std::vector<std::string>, int>>;  // lines, how often

void count(Counted& list, std::vector<std::string> lines) {
  const auto same = std::find_if(list.begin(), list.end(),
                                 [&lines](const auto& each) { return each.first == lines; });
  if (same != list.end())
    ++same->second;
  else
    list.emplace_back(std::move(lines), 1);
}

// Threads that wait for work in most programs. A debugger shows when they do something else.
bool is_idle(const std::string& name, const ThreadStack& thread) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"cuda-EvtHandlr", "pt_autograd_", "pt_nccl_", "pt_tcpstore"});
  const bool is_known = name == "cuda" || std::any_of(kNames.begin(), kNames.end(), [&](auto each) {
                          return name.starts_with(each);
                        });
  return is_known && thread.frames.size() == 1 && thread.frames.front().starts_with("sleeping");
}

using Names = std::map<std::string, int>;  // of threads, with the number of each

// "  threads gloo, python, and 3 alike".
std::string thread_head(const Names& names) {
  std::string text;
  int alike = 0;
  for (const auto& [name, times] : names) {
    if (!name.empty()) text += (text.empty() ? " " : ", ") + name;
    alike += times - 1;
  }
  if (alike > 0) text += ", and " + std::to_string(alike) + " alike";
  return (names.size() > 1 ? "  threads" : "  thread") + text;
}

std::vector<std::string> process_lines(const ProcessStacks& process) {
  const bool is_odd = process.state != "running" && process.state != "sleeping";
  std::vector<std::string> lines{"process " + process.name.substr(0, kShownNameBytes) +
                                 (is_odd && !process.state.empty() ? ", " + process.state : "")};
  const auto& threads = process.threads;
  const auto python_main =
      std::find_if(threads.begin(), threads.end(),
                   [](const ThreadStack& thread) { return thread.name == "MainThread"; });
  const auto main = python_main != threads.end() ? python_main : threads.begin();
  // Threads come in the order in which they were made, which differs from rank to rank.
  Names first;
  std::map<std::vector<std::string>, Names> others;  // by their frames
  Names idle;
  for (const ThreadStack& thread : threads) {
    const std::string name = without_number(thread.name);
    std::vector<std::string> frames = thread_lines(thread);
    if (name == without_number(main->name) && frames == thread_lines(*main))
      ++first[name];
    else if (is_idle(name, thread))
      ++idle[name];
    else
      ++others[std::move(frames)][name];
  }
  const auto add = [&lines](const Names& names, const std::vector<std::string>& frames) {
    lines.push_back(thread_head(names));
    lines.insert(lines.end(), frames.begin(), frames.end());
  };
  if (!first.empty()) add(first, thread_lines(*main));
  for (const auto& [frames, names] : others) add(names, frames);
  if (!idle.empty()) lines.push_back(thread_head(idle) + ": idle");
  return lines;
}

}  // namespace

std::vector<std::string> stack_lines(const std::vector<ProcessStacks>& processes) {
  Counted counted;
  for (const ProcessStacks& process : processes) count(counted, process_lines(process));
  if (counted.size() > 2) std::sort(counted.begin() + 1, counted.end());
  std::vector<std::string> lines;
  for (auto& [text, times] : counted) {
    if (times > 1) text.front() += ", and " + std::to_string(times - 1) + " alike";
    lines.insert(lines.end(), text.begin(), text.end());
  }
  return lines;
}

std::string sources_of(const std::vector<ProcessStacks>& processes) {
  std::vector<std::string> sources;
  for (const ProcessStacks& process : processes) {
    if (std::find(sources.begin(), sources.end(), process.source) == sources.end())
      sources.push_back(process.source);
  }
  std::sort(sources.begin(), sources.end());
  std::string text;
  for (const std::string& source : sources) text += (text.empty() ? "" : ", ") + source;
  return text;
}

}  // namespace drun::agent
