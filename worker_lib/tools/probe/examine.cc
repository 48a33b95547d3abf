#include "worker_lib/tools/probe/examine.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "drun/error.h"
#include "rendezvous/base/text.h"
#include "worker_lib/base/deadline.h"
#include "worker_lib/tools/probe/formats.h"
#include "worker_lib/tools/probe/look.h"
#include "worker_lib/tools/probe/pair_rate.h"
#include "worker_lib/tools/probe/visits.h"

namespace drun::probe {
namespace {

bool read_number(std::string_view text, int& number) {
  number = whole_number<int>(text).value_or(-1);
  return number >= 0;
}

bool read_word(std::string_view word, Task& task) {
  const std::size_t sign = std::min(word.find('='), word.size());
  const std::string_view name = word.substr(0, sign);
  const std::string_view value = word.substr(std::min(sign + 1, word.size()));
  if (word == "--json") return task.is_json = true;
  if (word == "--quiet") return task.is_quiet = true;
  if (word == "--preflight") return task.is_preflight = true;
  if (name == "--cores") return read_number(value, task.cores);
  if (name == "--gpus") return read_number(value, task.gpus);
  if (name == "--drun-version") return task.version = value, true;
  if (name == "--problem") return task.problem = value, true;
  return false;
}

using worker::left_until;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kAnswerAtMost{10'000};
constexpr std::chrono::seconds kNamesAtMost{5};
constexpr std::chrono::seconds kFactsAtMost{20};

std::string key(const char* what, int node) {
  return std::string(what) + "/" + std::to_string(node);
}

[[noreturn]] void raise(const Error& error) {
  throw WorkerError({.kind = WorkerError::Kind::System, .message = error.message});
}

class Examination {
 public:
  Examination(const Seat& seat, const Task& task, std::shared_ptr<KeyStore> store)
      : seat_(seat), task_(task), store_(std::move(store)) {}

  Examined run() {
    look();
    meet_others();
    Names names(named());
    visit();
    report_.names = names.wait_until(Clock::now() + kNamesAtMost);
    measure();
    store_->set(key("report", seat_.node), to_json(report_), kAnswerAtMost);
    return {.report = report_, .is_hanging = names.is_hanging(), .host = std::move(host_)};
  }

 private:
  void look() {
    NodeFacts& facts = report_.facts;
    facts.node = seat_.node;
    facts.version = task_.version;
    facts.cores = task_.cores;
    facts.gpus = task_.gpus;
    facts.problem = task_.problem;
    look_at_machine(facts);
    if (const auto looked = look_at_network(facts, seat_.master, seat_.port, seat_.network);
        !looked)
      raise(looked.error());
    token_ = agreed_token();
    auto host = Host::open(token_);
    if (!host) raise(host.error());
    host_ = *std::move(host);
    facts.port = host_->port();
    store_->set(key("facts", seat_.node), to_json(report_), kAnswerAtMost);
  }

  std::string agreed_token() {
    if (seat_.node != 0) return store_->get("token", kFactsAtMost);
    const std::string token = new_token();
    store_->set("token", token, kAnswerAtMost);
    return token;
  }

  // A node whose probe has not begun in time is not visited, which counts as a failed visit.
  void meet_others() {
    const auto deadline = Clock::now() + kFactsAtMost;
    for (const int other : visits_of(seat_.node, seat_.count)) {
      try {
        const auto report = parse_report(store_->get(key("facts", other), left_until(deadline)));
        if (report) others_[other] = report->facts;
      } catch (const WorkerError& error) {
        if (error.kind() != WorkerError::Kind::Timeout) throw;
      }
    }
  }

  // Of node 0's many the neighbors alone: the others ask for its name.
  std::vector<Named> named() const {
    const int last = seat_.count - 1;
    std::vector<Named> nodes;
    for (const auto& [node, facts] : others_) {
      if (seat_.node == 0 && node != 1 && node != last) continue;
      nodes.push_back({.node = node, .host = facts.host, .address = facts.address});
    }
    return nodes;
  }

  void visit() {
    std::vector<Destination> destinations;
    for (const auto& [node, facts] : others_)
      destinations.push_back(
          {.node = node, .address = facts.address, .port = static_cast<std::uint16_t>(facts.port)});
    report_.visits = visit_all(destinations, token_);
    std::string unreached;
    for (const Visit& visit : report_.visits) {
      if (!visit.large_ones_too) unreached += " " + std::to_string(visit.to) + " ";
    }
    for (const int other : visits_of(seat_.node, seat_.count)) {
      if (others_.contains(other)) continue;
      unreached += " " + std::to_string(other) + " ";
      report_.visits.push_back({.to = other, .reason = "its probe has not begun in time"});
    }
    unreached_ = unreached;
    store_->set(key("unreached", seat_.node), unreached, kAnswerAtMost);
  }

  // Where one of the two does not reach the other, both know, and do not try.
  void measure() {
    for (const Pairing& pairing : pairings(seat_.node, seat_.count)) {
      const auto names = [](const std::string& list, int node) {
        return list.find(" " + std::to_string(node) + " ") != list.npos;
      };
      if (names(unreached_, pairing.with)) continue;
      try {
        const std::string theirs = store_->get(key("unreached", pairing.with), kFactsAtMost);
        if (names(theirs, seat_.node)) continue;
      } catch (const WorkerError& error) {
        if (error.kind() != WorkerError::Kind::Timeout) throw;
        continue;
      }
      report_.pairs.push_back(measure_pair(pairing, store_, report_.facts.network));
    }
  }

  const Seat& seat_;
  const Task& task_;
  std::shared_ptr<KeyStore> store_;
  NodeReport report_;
  std::string token_;
  std::unique_ptr<Host> host_;
  std::map<int, NodeFacts> others_;
  std::string unreached_;
};

}  // namespace

Result<Task> parse_task(std::span<const std::string> words) {
  Task task;
  for (const std::string& word : words) {
    if (!read_word(word, task))
      return Error{ErrorCode::Usage, "\"" + word +
                                         "\" makes no sense here; this is what drun doctor starts "
                                         "on every node, and drun of the same version"};
  }
  return task;
}

Examined examine(const Seat& seat, const Task& task, const std::shared_ptr<KeyStore>& store) {
  return Examination(seat, task, store).run();
}

Reports gather(const NodeReport& own, const Seat& seat, KeyStore& store) {
  const auto deadline = Clock::now() + kExamineAtMost;
  Reports reports(static_cast<std::size_t>(seat.count));
  reports[0] = own;
  for (int node = 1; node < seat.count; ++node) {
    try {
      auto report = parse_report(store.get(key("report", node), left_until(deadline)));
      if (!report) continue;
      report->facts.node = node;
      reports[static_cast<std::size_t>(node)] = *std::move(report);
    } catch (const WorkerError& error) {
      if (error.kind() != WorkerError::Kind::Timeout) throw;
    }
  }
  return reports;
}

void tell(const std::vector<Finding>& findings, const Seat& seat, KeyStore& store) {
  constexpr Milliseconds kMoment{2000};
  store.set("findings", to_json(findings), kAnswerAtMost);
  std::vector<std::string> told;
  for (int node = 1; node < seat.count; ++node) told.push_back(key("told", node));
  try {
    if (!told.empty()) store.wait(told, kMoment);
  } catch (const WorkerError& error) {
    if (error.kind() != WorkerError::Kind::Timeout) throw;
  }
}

std::vector<Finding> hear(KeyStore& store) {
  auto findings = parse_findings(store.get("findings", 2 * Milliseconds(kExamineAtMost)));
  if (!findings) raise(findings.error());
  return *std::move(findings);
}

void say_told(const Seat& seat, KeyStore& store) {
  store.set(key("told", seat.node), "", kAnswerAtMost);
}

}  // namespace drun::probe
