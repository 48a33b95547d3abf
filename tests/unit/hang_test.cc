#include "agent/hang/hang.h"

#include <cstring>
#include <functional>

#include "agent/hang/heartbeat_files.h"
#include "drun/backend.h"
#include "rendezvous/base/pulse_page.h"
#include "tests/support/catch.h"
#include "tests/support/process.h"
#include "worker_lib/core/pulse.h"

namespace drun::agent::hang {
namespace {

using namespace std::chrono_literals;

// One worker that is sampled a few times per timeout.
class Watched {
 public:
  explicit Watched(Milliseconds timeout = 60s)
      : timeout_(timeout), state_(begin(1, timeout, now_)) {}

  // Calls `change` before each sample. Returns the first suspicion.
  std::optional<Suspect> after(Milliseconds time, const std::function<void(Sample&)>& change) {
    std::optional<Suspect> first;
    for (const Time end = now_ + time; now_ < end;) {
      now_ += sample_interval(timeout_);
      change(sample);
      for (const Suspect& suspect : take(state_, {sample}, now_)) {
        ++told;
        if (!first) first = suspect;
      }
    }
    return first;
  }
  bool is_quiet() const { return hang::is_quiet(state_, 0); }
  void begin_look() { hang::begin_look(state_, now_); }
  void note_answers() { hang::note_answers(state_, {sample}); }
  void end_look() { hang::end_look(state_, now_); }
  void jump(Milliseconds time) { now_ += time; }

  Sample sample{.is_running = true, .output = 0, .processes = 1, .channel = "futex_wait_queue"};
  int told = 0;

 private:
  Milliseconds timeout_;
  Time now_{std::chrono::hours(1)};
  State state_;
};

void nothing(Sample&) {}

}  // namespace

TEST_CASE("a worker that neither prints nor uses CPU time is hung after the timeout, not before") {
  Watched worker;
  CHECK_FALSE(worker.after(60s, nothing).has_value());
  CHECK_FALSE(worker.is_quiet());
  const auto suspect = worker.after(10s, nothing);
  REQUIRE(suspect.has_value());
  CHECK(suspect->how == "no output and no CPU time for 60 s");
  CHECK(worker.is_quiet());
}

TEST_CASE("one sign of life prevents a suspicion") {
  Watched worker;
  SECTION("it prints") {
    CHECK_FALSE(worker.after(600s, [](Sample& sample) { ++*sample.output; }).has_value());
  }
  SECTION("it uses CPU time") {
    CHECK_FALSE(worker.after(600s, [](Sample& sample) { sample.cpu_ticks += 400; }).has_value());
  }
  SECTION("its processes start and exit") {
    CHECK_FALSE(worker.after(600s, [](Sample& sample) { ++sample.processes; }).has_value());
  }
  SECTION("its output is not visible") {
    worker.sample.output.reset();
    CHECK_FALSE(worker.after(600s, nothing).has_value());
  }
  SECTION("its heartbeat advances") {
    CHECK_FALSE(worker.after(600s, [](Sample& sample) { ++sample.heartbeat; }).has_value());
  }
  SECTION("it has exited") {
    worker.sample.is_running = false;
    CHECK_FALSE(worker.after(600s, nothing).has_value());
  }
  CHECK_FALSE(worker.is_quiet());
}

TEST_CASE("a little CPU time with every sleep in the same place is no sign of life") {
  Watched worker;
  const auto suspect = worker.after(120s, [](Sample& sample) { ++sample.cpu_ticks; });
  REQUIRE(suspect.has_value());
  CHECK(suspect->how == "no output and always asleep in futex_wait_queue for 60 s");
  Watched wandering;
  int looks = 0;
  CHECK_FALSE(wandering
                  .after(600s,
                         [&looks](Sample& sample) {
                           ++sample.cpu_ticks;
                           sample.channel = ++looks % 4 == 0 ? "do_poll" : "futex_wait_queue";
                         })
                  .has_value());
  Watched awake;
  CHECK_FALSE(awake
                  .after(600s,
                         [](Sample& sample) {
                           ++sample.cpu_ticks;
                           sample.channel.clear();
                         })
                  .has_value());
}

TEST_CASE("a heartbeat that stops is a sign of a hang, one that never started is not") {
  Watched spinning;
  spinning.sample.heartbeat = 5;
  const auto suspect = spinning.after(120s, [](Sample& sample) { sample.cpu_ticks += 400; });
  REQUIRE(suspect.has_value());
  CHECK(suspect->how == "no output and no heartbeat for 60 s");
  Watched never;
  CHECK_FALSE(never.after(120s, [](Sample& sample) { sample.cpu_ticks += 400; }).has_value());
}

TEST_CASE("a suspicion lists all three signs and that the worker is stopped") {
  Watched worker;
  worker.sample.heartbeat = 1;
  worker.sample.is_stopped = true;
  const auto suspect = worker.after(80s, nothing);
  REQUIRE(suspect.has_value());
  CHECK(suspect->how == "stopped, no output, no CPU time and no heartbeat for 60 s");
}

TEST_CASE("a suspicion is reported again after each timeout and cleared by a sign of life") {
  Watched worker;
  worker.after(180s, nothing);
  CHECK(worker.told == 2);
  worker.after(10s, [](Sample& sample) { ++*sample.output; });
  CHECK_FALSE(worker.is_quiet());
  CHECK_FALSE(worker.after(55s, nothing).has_value());
  CHECK(worker.after(20s, nothing).has_value());
}

TEST_CASE("time in which the agent itself was stalled does not count as silence") {
  Watched worker;
  worker.after(30s, nothing);
  worker.jump(1h);
  CHECK_FALSE(worker.after(50s, nothing).has_value());
  CHECK(worker.after(20s, nothing).has_value());
}

TEST_CASE("time in which workers are inspected does not count as silence") {
  Watched worker;
  CHECK_FALSE(worker.after(50s, nothing).has_value());
  worker.begin_look();
  CHECK_FALSE(worker.after(120s, nothing).has_value());
  CHECK_FALSE(worker.is_quiet());
  worker.end_look();
  CHECK_FALSE(worker.after(10s, nothing).has_value());
  CHECK(worker.after(10s, nothing).has_value());

  // A worker that was silent before stays silent unless it is active during the inspection.
  worker.begin_look();
  CHECK_FALSE(worker.after(10s, nothing).has_value());
  CHECK(worker.is_quiet());
  worker.after(10s, [](Sample& sample) { ++*sample.output; });
  CHECK_FALSE(worker.is_quiet());
  worker.end_look();
  CHECK_FALSE(worker.after(50s, nothing).has_value());
  CHECK(worker.after(15s, nothing).has_value());
}

TEST_CASE("what a dump of the Flight Recorder costs a worker is no sign of life") {
  Watched worker;
  worker.after(70s, nothing);
  CHECK(worker.is_quiet());
  worker.begin_look();
  worker.after(10s, [](Sample& sample) {
    sample.cpu_ticks += 500;
    ++sample.processes;
    sample.channel.clear();
  });
  worker.note_answers();
  worker.sample.channel = "futex_wait_queue";
  worker.after(10s, [](Sample& sample) { ++sample.cpu_ticks; });
  CHECK(worker.is_quiet());
  worker.end_look();
  worker.after(10s, nothing);
  CHECK(worker.is_quiet());

  // Its progress during the look counts.
  SECTION("it uses CPU time after its answer") {
    worker.begin_look();
    worker.note_answers();
    worker.after(10s, [](Sample& sample) { sample.cpu_ticks += 50; });
    CHECK_FALSE(worker.is_quiet());
  }
  SECTION("it prints before its answer") {
    worker.begin_look();
    worker.after(10s, [](Sample& sample) { ++*sample.output; });
    CHECK_FALSE(worker.is_quiet());
  }
  SECTION("its text is not known: the look may have caused it, but not what follows") {
    worker.sample.writes_to_file = true;
    worker.begin_look();
    worker.after(10s, [](Sample& sample) { ++*sample.output; });
    CHECK(worker.is_quiet());
    worker.end_look();
    worker.after(10s, [](Sample& sample) { ++*sample.output; });
    CHECK_FALSE(worker.is_quiet());
  }
}

TEST_CASE("a pulse page shows which operation a worker is in") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.file("beats");
  testing::write_file(path, std::string(kPulseBytes, '\0'));
  const auto seen = [&path] { return read_pulse(testing::read_file(path)); };
  CHECK(seen() == Pulse{});
  worker::Pulse pulse(path.c_str());
  REQUIRE(pulse.is_on());
  const std::uint64_t first = seen().beats;
  CHECK(first > 0);
  const auto begun = pulse.begin({.sequence = 811, .bytes = 4096, .kind = 2});
  CHECK(seen().beats > first);
  CHECK(seen().doing == "in all_reduce #811 (4096 bytes)");
  CHECK(seen().is_inside);
  const auto inner = pulse.begin({.group = 3, .sequence = 2, .kind = 0});
  CHECK(seen().doing == "in all_reduce #811 (4096 bytes)");  // the oldest that has not ended
  pulse.end(begun);
  CHECK(seen().doing == "in barrier #2 of a smaller group");
  CHECK(seen().arrived == 811);
  pulse.end(inner);
  CHECK(seen().doing == "last ended barrier #2 of a smaller group, not in one");
  CHECK_FALSE(seen().is_inside);
  for (std::uint64_t i = 1; i <= 1000; ++i)
    pulse.end(pulse.begin({.sequence = 811 + i, .kind = 3}));
  CHECK(seen().arrived == 1811);
  CHECK(seen().doing == "last ended reduce #1811, not in one");
}

TEST_CASE("arbitrary bytes in a pulse page are read safely") {
  std::string page(kPulseBytes, '\xff');
  CHECK(read_pulse(page) == Pulse{});
  const std::uint64_t magic = kPulseMagic;
  std::memcpy(page.data(), &magic, sizeof(magic));
  const Pulse pulse = read_pulse(page);
  CHECK(pulse.doing.find('\xff') == std::string::npos);
  for (std::size_t size = 0; size < sizeof(PulsePage); size += 7)
    CHECK(read_pulse(std::string_view(page).substr(0, size)) == Pulse{});
}

TEST_CASE("a file that cannot be a pulse page is not changed") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.file("short");
  testing::write_file(path, "short");
  CHECK_FALSE(worker::Pulse(path.c_str()).is_on());
  CHECK(testing::read_file(path) == "short");
  CHECK_FALSE(worker::Pulse(directory.file("none").c_str()).is_on());
  CHECK_FALSE(worker::Pulse(nullptr).is_on());
}

TEST_CASE("operations have the same names in a pulse page as elsewhere") {
  for (std::size_t kind = 0; kind <= static_cast<std::size_t>(Operation::AllToAll); ++kind)
    CHECK(kPulseKinds[kind] == to_string(static_cast<Operation>(kind)));
  CHECK(kPulseKinds[kPulseSend] == "send");
  CHECK(kPulseKinds[kPulseRecv] == "recv");
}

}  // namespace drun::agent::hang
