// Compares abi.h with the headers of NCCL and CUDA, if they are installed.
#include "worker_lib/nccl/abi.h"

#include <cstdint>
#include <string>
#include <type_traits>

#include "drun/half.h"
#include "tests/support/catch.h"

#ifdef DRUN_HAS_NCCL_HEADERS
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#include <cuda.h>
#include <cuda_fp8.h>
#include <nccl.h>
#pragma GCC diagnostic pop

namespace drun::worker {
namespace {

// How an argument is passed: a pointer, a number of N bytes, or a struct of N bytes.
template <typename T>
constexpr int kind_of() {
  if (std::is_pointer_v<T>) return 1000;
  return (std::is_class_v<T> ? 2000 : 0) + static_cast<int>(sizeof(T));
}

template <typename Ours, typename Theirs>
struct IsSame : std::false_type {};
template <typename R1, typename... A1, typename R2, typename... A2>
struct IsSame<R1 (*)(A1...), R2 (*)(A2...)> {
  static constexpr bool fits() {
    if constexpr (sizeof...(A1) != sizeof...(A2)) {
      return false;
    } else {
      return kind_of<R1>() == kind_of<R2>() && ((kind_of<A1>() == kind_of<A2>()) && ...);
    }
  }
  static constexpr bool value = fits();
};

template <typename Ours, typename Theirs>
constexpr bool is_same(Ours, Theirs) {
  return IsSame<Ours, Theirs>::value;
}

constexpr cuda::Api kCuda;
constexpr nccl::Api kNccl;

static_assert(is_same(kCuda.init, &cuInit));
static_assert(is_same(kCuda.get_error_string, &cuGetErrorString));
static_assert(is_same(kCuda.device_get_count, &cuDeviceGetCount));
static_assert(is_same(kCuda.device_get, &cuDeviceGet));
static_assert(is_same(kCuda.device_get_attribute, &cuDeviceGetAttribute));
static_assert(is_same(kCuda.device_pci_bus_id, &cuDeviceGetPCIBusId));
static_assert(is_same(kCuda.primary_context_retain, &cuDevicePrimaryCtxRetain));
static_assert(is_same(kCuda.primary_context_release, &cuDevicePrimaryCtxRelease_v2));
static_assert(is_same(kCuda.context_push, &cuCtxPushCurrent_v2));
static_assert(is_same(kCuda.context_pop, &cuCtxPopCurrent_v2));
static_assert(is_same(kCuda.stream_create, &cuStreamCreate));
static_assert(is_same(kCuda.stream_destroy, &cuStreamDestroy_v2));
static_assert(is_same(kCuda.stream_wait_event, &cuStreamWaitEvent));
static_assert(is_same(kCuda.stream_synchronize, &cuStreamSynchronize));
static_assert(is_same(kCuda.stream_is_capturing, &cuStreamIsCapturing));
static_assert(is_same(kCuda.exchange_capture_mode, &cuThreadExchangeStreamCaptureMode));
static_assert(is_same(kCuda.event_create, &cuEventCreate));
static_assert(is_same(kCuda.event_destroy, &cuEventDestroy_v2));
static_assert(is_same(kCuda.event_record, &cuEventRecord));
static_assert(is_same(kCuda.event_query, &cuEventQuery));
static_assert(is_same(kCuda.memory_allocate, &cuMemAlloc_v2));
static_assert(is_same(kCuda.memory_free, &cuMemFree_v2));
static_assert(is_same(kCuda.copy_to_device, &cuMemcpyHtoDAsync_v2));
static_assert(is_same(kCuda.copy_to_host, &cuMemcpyDtoHAsync_v2));
static_assert(is_same(kCuda.copy_on_device, &cuMemcpyDtoDAsync_v2));
static_assert(is_same(kCuda.pointer_get_attribute, &cuPointerGetAttribute));

static_assert(cuda::kSuccess == CUDA_SUCCESS);
static_assert(cuda::kErrorNotReady == CUDA_ERROR_NOT_READY);
static_assert(cuda::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(cuda::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(cuda::kPointerMemoryType == CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
static_assert(cuda::kPointerIsManaged == CU_POINTER_ATTRIBUTE_IS_MANAGED);
static_assert(cuda::kPointerDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
static_assert(cuda::kMemoryTypeDevice == CU_MEMORYTYPE_DEVICE);
static_assert(cuda::kCapabilityMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(cuda::kCaptureNone == CU_STREAM_CAPTURE_STATUS_NONE);
static_assert(cuda::kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);
static_assert(sizeof(cuda::Address) == sizeof(CUdeviceptr));

static_assert(is_same(kNccl.get_version, &ncclGetVersion));
static_assert(is_same(kNccl.get_unique_id, &ncclGetUniqueId));
static_assert(is_same(kNccl.init_rank, &ncclCommInitRankConfig));
static_assert(is_same(kNccl.split, &ncclCommSplit));
static_assert(is_same(kNccl.destroy, &ncclCommDestroy));
static_assert(is_same(kNccl.abort, &ncclCommAbort));
static_assert(is_same(kNccl.get_async_error, &ncclCommGetAsyncError));
static_assert(is_same(kNccl.get_error_string, &ncclGetErrorString));
static_assert(is_same(kNccl.get_last_error, &ncclGetLastError));
static_assert(is_same(kNccl.group_start, &ncclGroupStart));
static_assert(is_same(kNccl.group_end, &ncclGroupEnd));
static_assert(is_same(kNccl.create_premul_sum, &ncclRedOpCreatePreMulSum));
static_assert(is_same(kNccl.destroy_op, &ncclRedOpDestroy));
static_assert(is_same(kNccl.all_reduce, &ncclAllReduce));
static_assert(is_same(kNccl.broadcast, &ncclBroadcast));
static_assert(is_same(kNccl.reduce, &ncclReduce));
static_assert(is_same(kNccl.all_gather, &ncclAllGather));
static_assert(is_same(kNccl.reduce_scatter, &ncclReduceScatter));
static_assert(is_same(kNccl.send, &ncclSend));
static_assert(is_same(kNccl.recv, &ncclRecv));

static_assert(nccl::kSuccess == ncclSuccess);
static_assert(nccl::kSystemError == ncclSystemError);
static_assert(nccl::kInvalidArgument == ncclInvalidArgument);
static_assert(nccl::kInvalidUsage == ncclInvalidUsage);
static_assert(nccl::kRemoteError == ncclRemoteError);
static_assert(nccl::kInProgress == ncclInProgress);
static_assert(nccl::kSum == ncclSum && nccl::kProduct == ncclProd && nccl::kMax == ncclMax);
static_assert(nccl::kMin == ncclMin && nccl::kAverage == ncclAvg);
static_assert(nccl::kI8 == ncclInt8 && nccl::kU8 == ncclUint8 && nccl::kI32 == ncclInt32);
static_assert(nccl::kU32 == ncclUint32 && nccl::kI64 == ncclInt64 && nccl::kU64 == ncclUint64);
static_assert(nccl::kF16 == ncclFloat16 && nccl::kF32 == ncclFloat32);
static_assert(nccl::kF64 == ncclFloat64 && nccl::kBF16 == ncclBfloat16);
#if NCCL_VERSION_CODE >= 22400
static_assert(nccl::kF8E4M3 == ncclFloat8e4m3 && nccl::kF8E5M2 == ncclFloat8e5m2);
#endif
static_assert(nccl::kScalarHostImmediate == ncclScalarHostImmediate);
static_assert(nccl::kNoColor == NCCL_SPLIT_NOCOLOR);
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));

}  // namespace

TEST_CASE("NCCL's config matches the installed headers") {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const nccl::Config ours;
  CHECK(offsetof(nccl::Config, magic) == offsetof(ncclConfig_t, magic));
  CHECK(offsetof(nccl::Config, version) == offsetof(ncclConfig_t, version));
  CHECK(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
  CHECK(sizeof ours <= sizeof theirs);
  CHECK(ours.magic == theirs.magic);
  CHECK(ours.blocking == theirs.blocking);
  CHECK(ours.version == NCCL_VERSION(2, 14, 0));
}

TEST_CASE("the types of 8 bits convert as CUDA converts them") {
  int wrong = 0;
  for (int i = 0; i < 256; ++i) {
    const auto bits = static_cast<std::uint8_t>(i);
    __nv_fp8_e4m3 e4m3;
    e4m3.__x = bits;
    __nv_fp8_e5m2 e5m2;
    e5m2.__x = bits;
    const auto same = [](float a, float b) { return a == b || (a != a && b != b); };
    if (!same(Float8E4M3::to_float(bits), static_cast<float>(e4m3))) ++wrong;
    if (!same(Float8E5M2::to_float(bits), static_cast<float>(e5m2))) ++wrong;
  }
  // Every 4093rd float without the NaNs.
  for (std::uint32_t x = 0; x < 0x7F800000u; x += 4093) {
    for (const float value : {detail::float_of(static_cast<std::int32_t>(x)),
                              -detail::float_of(static_cast<std::int32_t>(x))}) {
      if (Float8E4M3(value).bits != __nv_fp8_e4m3(value).__x) ++wrong;
      if (Float8E5M2(value).bits != __nv_fp8_e5m2(value).__x) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

// The headers rename some functions to versioned ones such as cuMemAlloc_v2.
#define DRUN_TEXT(name) #name
#define DRUN_NAME(name) std::string(DRUN_TEXT(name))
TEST_CASE("functions are looked up by the names in the headers") {
  const std::string names[] = {
      DRUN_NAME(cuInit),
      DRUN_NAME(cuGetErrorString),
      DRUN_NAME(cuDeviceGetCount),
      DRUN_NAME(cuDeviceGet),
      DRUN_NAME(cuDeviceGetAttribute),
      DRUN_NAME(cuDeviceGetPCIBusId),
      DRUN_NAME(cuDevicePrimaryCtxRetain),
      DRUN_NAME(cuDevicePrimaryCtxRelease),
      DRUN_NAME(cuCtxPushCurrent),
      DRUN_NAME(cuCtxPopCurrent),
      DRUN_NAME(cuStreamCreate),
      DRUN_NAME(cuStreamDestroy),
      DRUN_NAME(cuStreamWaitEvent),
      DRUN_NAME(cuStreamSynchronize),
      DRUN_NAME(cuStreamIsCapturing),
      DRUN_NAME(cuThreadExchangeStreamCaptureMode),
      DRUN_NAME(cuEventCreate),
      DRUN_NAME(cuEventDestroy),
      DRUN_NAME(cuEventRecord),
      DRUN_NAME(cuEventQuery),
      DRUN_NAME(cuMemAlloc),
      DRUN_NAME(cuMemFree),
      DRUN_NAME(cuMemcpyHtoDAsync),
      DRUN_NAME(cuMemcpyDtoHAsync),
      DRUN_NAME(cuMemcpyDtoDAsync),
      DRUN_NAME(cuPointerGetAttribute),
  };
  std::apply(
      [&names](const auto&... symbol) {
        const std::string ours[] = {symbol.name...};
        REQUIRE(std::size(ours) == std::size(names));
        for (std::size_t i = 0; i < std::size(ours); ++i) CHECK(ours[i] == names[i]);
      },
      kCudaSymbols);
}

}  // namespace drun::worker

#else

TEST_CASE("without the headers NCCL's config is not checked") {
  WARN("skipped: nccl.h and cuda.h are not installed here");
}

#endif
