// The measure of a node's speed.
#include <cstring>

#include "agent/hang/heartbeat_files.h"
#include "agent/speed/processors.h"
#include "agent/speed/speed_watch.h"
#include "rendezvous/base/pulse_page.h"
#include "tests/support/catch.h"

namespace drun::agent {
namespace {

using namespace std::chrono_literals;

SpeedSample in_calls(std::uint64_t begun, std::chrono::milliseconds time) {
  return {.is_running = true, .calls = {.begun = begun, .in_calls = time}};
}
SpeedSample at_step(std::optional<std::uint64_t> step) {
  return {.is_running = true, .step = step};
}
SpeedSample in_nccl(NcclPosition stand, std::uint64_t progress) {
  return {.is_running = true, .nccl = {.is_known = true, .stand = stand, .progress = progress}};
}

NodeSpeed speed_of(const std::vector<SpeedSample>& before, const std::vector<SpeedSample>& now) {
  NodeSpeed speed{.length = 10s};
  compare(before, now, speed);
  return speed;
}

std::string bytes_of(const PulsePage& page) {
  std::string bytes(kPulseBytes, '\0');
  std::memcpy(bytes.data(), &page, sizeof(page));
  return bytes;
}

}  // namespace

TEST_CASE("the time outside calls is measured where most workers use worker_lib") {
  const NodeSpeed speed = speed_of({in_calls(7, 1s), in_calls(7, 1s), at_step(1)},
                                   {in_calls(9, 3500ms), in_calls(9, 40s), at_step(5)});
  CHECK(speed.measure == SpeedMeasure::OwnTime);
  CHECK(speed.has_progress);
  CHECK(speed.amounts == std::vector<int>{7500, 1, 0});
  CHECK_FALSE(speed_of({in_calls(7, 0s)}, {in_calls(7, 9s)}).has_progress);
}

TEST_CASE("the position in NCCL counts if the rank has moved since the answer before") {
  using enum NcclPosition;
  const NodeSpeed speed =
      speed_of({in_nccl(None, 1), in_nccl(Ahead, 1), in_nccl(Behind, 1), at_step(1)},
               {in_nccl(Behind, 2), in_nccl(Ahead, 3), in_nccl(Behind, 1), at_step(2)});
  CHECK(speed.measure == SpeedMeasure::Nccl);
  CHECK(speed.amounts == std::vector<int>{2, 1, 0, 0});
}

TEST_CASE("steps are counted otherwise, and ended workers are not") {
  SpeedSample ended;
  const NodeSpeed speed = speed_of({at_step(3), at_step(3), at_step(std::nullopt), at_step(3)},
                                   {at_step(9), at_step(2), at_step(9), ended});
  CHECK(speed.measure == SpeedMeasure::Steps);
  CHECK(speed.amounts == std::vector<int>{6, 0, 0, 0});
  CHECK(speed_of({at_step(3)}, {at_step(3)}).measure == SpeedMeasure::None);
  CHECK(speed_of({}, {at_step(3)}).measure == SpeedMeasure::None);
}

TEST_CASE("the time in calls includes the call that has not returned") {
  PulsePage page{.magic = kPulseMagic, .begun = 12};
  page.waited_ns = 2'000'000'000;
  CHECK(read_call_times(bytes_of(page), 100s) == CallTimes{.begun = 12, .in_calls = 2s});
  page.waiting_since_ns = 97'000'000'000;
  CHECK(read_call_times(bytes_of(page), 100s) == CallTimes{.begun = 12, .in_calls = 5s});
  page.waiting_since_ns = 200'000'000'000;
  CHECK(read_call_times(bytes_of(page), 100s) == CallTimes{.begun = 12, .in_calls = 2s});
  page.waited_ns = page.waiting_since_ns = ~std::uint64_t{0};
  CHECK(read_call_times(bytes_of(page), 100s).in_calls.count() > 0);
  page.magic = 1;
  CHECK(read_call_times(bytes_of(page), 100s) == CallTimes{});
  CHECK(read_call_times("", 100s) == CallTimes{});
}

TEST_CASE("stolen and throttled time are shares of the processor time that was wanted") {
  ProcessorTimes before;
  read_proc_stat("cpu  1000 0 0 5000 100 0 0 50 7 7\ncpu0 1 1\n", 100, before);
  CHECK(before == ProcessorTimes{.busy_us = 10'000'000, .stolen_us = 500'000});
  ProcessorTimes now;
  read_proc_stat("cpu  1500 100 100 9000 200 50 50 250 7 7\n", 100, now);
  read_cpu_stat("usage_usec 9000000\nnr_throttled 9\nthrottled_usec 3000000\n", now);
  read_cpu_stat("usage_usec 6000000\nthrottled_usec 1000000\n", before);
  NodeSpeed speed{.length = 10s};
  compare(before, now, speed);
  CHECK(speed.stolen_permille == 200);  // 2 s of 10 s
  CHECK(speed.throttled_permille == 400);
  CHECK_FALSE(speed.is_hot);
  SECTION("an idle node lacks nothing") {
    now.busy_us = before.busy_us + 1'000'000;
    now.stolen_us = before.stolen_us + 1'000'000;
    compare(before, now, speed);
    CHECK(speed.stolen_permille == 0);
  }
  SECTION("a count that was reset") {
    compare(now, {}, speed);
    CHECK(speed.stolen_permille == 0);
    CHECK(speed.throttled_permille == 0);
  }
}

TEST_CASE("cgroup version 1 reports throttled time in nanoseconds and no usage") {
  ProcessorTimes before{.busy_us = 1'000'000};
  ProcessorTimes now{.busy_us = 7'000'000};
  read_cpu_stat("nr_periods 10\nnr_throttled 2\nthrottled_time 6000000000\n", now);
  NodeSpeed speed{.length = 10s};
  compare(before, now, speed);
  CHECK(speed.throttled_permille == 500);
  read_cpu_stat("garbage\n\nthrottled_usec x", now);
  read_proc_stat("intr 5", 100, now);
}

}  // namespace drun::agent
