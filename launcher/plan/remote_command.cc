#include "launcher/plan/remote_command.h"

#include "launcher/base/words.h"

namespace drun::hosts {
namespace {

// Without ' and !, so that csh and fish read it as sh does. `exec` keeps no shell between sshd and
// the agent, whose end is then ssh's end.
constexpr std::string_view kScript =
    "d=$0; [ -x \"$d\" ] || d=$(command -v drun) || { echo \"drun: not found at $0 or on PATH on "
    "this host; install it\" >&2; exit 127; }; exec \"$d\" --from-stdin";

}  // namespace

std::string remote_command(const std::string& own_path) {
  return "exec sh -c " + shell_quoted(kScript) + " " + shell_quoted(own_path);
}

std::vector<std::string> ssh_command(const HostOptions& options, const HostNode& node,
                                     const std::string& own_path) {
  std::vector<std::string> words{options.ssh};
  words.insert(words.end(), options.ssh_args.begin(), options.ssh_args.end());
  // Nobody is there to be asked, and a machine that vanished is noticed within half a minute. As
  // scp does it, ssh_config adds no command and no forwarding. A master that is already there is
  // used: ControlPath stays. None is started, as it would die with drun, and with it the user's own
  // sessions that share it by then.
  words.emplace_back("-T");
  for (const char* option :
       {"BatchMode=yes", "ServerAliveInterval=10", "ControlMaster=no", "RemoteCommand=none",
        "PermitLocalCommand=no", "ClearAllForwardings=yes"}) {
    words.emplace_back("-o");
    words.emplace_back(option);
  }
  words.push_back(node.user.empty() ? node.name : node.user + "@" + node.name);
  words.push_back(remote_command(own_path));
  return words;
}

}  // namespace drun::hosts
