#include "tests/support/slurm_cluster.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "tests/support/catch.h"

namespace drun::testing {
namespace {

constexpr int kNodes = 3;
constexpr int kNodesWithGpus = 2;
constexpr int kGpus = 4;

std::string host_name() {
  const std::string name = run(Launch{.argv = {"hostname", "-s"}}, 10s).out;
  return name.substr(0, name.find('\n'));
}

// "slurm-wlm 24.11.5" -> 24.
int major_version() {
  const std::string text = run(Launch{.argv = {"slurmctld", "-V"}}, 10s).out;
  const std::size_t blank = text.find(' ');
  return blank == text.npos ? 0 : std::atoi(text.c_str() + blank);
}

std::string name_of(int node) { return "node0" + std::to_string(node + 1); }

}  // namespace

SlurmCluster::SlurmCluster(bool has_names) {
  why_not_ = what_is_missing();
  if (!why_not_.empty()) return;
  has_gpus_ = make_gpus();
  configure(has_names);
  const std::string place = directory_.path() + "/";
  start("munged", "exec munged --foreground --force --socket=" + place + "munge --key-file=" +
                      place + "key --pid-file=" + place + "munged.pid --log-file=" + place +
                      "munged.log --seed-file=" + place + "seed");
  start("slurmctld", "exec slurmctld -D");
  for (int node = 0; node < kNodes; ++node) {
    start(name_of(node), "exec unshare -m sh -c 'mount --bind " + place +
                             "hosts /etc/hosts && exec slurmd -D -N " + name_of(node) + "'");
  }
  if (eventually([this] { return has_idle_nodes(); }, 60s)) return;
  why_not_ = "Slurm's nodes do not become idle: " + read_file(place + "slurmctld.out") +
             read_file(place + "node01.out");
}

SlurmCluster::~SlurmCluster() {
  if (why_not_.empty()) {
    run({"scancel", "--signal=KILL", "--full", "--user=root"}, 20s);
    run({"scancel", "--user=root"}, 20s);
    eventually([this] { return run({"squeue", "--noheader"}, 20s).out.empty(); }, 30s);
  }
  while (!daemons_.empty()) {
    daemons_.back()->signal(SIGTERM);
    daemons_.back()->wait(20s);
    daemons_.pop_back();
  }
}

Launch SlurmCluster::launch(const Words& argv) const {
  Launch launch = job({}, {});
  launch.argv = argv;
  launch.environment["SLURM_CONF"] = directory_.file("slurm.conf");
  return launch;
}

Ended SlurmCluster::run(const Words& argv, std::chrono::milliseconds at_most) const {
  return testing::run(launch(argv), at_most);
}

std::string SlurmCluster::what_is_missing() const {
  if (geteuid() != 0) return "a Slurm of one's own needs root";
  for (const char* program : {"munged", "slurmctld", "slurmd", "srun", "unshare", "hostname"}) {
    const Words argv = {"sh", "-c", "command -v \"$0\" >/dev/null", program};
    if (testing::run(Launch{.argv = argv}, 10s).code != 0)
      return std::string("no ") + program + " (slurm-wlm, munge)";
  }
  const Words argv = {"unshare", "-m", "mount", "--bind", "/etc/hosts", "/etc/hosts"};
  if (testing::run(Launch{.argv = argv}, 10s).code != 0) return "no mount namespaces here";
  return "";
}

// Slurm requires a device for each GPU: these are device nodes equal to /dev/null.
bool SlurmCluster::make_gpus() const {
  for (int gpu = 0; gpu < kGpus; ++gpu) {
    const std::string device = directory_.file("gpu" + std::to_string(gpu));
    if (mknod(device.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0) return false;
  }
  write_file(directory_.file("gres.conf"), "NodeName=node0[1-" + std::to_string(kNodesWithGpus) +
                                               "] Name=gpu File=" + directory_.file("gpu") + "[0-" +
                                               std::to_string(kGpus - 1) + "]\n");
  return true;
}

void SlurmCluster::configure(bool has_names) const {
  const std::string place = directory_.path() + "/";
  const std::string host = host_name();
  mkdir((place + "state").c_str(), 0700);
  write_file(place + "hosts",
             "127.0.0.1 localhost " + host + (has_names ? " node01 node02 node03\n" : "\n"));
  write_file(place + "key", std::string(128, 'k') + std::to_string(getpid()));
  chmod((place + "key").c_str(), 0600);
  const int first_reserved = test::take_port_block().first;
  std::string text =
      "ClusterName=drun\nSlurmctldHost=" + host +
      "(127.0.0.1)\nSlurmctldPort=" + std::to_string(free_port()) +
      "\nAuthType=auth/munge\nAuthInfo=socket=" + place +
      "munge\nCredType=cred/munge\nSlurmUser=root\nProctrackType=proctrack/linuxproc\n"
      "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n"
      "SlurmdParameters=config_overrides\nReturnToService=2\nRequeueExit=85\nKillWait=5\n"
      "MpiParams=ports=" +
      std::to_string(first_reserved) + "-" +
      std::to_string(first_reserved + test::PortBlock::kSize - 1) + "\nStateSaveLocation=" + place +
      "state\nSlurmdSpoolDir=" + place + "spool-%n\nSlurmdPidFile=" + place +
      "slurmd-%n.pid\nSlurmctldPidFile=" + place +
      "slurmctld.pid\nPartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n";
  if (has_gpus_) text += "GresTypes=gpu\n";
  for (int node = 0; node < kNodes; ++node) {
    text += "NodeName=" + name_of(node) + " NodeHostname=" + host +
            " NodeAddr=127.0.0.1 Port=" + std::to_string(free_port()) + " CPUs=8" +
            (has_gpus_ && node < kNodesWithGpus ? " Gres=gpu:" + std::to_string(kGpus) : "") + "\n";
  }
  write_file(place + "slurm.conf", text);
  // By default Slurm requires a control group. Versions before 23 only look for one.
  if (major_version() >= 23) write_file(place + "cgroup.conf", "CgroupPlugin=disabled\n");
}

// The daemons write to files, because nothing reads a pipe.
void SlurmCluster::start(const std::string& name, const std::string& command) {
  const std::string place = directory_.file(name + ".out");
  daemons_.push_back(
      std::make_unique<Running>(launch({"sh", "-c", "exec >" + place + " 2>&1; " + command})));
}

bool SlurmCluster::has_idle_nodes() const {
  return run({"sinfo", "--noheader", "--Node", "--format=%T"}, 20s).out == "idle\nidle\nidle\n";
}

bool is_there(const SlurmCluster& slurm) {
  if (!slurm.why_not().empty()) WARN("skipped: no Slurm: " << slurm.why_not());
  return slurm.why_not().empty();
}

}  // namespace drun::testing
