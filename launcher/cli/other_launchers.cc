#include "launcher/cli/other_launchers.h"

#include <algorithm>
#include <array>
#include <string>

namespace drun {
namespace {

struct Counterpart {
  std::string_view name;  // without leading dashes
  std::string_view here;
};

constexpr std::string_view kDirectory = "start drun in that directory: cd DIR && drun ...";
constexpr std::string_view kPerNode = "use --nproc-per-node=N";
constexpr std::string_view kLabels = "use --output=labelled";
constexpr std::string_view kFile = "use --hostfile=FILE";
constexpr std::string_view kInherited =
    "workers inherit all variables; on other hosts, pass each one with -x NAME";
constexpr std::string_view kRanksFollowHosts =
    "ranks are consecutive on each host; --map-by sets how many each host has";
constexpr std::string_view kSeen = "--dry-run shows this; remove the option";

constexpr std::array kCounterparts = std::to_array<Counterpart>({
    // mpirun
    {"wdir", kDirectory},
    {"wd", kDirectory},
    {"N", "use --nproc-per-node=N (mpirun's) or --nnodes=N (srun's)"},
    {"npernode", kPerNode},
    {"ppn", kPerNode},
    {"perhost", kPerNode},
    {"tag-output", kLabels},
    {"timestamp-output", "use --timestamps"},
    {"output-filename", "use --redirects=3 --log-dir=DIR, or --tee=3 for both"},
    {"report-bindings", kSeen},
    {"display-map", kSeen},
    {"display-allocation", kSeen},
    {"rank-by", kRanksFollowHosts},
    {"ranks-by", kRanksFollowHosts},
    {"bynode", "use --map-by=node"},
    {"byslot", "use --map-by=slot"},
    {"cpus-per-proc", "use --bind-to=core, or --omp-threads=N"},
    {"prefix", "drun must be at the same path on all hosts; remove the option"},
    {"tune", "set its values with --mca or -x"},
    {"am", "set its values with --mca or -x"},
    // Hydra
    {"genv", "use -x NAME=VALUE"},
    {"env", "use -x NAME=VALUE"},
    {"genvall", kInherited},
    {"envall", kInherited},
    {"genvlist", "use -x NAME for each"},
    {"envlist", "use -x NAME for each"},
    {"f", kFile},
    {"prepend-rank", kLabels},
    {"l", kLabels},
    {"launcher", "drun uses ssh; --ssh selects another program"},
    {"rsh-agent", "use --ssh=PROGRAM"},
    // srun
    {"nodes", "use --nnodes=N"},
    {"ntasks", "use --np=N"},
    {"ntasks-per-node", kPerNode},
    {"nodelist", "use --hosts=LIST"},
    {"gpus-per-task", "use --gpus-per-worker=N"},
    {"cpu-bind", "use --bind-to=core"},
    {"label", kLabels},
    {"chdir", kDirectory},
    // deepspeed, accelerate, horovodrun
    {"num-gpus", kPerNode},
    {"num-nodes", "use --nnodes=N"},
    {"num-processes", "use --np=N"},
    {"num-machines", "use --nnodes=N"},
    {"machine-rank", "use --node-rank=N"},
    {"main-process-ip", "use --master-addr=HOST"},
    {"main-process-port", "use --master-port=P"},
    {"ssh-port", "use --ssh-args='-p P'"},
    {"min-np", "use --nnodes=MIN:MAX"},
    {"max-np", "use --nnodes=MIN:MAX"},
});

}  // namespace

std::string_view counterpart(std::string_view option) {
  option.remove_prefix(std::min(option.find_first_not_of('-'), option.size()));
  std::string name(option);
  std::replace(name.begin(), name.end(), '_', '-');
  const auto* const found = std::find_if(kCounterparts.begin(), kCounterparts.end(),
                                         [&name](const auto& each) { return each.name == name; });
  return found == kCounterparts.end() ? std::string_view() : found->here;
}

}  // namespace drun
