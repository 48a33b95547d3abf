#include <functional>

#include "agent/hang/hang.h"
#include "agent/nccl_ras/ras_service.h"
#include "tests/support/catch.h"

namespace drun::agent::hang {
namespace {

using namespace std::chrono_literals;

// One silent worker and NCCL's RAS service, which is queried when the state machine requests it.
class Asked {
 public:
  std::optional<Suspect> after(Milliseconds time, const std::function<void(Asked&)>& change) {
    std::optional<Suspect> first;
    for (const Time end = now_ + time; now_ < end;) {
      now_ += sample_interval(kTimeout);
      change(*this);
      for (const Suspect& suspect : take(state, {sample}, now_))
        if (!first) first = suspect;
      if (!wants_nccl(state, now_)) continue;
      note_asked(state, now_);
      ++asked;
      if (answers) note_positions(state, {standing}, now_);
    }
    return first;
  }
  bool is_quiet() const { return hang::is_quiet(state, 0); }

  static constexpr Milliseconds kTimeout = 60s;
  Sample sample{.is_running = true, .output = 0, .processes = 1, .channel = "futex_wait_queue"};
  ras::RankPosition standing{.is_known = true};
  bool answers = true;
  int asked = 0;

 private:
  Time now_{std::chrono::hours(1)};

 public:
  State state = begin(1, kTimeout, now_);
};

void rests(Asked&) {}
void moves(Asked& worker) { ++worker.standing.progress; }
void spins(Asked& worker) { worker.sample.cpu_ticks += 400; }

}  // namespace

TEST_CASE("NCCL is queried only after a sign of a hang, then four times per timeout") {
  Asked worker;
  worker.after(600s, [](Asked& self) {
    ++*self.sample.output;
    spins(self);
  });
  CHECK(worker.asked == 0);
  Asked silent;
  silent.after(25s, rests);
  CHECK(silent.asked == 0);
  silent.after(600s, moves);
  CHECK(silent.asked >= 34);
  CHECK(silent.asked <= 41);
}

TEST_CASE("a silent worker that launches NCCL operations is not hung") {
  Asked worker;
  CHECK_FALSE(worker.after(600s, moves).has_value());
  CHECK_FALSE(worker.is_quiet());
  const auto suspect = worker.after(100s, rests);
  REQUIRE(suspect.has_value());
  CHECK_THAT(suspect->how, StartsWith("no output and no CPU time for "));
  CHECK(worker.is_quiet());
}

TEST_CASE(
    "a worker that spins behind the others in NCCL is hung after the timeout, one ahead is not") {
  Asked worker;
  worker.standing.stand = NcclPosition::Behind;
  CHECK_FALSE(worker.after(85s, spins).has_value());
  const auto suspect = worker.after(40s, spins);
  REQUIRE(suspect.has_value());
  CHECK_THAT(suspect->how, StartsWith("no output and others waiting for it in NCCL for "));
  Asked waits;
  waits.standing.stand = NcclPosition::Ahead;
  CHECK_FALSE(waits.after(600s, spins).has_value());
}

TEST_CASE("a worker that lags but makes progress is not hung") {
  Asked worker;
  worker.standing.stand = NcclPosition::Behind;
  CHECK_FALSE(worker
                  .after(600s,
                         [](Asked& self) {
                           spins(self);
                           moves(self);
                         })
                  .has_value());
  // A worker must be behind all the time to count as hung.
  Asked turns;
  CHECK_FALSE(turns
                  .after(600s,
                         [](Asked& self) {
                           spins(self);
                           const bool is_odd = self.asked % 2 == 1;
                           self.standing.stand = is_odd ? NcclPosition::Behind : NcclPosition::None;
                         })
                  .has_value());
}

TEST_CASE("an NCCL service that does not answer has no effect") {
  Asked worker;
  worker.answers = false;
  CHECK_FALSE(worker.after(60s, rests).has_value());
  CHECK(worker.after(10s, rests).has_value());
  Asked unknown;
  unknown.standing = {};
  CHECK_FALSE(unknown.after(60s, rests).has_value());
  CHECK(unknown.after(10s, rests).has_value());
}

TEST_CASE("an NCCL service that stops answering delays a suspicion only for a while") {
  Asked worker;
  CHECK_FALSE(worker.after(75s, [](Asked& self) { self.answers = self.asked == 0; }).has_value());
  CHECK(worker.after(20s, rests).has_value());
}

TEST_CASE("a job of very many nodes queries NCCL less often and still compares two answers") {
  CHECK(ask_interval(60s, 1) == 15s);
  CHECK(ask_interval(60s, 300) == 15s);
  CHECK(ask_interval(60s, 1000) == 50s);
  Asked worker;
  worker.state.ask_interval = ask_interval(Asked::kTimeout, 1000);
  CHECK_FALSE(worker.after(600s, moves).has_value());
}

TEST_CASE("a worker gets an address for NCCL's service only with hang detection") {
  AgentSpec spec;
  CHECK_FALSE(ras::gives_place(spec));
  spec.hang_timeout = 60s;
  CHECK(ras::gives_place(spec));
  spec.worker.environment = {{"NCCL_RAS_ENABLE", "1"}};
  CHECK(ras::gives_place(spec));
  spec.worker.environment = {{"NCCL_RAS_ENABLE", "0"}};
  CHECK_FALSE(ras::gives_place(spec));
  spec.worker.environment = {{"NCCL_RAS_ADDR", "nonsense"}};
  CHECK_FALSE(ras::gives_place(spec));
  CHECK_FALSE(ras::settings_of(spec.worker).place);
  spec.worker.environment = {{"NCCL_RAS_ADDR", "localhost:28029"}};
  CHECK_FALSE(ras::gives_place(spec));
  CHECK(ras::settings_of(spec.worker).place == Endpoint{"localhost", 28029});
  spec.worker.programs = {{.environment = {{"NCCL_RAS_ADDR", "[::1]:7"}}}};
  CHECK(ras::settings_of(spec.worker).place == Endpoint{"::1", 7});
}

}  // namespace drun::agent::hang
