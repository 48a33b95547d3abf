#include "agent/stacks/stack_lines.h"

#include <algorithm>
#include <utility>

namespace drun::agent {
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

std::vector<std::string> process_lines(const ProcessStacks& process) {
  const bool is_odd = process.state != "running" && process.state != "sleeping";
  std::vector<std::string> lines{"process " + process.name.substr(0, kShownNameBytes) +
                                 (is_odd && !process.state.empty() ? ", " + process.state : "")};
  Counted threads;
  for (const ThreadStack& thread : process.threads) {
    std::vector<std::string> each = thread_lines(thread);
    const std::string name = without_number(thread.name);
    each.insert(each.begin(), name.empty() ? "  thread" : "  thread " + name);
    count(threads, std::move(each));
  }
  // Threads come in the order in which they were made, which differs from rank to rank.
  if (threads.size() > 2) std::sort(threads.begin() + 1, threads.end());
  for (auto& [text, times] : threads) {
    if (times > 1) text.front() += ", and " + std::to_string(times - 1) + " alike";
    lines.insert(lines.end(), text.begin(), text.end());
  }
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
