#include "tests/support/ssh_hosts.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "tests/support/catch.h"

namespace drun::testing {
namespace {

std::string number(int host) { return std::to_string(host + 1); }
std::string address(int host) { return "10.78.0." + number(host); }

}  // namespace

SshHosts::SshHosts(const std::array<std::string, kHosts>& preparations)
    : name_("drunssh" + std::to_string(getpid())) {
  why_not_ = what_is_missing();
  if (!why_not_.empty()) return;
  if (!connect() || !configure()) return;
  for (int host = 0; host < kHosts; ++host)
    start_sshd(host, preparations[static_cast<std::size_t>(host)]);
  if (eventually([this] { return can_log_in(); }, 30s)) {
    why_not_.clear();
    return;
  }
  why_not_ += read_file(directory_.file("sshd1.out"));
}

SshHosts::~SshHosts() {
  for (int host = 0; host < kHosts; ++host) {
    for (const int pid : left_on(host)) kill(pid, SIGKILL);
    stop_sshd(host);
    shell("ip netns del " + space(host));
  }
  shell("ip netns del " + name_ + "s");
}

std::string SshHosts::what_is_missing() {
  if (geteuid() != 0) return "an sshd of one's own needs root";
  for (const char* program : {"sshd", "ssh", "ssh-keygen", "ip", "unshare", "hostname"}) {
    if (!shell(std::string("PATH=$PATH:/usr/sbin command -v ") + program + " >/dev/null"))
      return std::string("no ") + program + " (openssh-server, openssh-client, iproute2)";
  }
  return "";
}

bool SshHosts::shell(const std::string& script) {
  const Ended ended = testing::run(Launch{.argv = {"sh", "-c", script}}, 20s);
  if (ended.code != 0) why_not_ = script + ": " + ended.err;
  return ended.code == 0;
}

// Creates a bridge in a separate namespace, from which jobs are started, and a link to each host.
bool SshHosts::connect() {
  const std::string hub = name_ + "s";
  bool is_up = shell("ip netns add " + hub + " && ip -n " + hub + " link set lo up && ip -n " +
                     hub + " link add br0 type bridge && ip -n " + hub +
                     " addr add 10.78.0.254/24 dev br0 && ip -n " + hub + " link set br0 up");
  for (int host = 0; host < kHosts && is_up; ++host) {
    const std::string wire = "v" + number(host);
    const std::string own = space(host);
    is_up = shell("ip netns add " + own + " && ip -n " + hub + " link add " + wire +
                  " type veth peer name eth0 netns " + own + " && ip -n " + hub + " link set " +
                  wire + " master br0 up && ip -n " + own + " addr add " + address(host) +
                  "/24 dev eth0 && ip -n " + own + " link set eth0 up && ip -n " + own +
                  " link set lo up");
  }
  return is_up;
}

bool SshHosts::configure() {
  const std::string place = directory_.path() + "/";
  if (!shell("ssh-keygen -q -t ed25519 -N '' -f " + place +
             "key && ssh-keygen -q -t ed25519 -N '' -f " + place + "host_key"))
    return false;
  std::string hosts = "127.0.0.1 localhost\n";
  std::string known;
  const std::string host_key = read_file(place + "host_key.pub");
  for (int host = 0; host < kHosts; ++host) {
    hosts += address(host) + " node" + number(host) + "\n";
    known += "node" + number(host) + " " + host_key;
    write_file(place + "authorized" + number(host), read_file(place + "key.pub"));
    write_file(place + "sshd" + number(host),
               "ListenAddress " + address(host) + "\nPort 22\nHostKey " + place +
                   "host_key\nPidFile none\nAuthorizedKeysFile " + place + "authorized" +
                   number(host) +
                   "\nStrictModes no\nUsePAM no\nMaxStartups 200\nPermitRootLogin yes\n"
                   "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPrintMotd no\n"
                   // the shell startup files of this machine's user must not affect the test
                   "SetEnv HOME=" +
                   place + "\n");
  }
  write_file(place + "hosts", hosts);
  write_file(place + "known", known);
  write_file(place + "ssh_config", "Host *\n  User root\n  IdentityFile " + place +
                                       "key\n  IdentitiesOnly yes\n  UserKnownHostsFile " + place +
                                       "known\n  StrictHostKeyChecking yes\n");
  return true;
}

// `ip netns exec` also creates a mount namespace.
void SshHosts::start_sshd(int host, const std::string& preparation) {
  const std::string place = directory_.path() + "/";
  const std::string script =
      "exec >" + place + "sshd" + number(host) + ".out 2>&1; mount --bind " + place +
      "hosts /etc/hosts && mount -t tmpfs none /run && mkdir /run/sshd && hostname node" +
      number(host) + " && " + (preparation.empty() ? "true" : preparation) +
      " && exec $(PATH=$PATH:/usr/sbin command -v sshd) -D -e -f " + place + "sshd" + number(host);
  daemons_[static_cast<std::size_t>(host)] = std::make_unique<Running>(
      Launch{.argv = {"ip", "netns", "exec", space(host), "unshare", "-u", "sh", "-c", script}});
}

bool SshHosts::can_log_in() {
  for (int host = 0; host < kHosts; ++host) {
    Launch login = launch({}, {});
    login.argv.resize(login.argv.size() - 3);  // without drun and its options
    const Words words = {"ssh", "-F", directory_.file("ssh_config"), "node" + number(host), "true"};
    login.argv.insert(login.argv.end(), words.begin(), words.end());
    const Ended ended = testing::run(login, 20s);
    if (ended.code == 0) continue;
    why_not_ = "no login on node" + number(host) + ": " + ended.err;
    return false;
  }
  return true;
}

Launch SshHosts::launch(const Words& options, const Words& program) const {
  Launch launch = job({}, {});
  launch.argv = Words{"ip",
                      "netns",
                      "exec",
                      name_ + "s",
                      "sh",
                      "-c",
                      "mount --bind " + directory_.file("hosts") + " /etc/hosts && exec \"$@\"",
                      "sh",
                      drun_program(),
                      "--ssh-args",
                      "-F " + directory_.file("ssh_config")} +
                options + program;
  launch.directory = directory_.path();
  return launch;
}

Ended SshHosts::run(const Words& options, const Words& program) const {
  return testing::run(launch(options, program), 60s);
}

void SshHosts::stop_sshd(int host) {
  auto& daemon = daemons_[static_cast<std::size_t>(host)];
  if (!daemon) return;
  daemon->signal(SIGTERM);
  daemon->wait(10s);
  daemon.reset();
}

void SshHosts::forget_key(int host) const {
  write_file(directory_.file("authorized" + number(host)), "");
}

void SshHosts::cut_cable(int host) {
  shell("ip -n " + name_ + "s link set v" + number(host) + " down");
}

void SshHosts::know_by_aliases(bool has_jump) {
  write_file(directory_.file("hosts"), "127.0.0.1 localhost\n");
  std::string config;
  for (int host = 0; host < kHosts; ++host) {
    const bool jumps = has_jump && host > 0;
    config += "Host host" + number(host) + "\n  HostName " + address(host) +
              "\n  HostKeyAlias node" + number(host) + "\n" + (jumps ? "  ProxyJump host1\n" : "");
    if (jumps && !shell("ip -n " + name_ + "s route add unreachable " + address(host)))
      FAIL(why_not_);
  }
  const std::string place = directory_.file("ssh_config");
  write_file(place, config + read_file(place));
}

void SshHosts::separate_hosts() {
  for (int host = 0; host < kHosts; ++host) {
    if (!shell("ip -n " + name_ + "s link set v" + number(host) + " type bridge_slave isolated on"))
      FAIL(why_not_);
  }
}

void SshHosts::add_network() {
  const std::string hub = name_ + "s";
  bool is_up =
      shell("ip -n " + hub + " link add br1 type bridge && ip -n " + hub + " link set br1 up");
  for (int host = 0; host < kHosts && is_up; ++host) {
    const std::string wire = "w" + number(host);
    const std::string own = space(host);
    is_up = shell("ip -n " + hub + " link add " + wire + " type veth peer name eth1 netns " + own +
                  " && ip -n " + hub + " link set " + wire + " master br1 up && ip -n " + own +
                  " addr add 10.79.0." + number(host) + "/24 dev eth1 && ip -n " + own +
                  " link set eth1 up");
  }
  if (!is_up) FAIL(why_not_);
}

std::vector<int> SshHosts::left_on(int host) const {
  const Ended ended = testing::run(Launch{.argv = {"ip", "netns", "pids", space(host)}}, 10s);
  std::istringstream pids(ended.out);
  const auto& daemon = daemons_[static_cast<std::size_t>(host)];
  std::vector<int> left;
  for (int pid = 0; pids >> pid;)
    if (!daemon || pid != daemon->pid()) left.push_back(pid);
  return left;
}

bool SshHosts::are_empty() const {
  for (int host = 0; host < kHosts; ++host)
    if (!left_on(host).empty()) return false;
  return true;
}

bool is_there(const SshHosts& hosts) {
  if (!hosts.why_not().empty()) WARN("skipped: no sshd of the test's own: " << hosts.why_not());
  return hosts.why_not().empty();
}

}  // namespace drun::testing
