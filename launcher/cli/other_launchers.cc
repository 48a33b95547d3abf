#include "launcher/cli/other_launchers.h"

#include <algorithm>
#include <array>
#include <string>

namespace drun {
namespace {

struct Counterpart {
  std::string_view name;  // without dashes in front
  std::string_view here;
};

constexpr std::string_view kDirectory = "start drun there: cd DIR && drun ...";
constexpr std::string_view kPerNode = "here that is --nproc-per-node=N";
constexpr std::string_view kLabels = "here that is --output=labelled";
constexpr std::string_view kFile = "here that is --hostfile=FILE";
constexpr std::string_view kInherited =
    "workers inherit all of it; for other hosts name each with -x NAME";
constexpr std::string_view kRanksFollowHosts =
    "ranks are consecutive on each host; --map-by says how many each has";
constexpr std::string_view kSeen = "--dry-run shows it, leave it out";

constexpr std::array kCounterparts = std::to_array<Counterpart>({
    // mpirun
    {"wdir", kDirectory},
    {"wd", kDirectory},
    {"N", "here that is --nproc-per-node=N (mpirun's) or --nnodes=N (srun's)"},
    {"npernode", kPerNode},
    {"ppn", kPerNode},
    {"perhost", kPerNode},
    {"tag-output", kLabels},
    {"timestamp-output", "here that is --timestamps"},
    {"output-filename", "here that is --redirects=3 --log-dir=DIR, or --tee=3 for both"},
    {"report-bindings", kSeen},
    {"display-map", kSeen},
    {"display-allocation", kSeen},
    {"rank-by", kRanksFollowHosts},
    {"ranks-by", kRanksFollowHosts},
    {"bynode", "here that is --map-by=node"},
    {"byslot", "here that is --map-by=slot"},
    {"cpus-per-proc", "here that is --bind-to=core, or --omp-threads=N"},
    {"prefix", "drun has to be in the same place on all hosts; leave it out"},
    {"tune", "say what it sets with --mca or -x"},
    {"am", "say what it sets with --mca or -x"},
    // Hydra
    {"genv", "here that is -x NAME=VALUE"},
    {"env", "here that is -x NAME=VALUE"},
    {"genvall", kInherited},
    {"envall", kInherited},
    {"genvlist", "here that is -x NAME for each"},
    {"envlist", "here that is -x NAME for each"},
    {"f", kFile},
    {"prepend-rank", kLabels},
    {"l", kLabels},
    {"launcher", "without an engine it is ssh; --ssh names another program"},
    {"rsh-agent", "here that is --ssh=PROGRAM"},
    // srun
    {"nodes", "here that is --nnodes=N"},
    {"ntasks", "here that is --np=N"},
    {"ntasks-per-node", kPerNode},
    {"nodelist", "here that is --hosts=LIST"},
    {"gpus-per-task", "here that is --gpus-per-worker=N"},
    {"cpu-bind", "here that is --bind-to=core"},
    {"label", kLabels},
    {"chdir", kDirectory},
    // deepspeed, accelerate, horovodrun
    {"num-gpus", kPerNode},
    {"num-nodes", "here that is --nnodes=N"},
    {"num-processes", "here that is --np=N"},
    {"num-machines", "here that is --nnodes=N"},
    {"machine-rank", "here that is --node-rank=N"},
    {"main-process-ip", "here that is --master-addr=HOST"},
    {"main-process-port", "here that is --master-port=P"},
    {"ssh-port", "here that is --ssh-args='-p P'"},
    {"min-np", "here that is --nnodes=MIN:MAX"},
    {"max-np", "here that is --nnodes=MIN:MAX"},
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
