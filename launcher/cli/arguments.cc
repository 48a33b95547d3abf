#include "launcher/cli/arguments.h"

#include <algorithm>
#include <array>

#include "launcher/base/words.h"

namespace drun {
namespace {

using Found = std::vector<const OptionSyntax*>;

Error usage(std::string message) { return Error{ErrorCode::Usage, std::move(message)}; }

bool is_negative_number(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && word.find_first_not_of("0123456789.", 1) == word.npos;
}

// A word with a blank is a value, as in argparse: --ssh-args '-p 2222'.
bool looks_like_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && !is_negative_number(word) &&
         word.find(' ') == word.npos;
}

// Parses the words up to the program.
class Splitter {
 public:
  Splitter(std::span<const std::string> words, std::span<const OptionSyntax> known,
           Operands operands)
      : words_(words), known_(known), operands_(operands) {}

  Result<Arguments> run() {
    while (!words_.empty()) {
      const std::string_view word = words_.front();
      if (word == "--") {
        words_ = words_.subspan(1);
        break;
      }
      const bool is_option = word.size() > 1 && word[0] == '-';
      if (!is_option && operands_ == Operands::Program) break;
      words_ = words_.subspan(1);
      if (!is_option) {
        result_.operands.emplace_back(word);
        continue;
      }
      const Result<void> read = option(word);
      if (!read) return read.error();
    }
    if (operands_ == Operands::Anywhere) {
      result_.operands.insert(result_.operands.end(), words_.begin(), words_.end());
    } else if (!words_.empty()) {
      result_.program = words_.front();
      result_.program_arguments.assign(words_.begin() + 1, words_.end());
    }
    return std::move(result_);
  }

 private:
  Result<void> option(std::string_view word) {
    if (word[1] == '-' || has_one_dash(word)) return long_option(word);
    // Reject mpirun's -npernode instead of parsing it as -n with the value "pernode".
    if (word.size() > 2 && !counterpart(word).empty()) return unknown(word, "");
    return letters(word);
  }

  Result<void> long_option(std::string_view word) {
    const std::size_t equals = word.find('=');
    const std::string dash = word[1] == '-' ? "" : "-";
    const std::string name = dashed(dash + std::string(word.substr(0, equals)));
    const Found found = options_named(name, known_);
    if (found.empty()) return unknown(word.substr(0, equals), name);
    if (found.size() > 1) return ambiguous(word.substr(0, equals), found);
    const OptionSyntax& option = *found[0];
    if (equals == word.npos) return add(option, word);
    if (option.value == OptionSyntax::Value::None) {
      return usage(std::string(word) + ": " + std::string(option.name) + " takes no value");
    }
    result_.options.push_back({std::string(option.name), std::string(word.substr(equals + 1))});
    return {};
  }

  bool has_one_dash(std::string_view word) const {
    const std::string name = dashed("-" + std::string(word));
    return std::any_of(known_.begin(), known_.end(), [&name](const OptionSyntax& each) {
      return each.may_have_one_dash && each.name == name;
    });
  }

  // -r3, -r=3, -r 3, -m, -mr3.
  Result<void> letters(std::string_view word) {
    for (std::size_t at = 1; at < word.size(); ++at) {
      const auto option = std::find_if(known_.begin(), known_.end(), [&](const OptionSyntax& each) {
        return each.letter == word[at];
      });
      if (option == known_.end()) return unknown(at == 1 ? word.substr(0, 2) : word, "");
      std::string_view rest = word.substr(at + 1);
      const bool is_flag = option->value == OptionSyntax::Value::None ||
                           option->value == OptionSyntax::Value::MayFollow;
      if (is_flag && rest.starts_with('=')) {
        return usage(std::string(word) + ": -" + option->letter + " takes no value");
      }
      if (!is_flag && !rest.empty()) {
        if (rest.starts_with('=')) rest.remove_prefix(1);
        result_.options.push_back({std::string(option->name), std::string(rest)});
        return {};
      }
      if (Result<void> added = add(*option, std::string{'-', option->letter}); !added) return added;
    }
    return {};
  }

  // Adds an option whose value, if any, is the next word. `word`: in the user's spelling.
  Result<void> add(const OptionSyntax& option, std::string_view word) {
    const std::string name(option.name);
    if (option.value == OptionSyntax::Value::Pair) return add_pair(name, word);
    if (option.value != OptionSyntax::Value::Needed) {
      result_.options.push_back({name, std::nullopt});
      return {};
    }
    if (words_.empty())
      return usage(std::string(word) + " requires a value; write " + name + "=VALUE");
    const std::string& value = words_.front();
    if (looks_like_option(value)) {
      return usage(std::string(word) + " requires a value, but \"" + value +
                   "\" follows; if that is the value, write " + name + "=" + value);
    }
    result_.options.push_back({name, value});
    words_ = words_.subspan(1);
    return {};
  }

  Result<void> add_pair(const std::string& name, std::string_view word) {
    if (words_.size() < 2 || looks_like_option(words_[0]))
      return usage(std::string(word) + " requires two words: a name and a value");
    result_.options.push_back({name, words_[0] + "=" + words_[1]});
    words_ = words_.subspan(2);
    return {};
  }

  Error unknown(std::string_view word, const std::string& name) const {
    std::string message = "unknown option " + std::string(word);
    if (const std::string_view here = counterpart(word); !here.empty())
      return usage(message + "; " + std::string(here));
    const OptionSyntax* nearest = nullptr;
    std::size_t least = 1 + name.size() / 5;
    for (const OptionSyntax& option : known_) {
      const std::size_t distance = edit_distance(name, option.name);
      if (name.empty() || distance > least || (nearest != nullptr && distance == least)) continue;
      nearest = &option;
      least = distance;
    }
    if (nearest == nullptr) nearest = longest_common_prefix(name);
    if (nearest != nullptr)
      return usage(message + "; did you mean " + std::string(nearest->name) + "?");
    return usage(message + (operands_ == Operands::Program
                                ? "; options of the program must follow the program"
                                : "; --help lists the options"));
  }

  // The option with the longest common prefix: --nproc-per-node for --nprocs.
  const OptionSyntax* longest_common_prefix(std::string_view name) const {
    constexpr std::size_t kLeast = std::string_view("--xxxxx").size();
    const OptionSyntax* found = nullptr;
    std::size_t longest = kLeast - 1;
    for (const OptionSyntax& option : known_) {
      const auto ends =
          std::mismatch(name.begin(), name.end(), option.name.begin(), option.name.end());
      const auto size = static_cast<std::size_t>(ends.first - name.begin());
      if (size <= longest) continue;
      found = &option;
      longest = size;
    }
    return found;
  }

  static Error ambiguous(std::string_view word, const Found& found) {
    std::string message = std::string(word) + " could be";
    for (std::size_t i = 0; i < found.size(); ++i) {
      message += i == 0 ? " " : i + 1 == found.size() ? " or " : ", ";
      message += found[i]->name;
    }
    return usage(message + "; write more characters");
  }

  std::span<const std::string> words_;
  std::span<const OptionSyntax> known_;
  Operands operands_;
  Arguments result_;
};

// --- Options of other launchers. See mpirun(1) of Open MPI 4 and 5, mpiexec.hydra(1), srun(1),
// deepspeed --help, accelerate launch --help, horovodrun --help.

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
    {"num-nodes", "use --nnodes=N, or with --hosts --np=N or --include"},
    {"num-processes", "use --np=N"},
    {"num-machines", "use --nnodes=N"},
    {"machine-rank", "use --node-rank=N"},
    {"main-process-ip", "use --master-addr=HOST"},
    {"main-process-port", "use --master-port=P"},
    {"ssh-port", "use --ssh-args='-p P'"},
    {"min-np", "use --nnodes=MIN:MAX, in nodes, for an elastic job"},
    {"max-np", "use --nnodes=MIN:MAX, in nodes, for an elastic job"},
});

}  // namespace

std::vector<const OptionSyntax*> options_named(std::string_view name,
                                               std::span<const OptionSyntax> known) {
  Found torchruns, ours;
  for (const OptionSyntax& option : known) {
    if (option.name == name) return {&option};
    if (!option.name.starts_with(name)) continue;
    (option.is_torchruns ? torchruns : ours).push_back(&option);
  }
  return torchruns.empty() ? ours : torchruns;
}

std::string_view counterpart(std::string_view option) {
  option.remove_prefix(std::min(option.find_first_not_of('-'), option.size()));
  const std::string name = dashed(option);
  const auto* const found = std::find_if(kCounterparts.begin(), kCounterparts.end(),
                                         [&name](const auto& each) { return each.name == name; });
  return found == kCounterparts.end() ? std::string_view() : found->here;
}

Result<Arguments> split_arguments(std::span<const std::string> words,
                                  std::span<const OptionSyntax> known, Operands operands) {
  return Splitter(words, known, operands).run();
}

std::string dashed(std::string_view option) {
  std::string name(option);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string underscored(std::string_view option) {
  std::string name(option);
  std::replace(name.begin() + 2, name.end(), '-', '_');
  return name;
}

std::string variable_name(std::string_view option) {
  std::string name = "PET_";
  for (const char c : option.substr(2))
    name += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return name;
}

std::vector<std::string> own_arguments(std::vector<std::string> words, bool is_torchrun) {
  if (is_torchrun && !words.empty() && words.front() == "--") words.erase(words.begin());
  return words;
}

}  // namespace drun
