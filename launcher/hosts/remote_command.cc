#include "launcher/hosts/remote_command.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "launcher/base/version.h"
#include "launcher/base/words.h"

namespace drun::hosts {
namespace {

// One line without ' and !, so that csh and fish parse it as sh does. `exec` leaves no shell
// between sshd and the agent, so ssh exits when the agent does.
constexpr std::string_view kScript =
    "d=$0; [ -x \"$d\" ] || d=$(command -v drun) || { echo \"drun: not found at $0 or on PATH on "
    "this host; install it\" >&2; exit 127; }; exec \"$d\" --from-stdin";

// $1 is the version. The drun on PATH may be a different program.
constexpr std::string_view kLook =
    "v=$1 s= b=; is() { [ -x \"$1\" ] && o=$(\"$1\" --version </dev/null 2>/dev/null) && case $o "
    "in "
    "\"drun $v \"*) ;; \"drun \"*) s=$o; false ;; *) false ;; esac; }; "
    "for d in \"$0\" \"$(command -v drun)\"; do is \"$d\" && exec \"$d\" --from-stdin; done; ";

// `read` consumes no byte beyond the line. Lines before the answer are sent in the agent's protocol
// and ignored.
constexpr std::string_view kAsk =
    "echo \"@drun want $(uname -m)${s:+ $s}\"; "
    "while read -r a b n h; do [ \"$a\" = @drun ] && break; done; "
    "[ \"$b\" = copy ] || { echo \"drun: not found at $0 or on PATH on this host${s:+ in version "
    "$v}, and not copied: $n $h\" >&2; exit 127; }; "
    "f() { echo \"drun: cannot copy drun to this host: $*\" >&2; exit 126; }; ";

// Restores the original umask for the workers. Keeps the four most recently used copies.
constexpr std::string_view kCopy =
    "c=${XDG_CACHE_HOME:-$HOME/.cache}/drun/copies; d=$c/$h/drun; "
    "if [ -x \"$d\" ]; then touch \"$c/$h\"; else u=$(umask); umask 077; "
    "mkdir -p \"$c/$h\" && t=$(mktemp \"$c/$h/XXXXXX\") || f \"cannot write to $c\"; "
    "umask \"$u\"; echo \"@drun send\"; "
    "head -c \"$n\" >\"$t\" && [ \"$(sha256sum <\"$t\")\" = \"$h  -\" ] && chmod 700 \"$t\" && "
    "mv \"$t\" \"$d\" || { rm -f \"$t\"; f \"it is not complete; see whether $c is full\"; }; fi; "
    "\"$d\" --version </dev/null >/dev/null 2>&1 || { e=$(\"$d\" --version </dev/null 2>&1 | "
    "head -n 1); rm -rf \"$c/$h\"; f \"it does not run here: $e; install drun here, or start the "
    "job with the drun of the wheel or the tarball, which needs glibc 2.28 only\"; }; "
    "(cd \"$c\" && ls -t | tail -n +5 | while read -r x; do rm -rf \"./$x\"; done); "
    "echo \"@drun start\"; exec \"$d\" --from-stdin";

}  // namespace

std::string remote_command(const std::string& own_path, bool may_copy) {
  const std::string script =
      may_copy ? std::string(kLook) + std::string(kAsk) + std::string(kCopy) : std::string(kScript);
  return "exec sh -c " + shell_quoted(script) + " " + shell_quoted(own_path) +
         (may_copy ? std::string(" ") + kVersion : "");
}

std::vector<std::string> ssh_command(const HostOptions& options, const HostNode& node,
                                     const std::string& own_path) {
  std::vector<std::string> words{options.ssh};
  words.insert(words.end(), options.ssh_args.begin(), options.ssh_args.end());
  // BatchMode: no one can answer a prompt. ServerAliveInterval: a vanished machine is detected
  // within 30 s. As in scp, ssh_config adds no command and no forwarding. An existing control
  // master is used (ControlPath stays), but none is started: it would end with drun and close the
  // user's sessions that share it.
  words.emplace_back("-T");
  for (const char* option :
       {"BatchMode=yes", "ServerAliveInterval=10", "ControlMaster=no", "RemoteCommand=none",
        "PermitLocalCommand=no", "ClearAllForwardings=yes"}) {
    words.emplace_back("-o");
    words.emplace_back(option);
  }
  words.push_back(node.user.empty() ? node.name : node.user + "@" + node.name);
  words.push_back(remote_command(own_path, !options.copies_nothing));
  return words;
}

namespace {

constexpr std::string_view kMark = "@drun ";
constexpr std::size_t kMostWordBytes = 512;

std::optional<CopyWord> parse_word(std::string_view line) {
  if (line == "send") return CopyRequested{};
  if (line == "start") return CopyStarts{};
  constexpr std::string_view kWant = "want ";
  if (!line.starts_with(kWant)) return std::nullopt;
  line.remove_prefix(kWant.size());
  const std::size_t end = std::min(line.find(' '), line.size());
  CopyWanted wanted{.machine = std::string(line.substr(0, end))};
  if (end < line.size()) wanted.installed = line.substr(end + 1);
  return wanted;
}

// Position of the mark, complete or cut off at the end of `text`.
std::size_t mark_in(std::string_view text) {
  for (std::size_t at = text.find(kMark.front()); at != text.npos;
       at = text.find(kMark.front(), at + 1)) {
    const std::string_view found = text.substr(at, kMark.size());
    if (kMark.starts_with(found)) return at;
  }
  return text.size();
}

}  // namespace

std::string copy_line(std::size_t bytes, std::string_view hash) {
  return "\n@drun copy " + std::to_string(bytes) + " " + std::string(hash) + "\n";
}

std::string refuse_line(std::string_view reason) {
  return "\n@drun refuse " + std::string(reason) + "\n";
}

void CopyWords::take(std::string_view bytes, const Listener& listener) {
  held_ += bytes;
  const std::string text = std::exchange(held_, {});
  std::string_view left = text;
  while (!left.empty()) {
    const std::size_t mark = mark_in(left);
    if (mark > 0) listener.on_text(left.substr(0, mark));
    left.remove_prefix(mark);
    if (left.empty()) return;
    const std::size_t end = left.find('\n');
    if (end == left.npos && left.size() < kMostWordBytes) {
      held_ = left;
      return;
    }
    const std::optional<CopyWord> word =
        end == left.npos || left.size() <= kMark.size()
            ? std::nullopt
            : parse_word(left.substr(kMark.size(), end - kMark.size()));
    const std::size_t taken = word ? end + 1 : 1;
    if (word)
      listener.on_word(*word);
    else
      listener.on_text(left.substr(0, taken));
    left.remove_prefix(taken);
  }
}

void CopyWords::end_of_stream(const Listener& listener) {
  const std::string text = std::exchange(held_, {});
  if (!text.empty()) listener.on_text(text);
}

}  // namespace drun::hosts
