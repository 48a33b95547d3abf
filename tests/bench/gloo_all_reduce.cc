// Measures Gloo's in-place all_reduce (sum of floats) without worker_lib, in the same way as
// `drun-perf all_reduce --backend gloo`.
//
//   gloo_all_reduce HOW STORE INTERFACE MIN_BYTES MAX_BYTES SECONDS
//
// HOW: ring (Gloo's default, which PyTorch uses), bcube, or halving (the older halving-doubling).
// STORE: a new directory that all ranks share. Reads RANK and WORLD_SIZE. Rank 0 prints one line
// "bytes time_us" per size.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Reduction = void (*)(void*, const void*, const void*, std::size_t);
using Context = std::shared_ptr<gloo::Context>;
constexpr int kBlocks = 15;
constexpr int kGuesses = 5;

int number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) throw std::runtime_error(std::string(variable) + " is not set");
  return std::atoi(text);
}

// Newer versions of Gloo take the store by shared pointer.
template <typename Of>
void connect(Of& context, const std::string& directory,
             std::shared_ptr<gloo::transport::Device> device) {
  auto store = std::make_shared<gloo::rendezvous::FileStore>(directory);
  if constexpr (requires { context.connectFullMesh(*store, device); }) {
    context.connectFullMesh(*store, device);
  } else {
    context.connectFullMesh(store, device);
  }
}

// Returns a function that runs one operation. `next` is the tag of the next operation; each
// operation needs a different one.
std::function<void()> all_reduce(const std::string& how, const Context& context,
                                 std::vector<float>& data, std::size_t count, std::uint32_t& next) {
  if (how == "halving") {
    const auto doer = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(
        context, std::vector<float*>{data.data()}, static_cast<int>(count));
    return [doer] { doer->run(); };
  }
  if (how != "ring" && how != "bcube") throw std::runtime_error("unknown algorithm " + how);
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  return [&, algorithm = how == "ring" ? Algorithm::RING : Algorithm::BCUBE, count] {
    gloo::AllreduceOptions options(context);
    options.setOutput(data.data(), count);
    options.setReduceFunction(static_cast<Reduction>(&gloo::sum<float>));
    options.setAlgorithm(algorithm);
    options.setTag(next++);
    gloo::allreduce(options);
  };
}

double seconds_of(const Context& context, const std::function<void()>& once, int times,
                  std::uint32_t& next) {
  gloo::BarrierOptions barrier(context);
  barrier.setTag(next++);
  gloo::barrier(barrier);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < times; ++i) once();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double largest(const Context& context, double value, std::uint32_t& next) {
  gloo::AllreduceOptions options(context);
  options.setOutput(&value, 1);
  options.setReduceFunction(static_cast<Reduction>(&gloo::max<double>));
  options.setTag(next++);
  gloo::allreduce(options);
  return value;
}

void measure(char** argv) {
  gloo::transport::tcp::attr attributes;
  attributes.iface = argv[3];
  const auto connecting =
      std::make_shared<gloo::rendezvous::Context>(number("RANK"), number("WORLD_SIZE"));
  connect(*connecting, argv[2], gloo::transport::tcp::CreateDevice(attributes));
  const Context context = connecting;
  const std::size_t most = std::stoul(argv[5]);
  std::vector<float> data(most / sizeof(float) + 1);
  std::uint32_t next = 0;
  for (std::size_t bytes = std::stoul(argv[4]); bytes <= most; bytes *= 4) {
    const auto once = all_reduce(argv[1], context, data, bytes / sizeof(float), next);
    double least = seconds_of(context, once, 2, next);
    for (int i = 1; i < kGuesses; ++i) least = std::min(least, seconds_of(context, once, 2, next));
    const double took = largest(context, least / 2, next);
    const int times = static_cast<int>(std::clamp(std::stod(argv[6]) / kBlocks / took, 1.0, 1e6));
    std::vector<double> seconds;
    seconds.reserve(kBlocks);
    for (int i = 0; i < kBlocks; ++i) {
      seconds.push_back(seconds_of(context, once, times, next) / times);
    }
    std::nth_element(seconds.begin(), seconds.begin() + kBlocks / 2, seconds.end());
    const double median = largest(context, seconds[kBlocks / 2], next);
    if (context->rank == 0) std::printf("%zu %.3f\n", bytes, median * 1e6);
    std::fflush(stdout);
  }
  seconds_of(
      context, [] {}, 1, next);  // a barrier: a rank that exits earlier resets its connections
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "gloo_all_reduce HOW STORE INTERFACE MIN_BYTES MAX_BYTES SECONDS\n");
    return 2;
  }
  try {
    measure(argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
