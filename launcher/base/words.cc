#include "launcher/base/words.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <numeric>
#include <vector>

#include "launcher/base/text.h"

namespace drun {
namespace {

// Size of a color or style sequence ("\x1b[1;31m") at the front, or 0.
std::size_t style_size(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find_first_not_of("0123456789;:", 2);
  return end != text.npos && text[end] == 'm' ? end + 1 : 0;
}

// Whether a shell reads the character as it is.
bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:,@%+").find(c) != std::string_view::npos;
}

}  // namespace

std::string short_run_id(const std::string& id) {
  constexpr std::size_t kRandomDigits = 32;
  constexpr std::size_t kShortDigits = 8;
  const bool is_random =
      id.size() == kRandomDigits && id.find_first_not_of("0123456789abcdef") == id.npos;
  return is_random ? id.substr(0, kShortDigits) : id;
}

std::string job_size(int workers, int nodes) {
  return counted(workers, "worker") + " on " + counted(nodes, "node");
}

std::string in_words(std::chrono::milliseconds duration) {
  const long long ms = duration.count() < 0 ? 0 : duration.count();
  const long long seconds = ms / 1000;
  if (seconds < 10)
    return std::to_string(seconds) + "." + std::to_string(1000 + ms % 1000).substr(1) + " s";
  if (seconds < 60) return std::to_string(seconds) + "." + std::to_string(ms % 1000 / 100) + " s";
  if (seconds < 3600)
    return std::to_string(seconds / 60) + " min " + std::to_string(seconds % 60) + " s";
  return std::to_string(seconds / 3600) + " h " + std::to_string(seconds % 3600 / 60) + " min";
}

std::string painted(std::string_view color, std::string_view text, bool has_color) {
  if (!has_color) return std::string(text);
  return "\x1b[" + std::string(color) + "m" + std::string(text) + "\x1b[0m";
}

std::string in_words(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  return in_words(
      std::chrono::milliseconds(static_cast<long long>(std::min(seconds, 1e12) * 1000)));
}

std::string how_it_ended(const Failure& failure) {
  const Killed* killed = std::get_if<Killed>(&failure.status);
  if (!failure.injected.empty())
    return (failure.out_of_memory ? "out of memory (" + to_string(failure.status) + ")"
                                  : to_string(failure.status)) +
           ", injected by --inject (" + failure.injected + ")";
  if (failure.out_of_memory)
    return "out of memory: killed by the kernel (" + to_string(failure.status) + ")";
  const bool is_from_outside =
      killed != nullptr && (killed->signal == SIGKILL || killed->signal == SIGTERM);
  return to_string(failure.status) + (is_from_outside ? ", not sent by drun" : "");
}

std::string verb_phrase(const Failure& failure) {
  if (failure.out_of_memory) return "was killed by the kernel: out of memory";
  if (const auto* exited = std::get_if<Exited>(&failure.status))
    return "exited with code " + std::to_string(exited->code);
  if (std::holds_alternative<Killed>(failure.status))
    return "was killed by " + how_it_ended(failure);
  if (const auto* not_started = std::get_if<NotStarted>(&failure.status)) {
    // EIO stands for an error that has no errno; the message has the reason.
    if (not_started->error_number == EIO && !failure.message.empty()) return "could not be started";
    std::string text = to_string(failure.status);
    return "could not be started" + text.substr(std::min(text.find(':'), text.size()));
  }
  return to_string(failure.status);
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above + 1, row[j - 1] + 1, replaced});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::size_t control_size(std::string_view line) {
  const auto byte = [line](std::size_t at) {
    return at < line.size() ? static_cast<unsigned char>(line[at]) : 0U;
  };
  if ((byte(0) < 0x20 && byte(0) != '\t') || byte(0) == 0x7f) return 1;
  if (byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0) return 2;  // U+0080 to U+009F
  // Those that change the direction of text: U+202A to U+202E, U+2066 to U+2069.
  const bool is_direction = (byte(1) == 0x80 && byte(2) >= 0xaa && byte(2) <= 0xae) ||
                            (byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9);
  return byte(0) == 0xe2 && is_direction ? 3 : 0;
}

std::string printable(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  if (const std::size_t painted = line.rfind('\r'); painted != line.npos)
    line.remove_prefix(painted + 1);
  std::string text;
  while (!line.empty()) {
    if (const std::size_t size = style_size(line); size > 0) {
      line.remove_prefix(size);
      continue;
    }
    const std::size_t control = control_size(line);
    if (control == 0) text += line[0];
    for (const char c : line.substr(0, control)) {
      char shown[8];
      std::snprintf(shown, sizeof(shown), "\\x%02x", static_cast<unsigned char>(c));
      text += shown;
    }
    line.remove_prefix(std::max<std::size_t>(control, 1));
  }
  return text;
}

std::string shell_quoted(std::string_view text) {
  const bool is_option = text.starts_with('-');  // --name=value; elsewhere = may be an assignment
  const auto is_harmless = [&](char c) { return is_plain(c) || (c == '=' && is_option); };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_harmless)) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string shell_quoted(const std::vector<std::string>& words) {
  return joined(words, " ", [](std::string_view word) { return shell_quoted(word); });
}

}  // namespace drun
