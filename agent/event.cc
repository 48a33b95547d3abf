#include "agent/event.h"

#include <nlohmann/json.hpp>

#include "agent/wall_time.h"
#include "rendezvous/overloaded.h"

namespace drun::agent {
namespace {

using Json = nlohmann::ordered_json;

struct Told {
  const char* event = "";
  Json fields;
};

const char* word_of(const Ending& ending) {
  return std::visit(Overloaded{
                        [](const Succeeded&) { return "succeeded"; },
                        [](const WorkersFailed&) { return "failed"; },
                        [](const Interrupted&) { return "interrupted"; },
                        [](const NodeLost&) { return "node_lost"; },
                        [](const NotRun&) { return "not_run"; },
                    },
                    ending);
}

Told tell(const AgentStarted& started) {
  return {"agent_started",
          {{"local_world_size", started.local_world_size}, {"command", started.command}}};
}

Told tell(const RoundBegan& began) {
  const World& world = began.world;
  return {"round_began",
          {{"round", world.round},
           {"restarts", world.restarts},
           {"node_rank", world.node_rank},
           {"nodes", world.node_count},
           {"first_rank", world.base_rank},
           {"local_world_size", world.local_world_size},
           {"world_size", world.world_size},
           {"is_preflight", world.is_preflight},
           {"master_addr", world.master_addr},
           {"master_port", world.master_port}}};
}

Told tell(const WorkerStarted& started) {
  return {"worker_started",
          {{"round", started.round},
           {"rank", started.rank},
           {"local_rank", started.local_rank},
           {"pid", started.pid}}};
}

Told tell(const WorkerFailed& failed) {
  const Failure& failure = failed.failure;
  return {"worker_failed",
          {{"round", failure.round},
           {"rank", failure.rank},
           {"local_rank", failure.local_rank},
           {"pid", failure.pid},
           {"exit_code", exit_code(failure.status)},
           {"ended", to_string(failure.status)},
           {"out_of_memory", failure.out_of_memory}}};
}

Told tell(const HangSuspectedHere& suspected) {
  const Failure& failure = suspected.failure;
  return {"hang_suspected",
          {{"round", failure.round},
           {"rank", failure.rank},
           {"local_rank", failure.local_rank},
           {"pid", failure.pid},
           {"signs", to_string(failure.status)}}};
}

Told tell(const HangFoundAnywhere& found) {
  return {"hang_found",
          {{"round", found.round},
           {"cause", found.cause},
           {"evidence", evidence_lines(found.evidence, 1000)}}};
}

Told tell(const NodeLeftOut& left_out) {
  const LeftOut& node = left_out.node;
  return {"node_left_out",
          {{"round", node.round},
           {"left_out_node_rank", node.node_rank},
           {"left_out_host", node.host},
           {"reason", node.reason}}};
}

Told tell(const RoundStopping& stopping) { return {"round_stopping", {{"round", stopping.round}}}; }

Told tell(const RoundEnded& ended) {
  return {"round_ended", {{"round", ended.round}, {"succeeded", ended.has_succeeded}}};
}

Told tell(const SignalCame& came) {
  return {"signal", {{"signal", came.signal}, {"signal_name", signal_name(came.signal)}}};
}

Told tell(const JobEnded& ended) {
  const Outcome& outcome = ended.outcome;
  Json fields{{"outcome", word_of(outcome.ending)},
              {"restarts", outcome.restarts},
              {"duration_s", in_seconds(outcome.duration)}};
  if (const auto* failed = std::get_if<WorkersFailed>(&outcome.ending)) {
    fields["root_cause_rank"] = failed->failures.front().rank;
  }
  if (const auto* not_run = std::get_if<NotRun>(&outcome.ending)) {
    fields["message"] = not_run->error.message;
  }
  return {"job_ended", std::move(fields)};
}

}  // namespace

std::string event_line(const Event& event, const EventPlace& place, WallTime time) {
  const Told told = std::visit([](const auto& happened) { return tell(happened); }, event);
  Json line{{"time", utc_time(time)},
            {"event", told.event},
            {"run_id", place.run_id},
            {"host", place.host},
            {"agent_pid", place.pid}};
  line.update(told.fields);
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace drun::agent
