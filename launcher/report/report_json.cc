#include "launcher/base/text.h"
#include "launcher/report/report.h"

#include <nlohmann/json.hpp>

#include "agent/diagnosis/diagnosis.h"
#include "agent/diagnosis/error_text.h"
#include "agent/status/events.h"
#include "agent/status/node_status.h"
#include "agent/wall_time.h"
#include "launcher/base/words.h"
#include "launcher/placement/place.h"
#include "rendezvous/base/result.h"

namespace drun {
namespace {

using Json = nlohmann::ordered_json;

Json or_null(std::optional<int> number) { return number ? Json(*number) : Json(nullptr); }
Json or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json to_json(const ExitStatus& status) {
  return std::visit(Overloaded{
                        [](const Exited& exited) {
                          return Json{{"kind", "exited"}, {"code", exited.code}};
                        },
                        [](const Killed& killed) {
                          return Json{{"kind", "killed"},
                                      {"signal", killed.signal},
                                      {"signal_name", signal_name(killed.signal)},
                                      {"core_dumped", killed.core_dumped}};
                        },
                        [](const NotStarted& not_started) {
                          return Json{{"kind", "not_started"}, {"errno", not_started.error_number}};
                        },
                        [](const Hung& hung) {
                          return Json{{"kind", "hung"}, {"how", hung.how}};
                        },
                    },
                    status);
}

Json error_json(const Failure& failure) {
  return or_null(joined(agent::error_lines(failure), "\n"));
}

Json to_json(const Failure& failure) {
  return Json{{"rank", failure.rank},
              {"local_rank", failure.local_rank},
              {"node_rank", failure.node_rank},
              {"host", failure.host},
              {"pid", failure.pid},
              {"role", failure.role},
              {"round", failure.round},
              {"time", utc_time(failure.time)},
              {"status", to_json(failure.status)},
              {"exit_code", exit_code(failure.status)},
              {"ended", how_it_ended(failure)},
              {"out_of_memory", failure.out_of_memory},
              {"injected", or_null(failure.injected)},
              {"program", failure.program},
              {"error", error_json(failure)},
              {"message", or_null(failure.message)},
              {"traceback", or_null(agent::shown_traceback(failure.traceback))},
              {"stderr_tail", failure.stderr_tail},
              {"error_file", or_null(failure.error_file)},
              {"stderr_file", or_null(failure.stderr_file)}};
}

Json to_json(const LeftOut& node) {
  return Json{{"node_rank", node.node_rank},
              {"host", node.host},
              {"round", node.round},
              {"reason", node.reason}};
}

Json to_json(const InjectedFault& fault) {
  return Json{{"fault", fault.fault},
              {"time", fault.time ? Json(utc_time(*fault.time)) : Json(nullptr)},
              {"rank", or_null(fault.rank)},
              {"node_rank", fault.time ? Json(fault.node_rank) : Json(nullptr)},
              {"host", or_null(fault.host)},
              {"round", fault.time ? Json(fault.round) : Json(nullptr)},
              {"followed", fault.followed}};
}

Json to_json(const RankRange& range) { return Json::array({range.first, range.last}); }

Json to_json(const agent::ReportedTimeout& timeout);

template <typename T>
Json all_of(const std::vector<T>& elements) {
  Json list = Json::array();
  for (const T& element : elements) list.push_back(to_json(element));
  return list;
}

Json to_json(const agent::ReportedTimeout& timeout) {
  return Json{{"ranks", all_of(timeout.ranks)},
              {"call", or_null(timeout.call)},
              {"time", utc_time(timeout.first)}};
}

// The value of "outcome", and the fields for this kind of outcome.
struct EndingJson {
  std::string word;
  Json failures = Json::array();
  Json details = nullptr;
};

EndingJson json_of(const Ending& ending) {
  return std::visit(
      Overloaded{
          [](const Succeeded&) { return EndingJson{.word = "succeeded"}; },
          [](const WorkersFailed& failed) {
            return EndingJson{.word = "failed", .failures = all_of(failed.failures)};
          },
          [](const Interrupted& interrupted) {
            return EndingJson{.word = "interrupted",
                              .details = Json{{"signal", interrupted.signal},
                                              {"signal_name", signal_name(interrupted.signal)},
                                              {"node_rank", or_null(interrupted.node_rank)},
                                              {"host", interrupted.host}}};
          },
          [](const NodeLost& lost) {
            return EndingJson{.word = "node_lost",
                              .details = Json{{"node_rank", lost.node_rank},
                                              {"host", lost.host},
                                              {"is_coordinator", lost.is_coordinator},
                                              {"reason", lost.reason}}};
          },
          [](const NotRun& not_run) {
            return EndingJson{.word = "not_run",
                              .details = Json{{"error", to_string(not_run.error.code)},
                                              {"message", not_run.error.message}}};
          },
          [](const Preempted& preempted) {
            return EndingJson{.word = "preempted", .details = Json{{"reason", preempted.reason}}};
          },
      },
      ending);
}

}  // namespace

std::string report_json(const Outcome& outcome, int exit_code,
                        const std::vector<WorkerPlacement>& placements,
                        const std::optional<agent::PhaseTimes>& phase_times,
                        const std::vector<agent::ReportedTimeout>& timeouts) {
  const EndingJson ending = json_of(outcome.ending);
  Json report{
      {"schema", "drun.report/1"},
      {"outcome", ending.word},
      {"exit_code", exit_code},
      {"run_id", outcome.run_id},
      {"nodes", outcome.node_count},
      {"workers", outcome.world_size},
      {"restarts", outcome.restarts},
      {"max_restarts", outcome.max_restarts},
      {"duration_s", in_seconds(outcome.duration)},
      {"root_cause", nullptr},
      {"diagnosis", agent::diagnosis_json(agent::diagnose(outcome))},
      {"failures", ending.failures},
      {"failures_left_out", outcome.failures_left_out},
      {"details", ending.details},
      {"left_out", all_of(outcome.left_out)},
      {"slow", agent::slow_json(outcome.slow)},
      {"faults", all_of(outcome.faults)},
      {"timeouts", all_of(timeouts)},
      {"placement", placement_json(placements)},
      {"phase_times_s", phase_times ? agent::phase_times_json(*phase_times) : Json(nullptr)},
      {"job_phase_times_s", agent::mean_times_json(outcome.times)},
      {"longest_phase_times", agent::longest_times_json(outcome.times)}};
  if (!ending.failures.empty()) report["root_cause"] = ending.failures.front();
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace drun
