#include "agent/diagnosis/diagnosis.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "agent/diagnosis/error_text.h"
#include "agent/diagnosis/fatal_signals.h"
#include "agent/diagnosis/gpu_faults.h"
#include "agent/diagnosis/hang_positions.h"
#include "rendezvous/base/text.h"

namespace drun::agent {
namespace {

// In the order of FaultClass.
constexpr std::array kFaultWords{
    "none",    "crash",    "host_memory", "gpu_memory", "desync",    "missing_rank", "data_loader",
    "network", "hardware", "user_error",  "hang",       "preempted", "interrupted"};

constexpr std::size_t kMostFailuresRead = 64;
constexpr std::chrono::seconds kStartUpTime{20};

struct Read {
  const Failure* failure = nullptr;
  ErrorText text{};
  // In the kernel log of its node: the first, or one that names the process.
  std::string kernel_line{};
  std::optional<GpuFault> gpu_fault{};
  SignalAccount account{};
};

Read read_of(const Failure& failure) {
  const TracebackParts parts = parts_of(failure.traceback);
  Read read{.failure = &failure, .text = read_error_text(failure)};
  read.account = read_account(parts.account);
  for (const std::string_view line : split(parts.kernel_log, '\n')) {
    std::optional<GpuFault> fault = parse_gpu_fault(line);
    const bool is_its_own = fault && failure.pid > 0 && fault->pid == failure.pid;
    if (!fault || (read.gpu_fault && !is_its_own)) continue;
    read.kernel_line = line;
    read.gpu_fault = std::move(fault);
    if (is_its_own) break;
  }
  return read;
}

// Whether the failure follows from another rank's.
bool is_victim(const Read& read) {
  if (read.failure->out_of_memory || !read.failure->injected.empty()) return false;
  if (const auto* killed = std::get_if<Killed>(&read.failure->status);
      killed != nullptr && killed->signal != SIGABRT && killed->signal != SIGPIPE)
    return false;
  if (!read.text.sign) return false;
  switch (*read.text.sign) {
    case Sign::PeerLost:
    case Sign::Waited:
    case Sign::MissingRank:
    case Sign::NoConnection:
      return true;
    default:
      return false;
  }
}

RankRanges only(int rank) { return {{rank, rank}}; }

std::string rank_words(const Failure& failure) { return "rank " + std::to_string(failure.rank); }

std::string ended_line(const Failure& failure) {
  return evidence_text(rank_words(failure) + ": " + to_string(failure.status));
}

void add_line(Diagnosis& diagnosis, const std::string& line) {
  if (line.empty() || diagnosis.evidence.size() >= kMostEvidenceLines) return;
  if (std::find(diagnosis.evidence.begin(), diagnosis.evidence.end(), line) ==
      diagnosis.evidence.end())
    diagnosis.evidence.push_back(line);
}

void add_read(Diagnosis& diagnosis, const Read& read) {
  add_line(diagnosis, read.text.line.empty()
                          ? ended_line(*read.failure)
                          : evidence_text(rank_words(*read.failure) + ": " + read.text.line));
}

std::string place_line(const Read& read) {
  return rank_words(*read.failure) + ": " + read.text.collective + " at " + read.text.place;
}

struct Verdict {
  FaultClass fault;
  std::string summary;
  RestartHelps helps;
  std::string advice;
  bool adds = true;
};

Diagnosis of(const Read& read, Verdict verdict) {
  Diagnosis diagnosis{.fault = verdict.fault,
                      .ranks = only(read.failure->rank),
                      .summary = std::move(verdict.summary),
                      .restart_helps = verdict.helps,
                      .advice = std::move(verdict.advice),
                      .adds_to_headline = verdict.adds};
  add_read(diagnosis, read);
  add_line(diagnosis, ended_line(*read.failure));
  return diagnosis;
}

Diagnosis crash_of(const Read& read) {
  const Failure& failure = *read.failure;
  Verdict verdict{.fault = FaultClass::Crash,
                  .summary = rank_words(failure) + ": " + to_string(failure.status),
                  .helps = RestartHelps::Unknown,
                  .advice = "see the last lines of its stderr",
                  .adds = false};
  if (const auto* killed = std::get_if<Killed>(&failure.status)) {
    switch (killed->signal) {
      case SIGKILL:
        verdict.advice = "a memory limit of the container or the scheduler, or kill -9, may be why";
        break;
      case SIGTERM:
      case SIGINT:
      case SIGHUP:
        verdict.advice = "another program sent the signal";
        verdict.helps = RestartHelps::Yes;
        break;
      case SIGSEGV:
      case SIGILL:
      case SIGFPE:
        verdict.advice = "run the rank under a debugger (--wrap, --wrap-ranks)";
        break;
      default:
        break;
    }
  }
  if (failure.injected.empty()) {
    verdict.adds = !read.account.cause.empty();
    if (verdict.adds) verdict.summary = read.account.cause;
    if (!read.account.advice.empty()) verdict.advice = read.account.advice;
  }
  return of(read, std::move(verdict));
}

bool is_soon(const std::optional<std::chrono::milliseconds>& ran) {
  return ran && *ran < kStartUpTime;
}

// By how it ended. Absent: only its texts show more.
std::optional<Diagnosis> by_status(const Read& read, bool is_early) {
  const Failure& failure = *read.failure;
  if (failure.out_of_memory)
    return of(read, {.fault = FaultClass::HostMemory,
                     .summary = "the kernel's out-of-memory killer ended " + rank_words(failure),
                     .helps = RestartHelps::No,
                     .advice = "use less memory per node: fewer workers or DataLoader processes, "
                               "smaller batches, or a higher memory limit"});
  if (const auto* not_started = std::get_if<NotStarted>(&failure.status);
      not_started != nullptr && failure.message.empty())
    return of(read, {.fault = FaultClass::UserError,
                     .summary = "the program cannot be started",
                     .helps = RestartHelps::No,
                     .advice = "check the path, the permissions and the interpreter line of the "
                               "program",
                     .adds = false});
  if (const auto* killed = std::get_if<Killed>(&failure.status);
      killed != nullptr && killed->signal == SIGBUS && !read.text.sign) {
    const SignalAccount account =
        read.account.cause.empty() ? account_of(failure, {}) : read.account;
    return of(read, {.fault = account.has_no_memory ? FaultClass::HostMemory : FaultClass::Hardware,
                     .summary = account.cause,
                     .helps = RestartHelps::Unknown,
                     .advice = account.advice});
  }
  const auto* exited = std::get_if<Exited>(&failure.status);
  if (exited == nullptr || read.text.sign) return std::nullopt;
  if (exited->code == 127 || exited->code == 126)
    return of(read, {.fault = FaultClass::UserError,
                     .summary = exited->code == 127 ? "a command was not found"
                                                    : "a command is not executable",
                     .helps = RestartHelps::No,
                     .advice = "check the command line and PATH of the program"});
  if (exited->code == 2 && is_early)
    return of(read, {.fault = FaultClass::UserError,
                     .summary = "the program rejected its arguments (exit code 2)",
                     .helps = RestartHelps::No,
                     .advice = "check the arguments of the program"});
  return std::nullopt;
}

std::string signs_missing_words(const RankRanges& ranks) {
  return ranks_text(ranks) + " did not arrive in time";
}

Diagnosis desync_from(const Read& read, const std::vector<Read>& all) {
  std::map<int, Call> calls;
  for (const Read& each : all) calls.insert(each.text.calls.begin(), each.text.calls.end());
  CallGroups groups;
  for (const auto& [rank, call] : calls) {
    const std::string shape = call.shape.empty() ? "" : " of shape " + call.shape;
    groups[call.op + shape].push_back({rank, rank});
  }
  Diagnosis diagnosis = desync_of(groups, " called ", " called ");
  diagnosis.adds_to_headline = true;
  if (groups.size() < 2) {
    // The text names no rank: this one found that a peer sends something else.
    diagnosis.ranks.clear();
    diagnosis.summary = "desync: " + rank_words(*read.failure) + " got data of another size" +
                        (read.text.collective.empty() ? "" : " in " + read.text.collective);
  }
  add_read(diagnosis, read);
  for (const Read& each : all)
    if (!each.text.place.empty()) add_line(diagnosis, place_line(each));
  return diagnosis;
}

Diagnosis shared_gpu_of(const Read& read) {
  const RankRanges own = only(read.failure->rank);
  // The text numbers the ranks within their group, which may not be the world.
  const bool are_world = !intersection(read.text.named, own).empty();
  const RankRanges& ranks = are_world ? read.text.named : own;
  Diagnosis diagnosis = of(
      read,
      {.fault = FaultClass::UserError,
       .summary = count_of(ranks) > 1 ? ranks_text(ranks) + " use the same GPU"
                                      : rank_words(*read.failure) + " uses the GPU of another rank",
       .helps = RestartHelps::No,
       .advice = "select the GPU by LOCAL_RANK (torch.cuda.set_device), and run at most one "
                 "worker per GPU (--nproc-per-node=gpu)"});
  diagnosis.ranks = ranks;
  return diagnosis;
}

// Whether an error of a GPU may be behind it: nothing shows another cause.
bool is_vague(const Read& read, bool is_early) {
  if (!read.failure->injected.empty() || by_status(read, is_early)) return false;
  if (is_victim(read)) return true;
  if (read.text.sign)
    return *read.text.sign == Sign::Hardware || *read.text.sign == Sign::NcclError ||
           *read.text.sign == Sign::GpuAssertion || *read.text.sign == Sign::GpuAccess;
  const auto* killed = std::get_if<Killed>(&read.failure->status);
  if (killed != nullptr &&
      (killed->signal == SIGTERM || killed->signal == SIGINT || killed->signal == SIGHUP))
    return false;
  return !read.text.is_exception || read.text.names_gpu;
}

// The failure that a line of the kernel log explains, if the cause so far does not explain it
// better. Null: none.
const Read* with_gpu_fault(const std::vector<Read>& all, const Read* cause, bool is_early) {
  if (cause != nullptr && !is_vague(*cause, is_early)) return nullptr;
  const Read* found = nullptr;
  for (const Read& read : all) {
    if (!read.gpu_fault || !is_vague(read, is_early)) continue;
    if (read.failure->pid > 0 && read.gpu_fault->pid == read.failure->pid) return &read;
    if (found == nullptr || &read == cause) found = &read;
  }
  return found;
}

Diagnosis by_kernel_log(const Read& read) {
  const Failure& failure = *read.failure;
  Diagnosis diagnosis = hardware_of(failure.node_rank, only(failure.rank), *read.gpu_fault,
                                    kernel_log_line(failure.node_rank, read.kernel_line));
  diagnosis.adds_to_headline = true;
  add_read(diagnosis, read);
  add_line(diagnosis, ended_line(failure));
  return diagnosis;
}

constexpr std::string_view kRank = "{rank}";
enum class Counts { Always, AfterExit, AfterEarlyExit };

// The verdict on the text of a failure, if other ranks' texts do not matter.
struct SignVerdict {
  Sign sign;
  FaultClass fault;
  RestartHelps helps;
  const char* summary;
  const char* advice;
  Counts counts = Counts::Always;
  const char* before_detail = "";  // in the summary
};

constexpr std::array kVerdicts{
    SignVerdict{Sign::GpuMemory, FaultClass::GpuMemory, RestartHelps::No,
                "{rank} ran out of GPU memory",
                "use a smaller batch, activation checkpointing or more sharding, or find another "
                "process on the GPU",
                Counts::Always, ": it uses "},
    SignVerdict{Sign::HostMemory, FaultClass::HostMemory, RestartHelps::No,
                "{rank} could not allocate host memory",
                "use less memory per node, or raise the memory limit"},
    SignVerdict{Sign::DataLoaderWorker, FaultClass::DataLoader, RestartHelps::Unknown,
                "a process that loads data for {rank} ended",
                "often it ran out of memory or of /dev/shm: use fewer num_workers, or a larger "
                "/dev/shm; num_workers=0 shows errors"},
    SignVerdict{Sign::DataLoaderWait, FaultClass::DataLoader, RestartHelps::Unknown,
                "{rank} waited too long for data", "check the storage and the dataset"},
    SignVerdict{Sign::Hardware, FaultClass::Hardware, RestartHelps::Yes, "hardware error on node ",
                "exclude the node, and check its kernel log and nvidia-smi -q"},
    SignVerdict{Sign::PortInUse, FaultClass::Network, RestartHelps::Unknown,
                "a port that {rank} listens on is in use",
                "choose another port, or end the program that uses it"},
    SignVerdict{Sign::StartUp, FaultClass::UserError, RestartHelps::No, "the program cannot start",
                "check the program, its arguments and its environment on that node",
                Counts::AfterExit},
    SignVerdict{
        Sign::MaybeStartUp, FaultClass::UserError, RestartHelps::No, "the program cannot start",
        "check its arguments and the paths that it needs on that node", Counts::AfterEarlyExit},
    SignVerdict{
        Sign::NoGpu, FaultClass::UserError, RestartHelps::No, "no GPU is visible to {rank}",
        "check CUDA_VISIBLE_DEVICES, the GPUs of the container, and nvidia-smi on that node",
        Counts::AfterEarlyExit},
    SignVerdict{Sign::GpuSoftware, FaultClass::UserError, RestartHelps::No,
                "the program's version of CUDA does not fit the driver or the GPU",
                "compare the program's build with nvidia-smi on that node", Counts::AfterExit},
    SignVerdict{Sign::GpuNumber, FaultClass::UserError, RestartHelps::No,
                "{rank} selects a GPU that is not visible to it",
                "select the GPU by LOCAL_RANK; check CUDA_VISIBLE_DEVICES, and that "
                "--nproc-per-node is at most the number of GPUs"},
    SignVerdict{Sign::GpuAssertion, FaultClass::Crash, RestartHelps::Unknown,
                "{rank}: an assertion failed on the GPU",
                "often an index or a label is out of range; CUDA_LAUNCH_BLOCKING=1 shows the call",
                Counts::Always, ": "},
    SignVerdict{Sign::GpuAccess, FaultClass::Crash, RestartHelps::Unknown,
                "{rank}: a kernel on the GPU accessed invalid memory",
                "CUDA_LAUNCH_BLOCKING=1 shows the call, --wrap=compute-sanitizer the access"},
};

// The diagnosis of a failure that is not a consequence of another one.
Diagnosis by_texts(const Read& read, const std::vector<Read>& all, bool is_early) {
  if (std::optional<Diagnosis> found = by_status(read, is_early)) return *std::move(found);
  if (!read.text.sign) return crash_of(read);
  switch (*read.text.sign) {
    case Sign::Desync:
      return desync_from(read, all);
    case Sign::SharedGpu:
      return shared_gpu_of(read);
    default:
      break;
  }
  const std::string rank = rank_words(*read.failure);
  const auto* const known =
      std::find_if(kVerdicts.begin(), kVerdicts.end(),
                   [&](const SignVerdict& each) { return each.sign == *read.text.sign; });
  const bool has_exited = std::holds_alternative<Exited>(read.failure->status) ||
                          std::holds_alternative<NotStarted>(read.failure->status);
  if (known == kVerdicts.end() || (known->counts != Counts::Always && !has_exited) ||
      (known->counts == Counts::AfterEarlyExit && !is_early))
    return crash_of(read);
  std::string summary(known->summary);
  if (const std::size_t at = summary.find(kRank); at != summary.npos)
    summary.replace(at, kRank.size(), rank);
  if (known->sign == Sign::Hardware)
    summary += std::to_string(read.failure->node_rank) + " (" + rank + ")";
  if (!read.text.detail.empty()) summary.append(known->before_detail).append(read.text.detail);
  Diagnosis diagnosis = of(read, {.fault = known->fault,
                                  .summary = std::move(summary),
                                  .helps = known->helps,
                                  .advice = known->advice});
  if (known->sign == Sign::Hardware) diagnosis.exclude_node = read.failure->node_rank;
  return diagnosis;
}

// From the stacks of the ranks that still ran when a collective timed out, and the texts of those
// that had ended. Absent: there are none, or they do not show the cause.
std::optional<Diagnosis> by_stacks(const std::vector<Read>& all, int world_size) {
  Evidence evidence;
  RankRanges reported;
  for (const Read& each : all) {
    reported.push_back({each.failure->rank, each.failure->rank});
    if (evidence.groups.empty()) evidence = read_evidence(parts_of(each.failure->traceback).stacks);
  }
  if (evidence.groups.empty()) return std::nullopt;
  normalize(reported);
  for (StackGroup& group : evidence.groups) group.ranks = difference(group.ranks, reported);
  for (const Read& each : all) {
    const int rank = each.failure->rank;
    const std::string op = each.text.collective.empty() ? "a collective" : each.text.collective;
    evidence.groups.push_back({.ranks = {{rank, rank}},
                               .doing = "in " + op,
                               .source = "its error",
                               .lines = each.text.place.empty() ? std::vector<std::string>()
                                                                : std::vector{each.text.place}});
  }
  const RankRanges others =
      difference(world_size > 0 ? RankRanges{{0, world_size - 1}} : RankRanges(), reported);
  Diagnosis diagnosis = diagnose_hang(evidence, others, world_size);
  const bool is_telling =
      diagnosis.fault == FaultClass::Desync || diagnosis.fault == FaultClass::MissingRank ||
      diagnosis.fault == FaultClass::DataLoader || diagnosis.fault == FaultClass::Hardware;
  // One that is ending probably waited too, and its error is not known here.
  const bool is_ending = !intersection(diagnosis.ranks, ending_ranks(evidence)).empty();
  if (!is_telling || diagnosis.ranks.empty() || is_ending) return std::nullopt;
  add_read(diagnosis, all.front());
  diagnosis.adds_to_headline = true;
  return diagnosis;
}

// The texts of ranks that waited for others, as a whole.
struct WaitingTexts {
  const Failure* first = nullptr;
  RankRanges reported{};     // the ranks of the texts
  RankRanges named{};        // missing, by these texts
  RankRanges named_peers{};  // by any text
  CallGroups calls{};        // by the collective and its place
  std::string where{};       // the collective of the first text; empty: not known
  bool has_waited = false;
  bool differ = false;  // in the collective or its place
  bool could_not_connect = false;
};

WaitingTexts waiting_texts_of(const std::vector<Read>& all) {
  WaitingTexts texts{.first = all.front().failure, .where = all.front().text.collective};
  std::set<std::string> collectives;
  std::set<std::string> places;
  for (const Read& each : all) {
    const ErrorText& text = each.text;
    const RankRange rank{each.failure->rank, each.failure->rank};
    texts.reported.push_back(rank);
    const bool is_missing = text.sign == Sign::MissingRank;
    if (is_missing) texts.named.insert(texts.named.end(), text.named.begin(), text.named.end());
    texts.named_peers.insert(texts.named_peers.end(), text.named.begin(), text.named.end());
    texts.has_waited = texts.has_waited || is_missing || text.sign == Sign::Waited;
    texts.could_not_connect = texts.could_not_connect || text.sign == Sign::NoConnection;
    if (!text.place.empty()) places.insert(text.place);
    if (text.collective.empty()) continue;
    collectives.insert(text.collective);
    texts.calls[text.collective + (text.place.empty() ? "" : " at " + text.place)].push_back(rank);
  }
  texts.differ = collectives.size() > 1 || places.size() > 1;
  for (RankRanges* ranks : {&texts.reported, &texts.named, &texts.named_peers}) normalize(*ranks);
  return texts;
}

Diagnosis of_named(const WaitingTexts& texts) {
  // A rank that reported itself was late, or in another call.
  const RankRanges silent = difference(texts.named, texts.reported);
  const RankRanges& ranks = silent.empty() ? texts.named : silent;
  return {.fault = FaultClass::MissingRank,
          .ranks = ranks,
          .summary = signs_missing_words(ranks) + (texts.where.empty() ? "" : " in " + texts.where),
          .advice =
              "look for what delays that rank: uneven work, storage, or another call; "
              "--hang-timeout shows its stack"};
}

Diagnosis of_unnamed(const WaitingTexts& texts, int world_size) {
  const RankRanges world = world_size > 0 ? RankRanges{{0, world_size - 1}} : RankRanges();
  const RankRanges others = difference(world, texts.reported);
  // If few ranks have reported it, the others may only have had no time to report.
  const bool is_telling = !others.empty() && count_of(others) <= count_of(texts.reported);
  const std::string where = texts.where.empty() ? "a collective" : texts.where;
  return {.fault = FaultClass::MissingRank,
          .ranks = is_telling ? others : RankRanges(),
          .summary = is_telling
                         ? signs_missing_words(others) + " in " + where + ", or made another call"
                         : rank_words(*texts.first) + " waited too long in " + where +
                               "; it is not known for which rank",
          .advice =
              "run with --hang-timeout below the timeout of the collective, which shows the "
              "rank that the others wait for"};
}

Diagnosis of_connections(const WaitingTexts& texts) {
  return {.fault = FaultClass::Network,
          // A text may name the peer: it may have ended with success, or not been reported.
          .ranks = texts.named_peers,
          .summary = texts.could_not_connect
                         ? rank_words(*texts.first) + " could not connect"
                         : "a connection was lost, and no worker had ended before",
          .restart_helps = RestartHelps::Yes,
          .advice =
              "check the network between the nodes: drun doctor finds firewalls and slow "
              "links"};
}

// All failures are of ranks that waited for others: no rank had ended before.
Diagnosis of_waiting(const std::vector<Read>& all, int world_size) {
  WaitingTexts texts = waiting_texts_of(all);
  Diagnosis diagnosis = !texts.named.empty() ? of_named(texts)
                        : !texts.has_waited  ? of_connections(texts)
                        : texts.differ       ? desync_of(texts.calls, " waited in ", " waited in ")
                                             : of_unnamed(texts, world_size);
  diagnosis.adds_to_headline = true;
  for (const Read& each : all)
    if (!each.text.place.empty() && diagnosis.evidence.size() + 1 < kMostEvidenceLines)
      add_line(diagnosis, place_line(each));
  for (const Read& each : all) add_read(diagnosis, each);
  return diagnosis;
}

Diagnosis of_hang(const WorkersFailed& failed, const Outcome& outcome, const Observations& seen) {
  RankRanges suspects;
  for (const Failure& failure : failed.failures)
    if (std::holds_alternative<Hung>(failure.status))
      suspects.push_back({failure.rank, failure.rank});
  normalize(suspects);
  const Evidence stacks =
      seen.stacks ? *seen.stacks : read_evidence(failed.failures.front().traceback);
  Diagnosis diagnosis = diagnose_hang(stacks, suspects, outcome.world_size);
  const bool knows_calls = seen.calls && seen.calls->fault != FaultClass::None;
  if (knows_calls && diagnosis.fault != FaultClass::Hardware) return *seen.calls;
  diagnosis.adds_to_headline = diagnosis.fault != FaultClass::Hang || diagnosis.ranks != suspects;
  return diagnosis;
}

void mark_injected(Diagnosis& diagnosis, const Failure& cause) {
  diagnosis.evidence.insert(diagnosis.evidence.begin(),
                            evidence_text("injected by --inject (" + cause.injected + ")"));
  if (diagnosis.evidence.size() > kMostEvidenceLines) diagnosis.evidence.pop_back();
  diagnosis.restart_helps = RestartHelps::Yes;
  diagnosis.advice = "none needed: --inject caused this failure";
  diagnosis.adds_to_headline = false;
}

Diagnosis of_failures(const WorkersFailed& failed, const Outcome& outcome,
                      const Observations& seen) {
  const Failure& root = failed.failures.front();
  if (std::holds_alternative<Hung>(root.status)) return of_hang(failed, outcome, seen);
  std::optional<std::chrono::milliseconds> ran = seen.round_ran;
  if (!ran && outcome.restarts == 0 && outcome.duration.count() > 0) ran = outcome.duration;
  std::vector<Read> reads;
  const std::size_t count = std::min(failed.failures.size(), kMostFailuresRead);
  for (std::size_t i = 0; i < count; ++i) reads.push_back(read_of(failed.failures[i]));
  auto cause = std::find_if(reads.begin(), reads.end(), [](const Read& read) {
    return !is_victim(read) && read.text.sign != Sign::NcclError;
  });
  if (cause == reads.end())
    cause =
        std::find_if(reads.begin(), reads.end(), [](const Read& read) { return !is_victim(read); });
  const Read* of_gpu =
      with_gpu_fault(reads, cause == reads.end() ? nullptr : &*cause, is_soon(ran));
  // It may only have waited for another rank of its node, which is the one with the faulty GPU.
  if (of_gpu != nullptr && is_victim(*of_gpu) && of_gpu->gpu_fault->pid != of_gpu->failure->pid) {
    std::optional<Diagnosis> found = by_stacks(reads, outcome.world_size);
    if (found && found->fault == FaultClass::Hardware) return *std::move(found);
  }
  if (of_gpu != nullptr) cause = reads.begin() + (of_gpu - reads.data());
  const bool has_waited = std::any_of(reads.begin(), reads.end(), [](const Read& read) {
    return read.text.sign == Sign::Waited || read.text.sign == Sign::MissingRank;
  });
  if (cause == reads.end() && has_waited) {
    if (seen.calls && seen.calls->fault != FaultClass::None) return *seen.calls;
    if (std::optional<Diagnosis> found = by_stacks(reads, outcome.world_size))
      return *std::move(found);
  }
  if (cause == reads.end()) return of_waiting(reads, outcome.world_size);
  Diagnosis diagnosis =
      of_gpu != nullptr ? by_kernel_log(*cause) : by_texts(*cause, reads, is_soon(ran));
  if (!cause->failure->injected.empty()) mark_injected(diagnosis, *cause->failure);
  if (cause != reads.begin()) {
    diagnosis.adds_to_headline = true;
    add_line(diagnosis, evidence_text(rank_words(root) + ", its peer: " + reads.front().text.line));
  }
  return diagnosis;
}

Diagnosis of_error(const Error& error) {
  Diagnosis diagnosis{.summary = error.message, .evidence = {evidence_text(error.message)}};
  switch (error.code) {
    case ErrorCode::Usage:
      diagnosis.fault = FaultClass::UserError;
      diagnosis.restart_helps = RestartHelps::No;
      diagnosis.advice = "correct the command line";
      break;
    case ErrorCode::Spawn:
      diagnosis.fault = FaultClass::UserError;
      diagnosis.restart_helps = RestartHelps::No;
      diagnosis.advice = "check the path and the permissions of the program on those nodes";
      break;
    case ErrorCode::Timeout:
    case ErrorCode::Unreachable:
    case ErrorCode::Closed:
      diagnosis.fault = FaultClass::Network;
      diagnosis.advice = "check that drun runs on every node and that the nodes reach each other";
      break;
    default:
      return {};
  }
  return diagnosis;
}

Diagnosis of_lost(const NodeLost& lost) {
  Diagnosis diagnosis{
      .fault = FaultClass::Network,
      .exclude_node = lost.node_rank,
      .summary = "lost node " + std::to_string(lost.node_rank) +
                 (lost.host.empty() ? "" : " (" + lost.host + ")"),
      .evidence = {evidence_text(lost.reason.empty() ? "its agent is gone" : lost.reason)},
      .restart_helps = RestartHelps::Yes,
      .advice = "check whether the machine is up, and its network; a restart without it can help"};
  return diagnosis;
}

}  // namespace

const char* word_of(FaultClass fault) { return kFaultWords.at(static_cast<std::size_t>(fault)); }

FaultClass fault_named(std::string_view word) {
  const auto* const found = std::find(kFaultWords.begin(), kFaultWords.end(), word);
  return found == kFaultWords.end() ? FaultClass::None
                                    : static_cast<FaultClass>(found - kFaultWords.begin());
}

const char* word_of(RestartHelps helps) {
  return helps == RestartHelps::Yes ? "yes" : helps == RestartHelps::No ? "no" : "unknown";
}

RoundFault round_fault(const Outcome& outcome, std::chrono::milliseconds round_ran) {
  const Diagnosis diagnosis = diagnose(outcome, {.round_ran = round_ran});
  if (diagnosis.fault == FaultClass::None) return {};
  return {.name = word_of(diagnosis.fault),
          .is_pointless = diagnosis.restart_helps == RestartHelps::No};
}

const std::vector<std::string>& round_faults() {
  constexpr auto kEnd = static_cast<std::ptrdiff_t>(FaultClass::Hang) + 1;
  static const std::vector<std::string> words(kFaultWords.begin() + 1, kFaultWords.begin() + kEnd);
  return words;
}

Diagnosis diagnose(const Outcome& outcome, const Observations& observations) {
  Diagnosis diagnosis = std::visit(
      Overloaded{
          [](const Succeeded&) { return Diagnosis(); },
          [&](const WorkersFailed& failed) {
            return failed.failures.empty() ? Diagnosis()
                                           : of_failures(failed, outcome, observations);
          },
          [](const Interrupted& interrupted) {
            const std::string signal = signal_name(interrupted.signal);
            return Diagnosis{.fault = FaultClass::Interrupted,
                             .summary = signal + " ended the job",
                             .evidence = {evidence_text(signal + " on " + interrupted.host)},
                             .restart_helps = RestartHelps::Yes,
                             .advice = "none needed: the job was stopped from outside"};
          },
          [](const NodeLost& lost) { return of_lost(lost); },
          [](const NotRun& not_run) { return of_error(not_run.error); },
          [](const Preempted& preempted) {
            return Diagnosis{.fault = FaultClass::Preempted,
                             .summary = "the job's time was up",
                             .evidence = {evidence_text(preempted.reason)},
                             .restart_helps = RestartHelps::Yes,
                             .advice = "submit it again; it continues from its last checkpoint"};
          },
      },
      outcome.ending);
  diagnosis.summary = evidence_text(diagnosis.summary);
  for (std::string& line : diagnosis.evidence) line = evidence_text(line);
  if (diagnosis.ranks.size() > kMostRankRanges) diagnosis.ranks.resize(kMostRankRanges);
  return diagnosis;
}

}  // namespace drun::agent
