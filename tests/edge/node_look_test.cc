#include "agent/hang/node_look.h"

#include <unistd.h>

#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/machine.h"
#include "tests/support/raw_socket.h"
#include "tests/support/stalling_file_system.h"

namespace drun::agent {
namespace {

using namespace std::chrono_literals;

// A worker that has exited, and a RAS service that accepts connections and sends nothing.
struct LookRig {
  LookRig() {
    spec.worker.environment = {{"NCCL_RAS_ADDR", "127.0.0.1:" + std::to_string(silent.port())}};
    service.emplace(io, Log(), spec);
    look.emplace(io, *service, flights, collector, [] {});
  }
  void take() {
    look->take({.pids = {0}}, [this](const NodeLook::Found& found) {
      ++answers;
      workers = found.stacks.workers.size();
      notes = found.stacks.notes;
      CHECK(found.nccl.positions.empty());
    });
  }

  RawSocket silent = RawSocket::listening();
  asio::io_context io{1};
  AgentSpec spec;
  std::vector<std::string> environment;
  FlightRequests flights{io, Log(), spec};
  StackCollector collector{io, environment};
  std::optional<ras::Service> service;
  std::optional<NodeLook> look;
  int answers = 0;
  std::size_t workers = 0;
  std::vector<std::string> notes;
};

}  // namespace

TEST_CASE("a look continues without a silent RAS service, and every caller gets the result") {
  LookRig rig;
  const auto began = std::chrono::steady_clock::now();
  rig.take();
  rig.take();
  CHECK(rig.answers == 0);
  REQUIRE(test::run_until(rig.io, [&] { return rig.answers == 2; }));
  CHECK(rig.workers == 1);
  CHECK(std::chrono::steady_clock::now() - began < test::scaled(9s));
  rig.take();
  CHECK(test::run_until(rig.io, [&] { return rig.answers == 3; }));
}

TEST_CASE("a look that is stopped before stacks are read answers at once without any") {
  LookRig rig;
  rig.take();
  rig.look->stop();
  CHECK(rig.answers == 1);
  CHECK(rig.workers == 0);
  CHECK(rig.notes.size() == 1);
  rig.service->stop();
  rig.io.restart();
  rig.io.run();  // returns: nothing is pending
  CHECK(rig.answers == 1);
  // The stopped look does not disturb the next one.
  rig.spec.worker.environment = {{"NCCL_RAS_ENABLE", "0"}};
  ras::Service off(rig.io, Log(), rig.spec);
  NodeLook next(rig.io, off, rig.flights, rig.collector, [] {});
  int answers = 0;
  next.take({.pids = {0}}, [&](const NodeLook::Found& found) {
    ++answers;
    CHECK(found.stacks.workers.size() == 1);
  });
  CHECK(test::run_until(rig.io, [&] { return answers == 1; }));
}

TEST_CASE("a look continues without dumps from a file system that hangs") {
  const test::StallingFileSystem files;
  if (!files.is_mounted()) {
    WARN("skipped: cannot mount a FUSE file system: " << files.why());
    return;
  }
  asio::io_context io{1};
  AgentSpec spec;
  spec.hang_timeout = 3s;
  spec.worker.environment = {{"NCCL_RAS_ENABLE", "0"}, {"TORCH_FR_DUMP_TEMP_FILE", files / "fr_"}};
  const std::vector<std::string> environment;
  FlightRequests flights(io, Log(), spec);
  World world;
  world.local_world_size = 1;
  REQUIRE(flights.prepare(world));
  ras::Service service(io, Log(), spec);
  StackCollector collector(io, environment);
  int ends_of_dumps = 0;
  NodeLook look(io, service, flights, collector, [&] { ++ends_of_dumps; });
  files.stall();
  for (int number = 1; number <= 2; ++number) {
    CAPTURE(number);
    int answers = 0;
    look.take({.pids = {0}}, [&](const NodeLook::Found& found) {
      ++answers;
      CHECK(found.stacks.workers.size() == 1);
    });
    CHECK(test::run_until(io, [&] { return answers == 1; }));
    CHECK(ends_of_dumps == number);
  }
  // The hanging request does not keep the loop running.
  flights.close();
  io.restart();
  CHECK(test::run_until(io, [&] { return io.stopped(); }));
  files.resume();
}

}  // namespace drun::agent
