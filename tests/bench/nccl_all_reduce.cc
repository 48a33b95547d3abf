// Measures in-place ncclAllReduce (sum of floats), in the same way as `drun-perf all_reduce
// --device cuda`. Uses worker_lib only to load NCCL and the driver and to connect to the job's
// store.
//
//   nccl_all_reduce                                     prints the number of GPUs
//   nccl_all_reduce HOW MIN_BYTES MAX_BYTES SECONDS     in a job: rank 0 prints results
//
// A result is one line "bytes time_us" per size.
//
// HOW: "blocking" communicators, as in nccl-tests and most programs; "nonblocking" ones: each call
// is followed by queries until it is no longer in progress; or "child": a blocking communicator
// that is split from a nonblocking one.
// Without NCCL or a GPU, prints the reason and exits with code 1.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "drun/key_store.h"
#include "drun/record.h"
#include "worker_lib/nccl/gpu.h"
#include "worker_lib/nccl/library.h"

namespace drun::worker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{60};
constexpr int kBlocks = 15;
constexpr int kGuesses = 5;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) throw std::runtime_error(std::string(name) + " is not set: start with drun");
  return text;
}

nccl::UniqueId shared_id(int rank) {
  const auto store =
      connect_key_store(variable("MASTER_ADDR"),
                        static_cast<std::uint16_t>(std::stoi(variable("MASTER_PORT"))), kPatience);
  const std::string key = "bare-nccl";
  nccl::UniqueId id;
  if (rank == 0) {
    if (need_nccl().get_unique_id(&id) != nccl::kSuccess) throw std::runtime_error("no unique id");
    store->set(key, std::string(id.bytes, sizeof id.bytes), kPatience);
    return id;
  }
  store->get(key, kPatience).copy(id.bytes, sizeof id.bytes);
  return id;
}

class Bare {
 public:
  Bare(std::shared_ptr<const Gpu> gpu, const std::string& how, std::size_t most_bytes)
      : gpu_(std::move(gpu)),
        api_(need_nccl()),
        stream_(gpu_),
        data_(gpu_, most_bytes),
        one_(gpu_, sizeof(double)) {
    const std::vector<char> zeros(most_bytes);
    data_.write(zeros.data(), zeros.size());
    const int rank = std::stoi(variable("RANK"));
    nccl::Config config;
    config.blocking = how == "blocking" ? 1 : 0;
    const nccl::UniqueId id = shared_id(rank);
    must(api_.init_rank(&comm_, std::stoi(variable("WORLD_SIZE")), id, rank, &config));
    if (how != "child") return;
    config.blocking = 1;
    nccl::Comm child = nullptr;
    const nccl::Result said = api_.split(comm_, 0, rank, &child, &config);
    must(said == nccl::kSuccess ? nccl::kInProgress : said);  // of comm_
    parent_ = std::exchange(comm_, child);
  }
  ~Bare() {
    stream_.synchronize();
    api_.abort(comm_);
    if (parent_ != nullptr) api_.abort(parent_);
  }
  Bare(const Bare&) = delete;
  Bare& operator=(const Bare&) = delete;

  double seconds_of(std::size_t count, int times) {
    largest(0);  // a barrier
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < times; ++i) {
      must(api_.all_reduce(data_.data(), data_.data(), count, nccl::kF32, nccl::kSum, comm_,
                           stream_.get()));
    }
    stream_.synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  double largest(double value) {
    one_.write(&value, sizeof value);
    must(
        api_.all_reduce(one_.data(), one_.data(), 1, nccl::kF64, nccl::kMax, comm_, stream_.get()));
    stream_.synchronize();
    one_.read(&value, sizeof value);
    return value;
  }

 private:
  void must(nccl::Result said) {
    while (said == nccl::kInProgress) {
      if (api_.get_async_error(comm_, &said) != nccl::kSuccess) said = nccl::kSystemError;
    }
    if (said == nccl::kSuccess) return;
    throw std::runtime_error(std::string("NCCL: ") + api_.get_error_string(said) + ": " +
                             api_.get_last_error(comm_));
  }

  const std::shared_ptr<const Gpu> gpu_;
  const nccl::Api& api_;
  const OwnStream stream_;
  const GpuMemory data_;
  const GpuMemory one_;
  nccl::Comm comm_ = nullptr;
  nccl::Comm parent_ = nullptr;
};

void measure(const std::string& how, std::size_t least, std::size_t most, double budget) {
  if (how != "blocking" && how != "nonblocking" && how != "child") {
    throw std::runtime_error("\"" + how + "\" is not one of blocking, nonblocking, child");
  }
  const bool speaks = variable("RANK") == "0";
  const auto gpu = std::make_shared<Gpu>(std::stoi(variable("LOCAL_RANK")) % gpu_count());
  const Current current(*gpu);
  Bare bare(gpu, how, most);
  for (std::size_t bytes = least; bytes <= most; bytes *= 4) {
    const std::size_t count = bytes / sizeof(float);
    bare.seconds_of(count, 2);  // NCCL opens the connections that it needs for this size
    double guess = bare.seconds_of(count, 2);
    for (int i = 1; i < kGuesses; ++i) guess = std::min(guess, bare.seconds_of(count, 2));
    const double once = bare.largest(guess / 2);
    const int times = static_cast<int>(std::clamp(budget / kBlocks / once, 1.0, 1e4));
    std::vector<double> seconds;
    seconds.reserve(kBlocks);
    for (int i = 0; i < kBlocks; ++i) seconds.push_back(bare.seconds_of(count, times) / times);
    std::nth_element(seconds.begin(), seconds.begin() + kBlocks / 2, seconds.end());
    const double median = bare.largest(seconds[kBlocks / 2]);
    if (speaks) std::printf("%zu %.3f\n", bytes, median * 1e6);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace drun::worker

int main(int argc, char** argv) {
  return drun::record([&] {
    if (argc == 1) {
      drun::worker::need_nccl();
      std::printf("%d\n", drun::worker::gpu_count());
    } else if (argc == 5) {
      drun::worker::measure(argv[1], std::stoul(argv[2]), std::stoul(argv[3]), std::stod(argv[4]));
    } else {
      throw std::runtime_error("nccl_all_reduce [HOW MIN_BYTES MAX_BYTES SECONDS]");
    }
  });
}
