// core. The parts of the C interfaces of NCCL and the CUDA driver that drun uses, as declared in
// their headers, so that drun is built without either and loads both at run time.
//
// Source:  nccl.h of 2.14 to 2.28 and cuda.h of CUDA 11 to 13. Where these headers are installed, a
//          test compares this file with them.
// Handles are described in gpu.h and communicator.h.
#pragma once

#include <climits>
#include <cstddef>
#include <tuple>

namespace drun::worker::cuda {

using Result = int;
using Device = int;
using Address = unsigned long long;  // of device memory
struct ContextTag;
struct StreamTag;
struct EventTag;
using Context = ContextTag*;
using Stream = StreamTag*;  // also the runtime's cudaStream_t
using Event = EventTag*;

constexpr Result kSuccess = 0;
constexpr Result kErrorNotReady = 600;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr int kPointerMemoryType = 2;
constexpr int kPointerIsManaged = 8;
constexpr int kPointerDeviceOrdinal = 9;
constexpr unsigned kMemoryTypeDevice = 2;
constexpr int kCapabilityMajor = 75;  // an attribute of a device
constexpr int kCaptureNone = 0;
constexpr int kCaptureRelaxed = 2;

// The functions of libcuda.so.1; kCudaSymbols has their names.
struct Api {
  Result (*init)(unsigned flags) = nullptr;
  Result (*get_error_string)(Result error, const char** text) = nullptr;
  Result (*device_get_count)(int* count) = nullptr;
  Result (*device_get)(Device* device, int ordinal) = nullptr;
  Result (*device_get_attribute)(int* value, int attribute, Device device) = nullptr;
  Result (*device_pci_bus_id)(char* text, int size_bytes, Device device) = nullptr;
  Result (*primary_context_retain)(Context* context, Device device) = nullptr;
  Result (*primary_context_release)(Device device) = nullptr;
  Result (*context_push)(Context context) = nullptr;
  Result (*context_pop)(Context* context) = nullptr;
  Result (*stream_create)(Stream* stream, unsigned flags) = nullptr;
  Result (*stream_destroy)(Stream stream) = nullptr;
  Result (*stream_wait_event)(Stream stream, Event event, unsigned flags) = nullptr;
  Result (*stream_synchronize)(Stream stream) = nullptr;
  Result (*stream_is_capturing)(Stream stream, int* status) = nullptr;
  Result (*exchange_capture_mode)(int* mode) = nullptr;
  Result (*event_create)(Event* event, unsigned flags) = nullptr;
  Result (*event_destroy)(Event event) = nullptr;
  Result (*event_record)(Event event, Stream stream) = nullptr;
  Result (*event_query)(Event event) = nullptr;
  Result (*memory_allocate)(Address* address, std::size_t size_bytes) = nullptr;
  Result (*memory_free)(Address address) = nullptr;
  Result (*copy_to_device)(Address to, const void* from, std::size_t bytes, Stream s) = nullptr;
  Result (*copy_to_host)(void* to, Address from, std::size_t bytes, Stream s) = nullptr;
  Result (*copy_on_device)(Address to, Address from, std::size_t bytes, Stream s) = nullptr;
  Result (*pointer_get_attribute)(void* value, int attribute, Address address) = nullptr;
};

}  // namespace drun::worker::cuda

namespace drun::worker::nccl {

using Result = int;
struct CommTag;
using Comm = CommTag*;
struct UniqueId {
  char bytes[128] = {};
};

constexpr Result kSuccess = 0;
constexpr Result kSystemError = 2;
constexpr Result kInvalidArgument = 4;
constexpr Result kInvalidUsage = 5;
constexpr Result kRemoteError = 6;
constexpr Result kInProgress = 7;

constexpr int kSum = 0;
constexpr int kProduct = 1;
constexpr int kMax = 2;
constexpr int kMin = 3;
constexpr int kAverage = 4;

constexpr int kScalarHostImmediate = 1;  // where the factor of a premul sum is

constexpr int kI8 = 0;
constexpr int kU8 = 1;
constexpr int kI32 = 2;
constexpr int kU32 = 3;
constexpr int kI64 = 4;
constexpr int kU64 = 5;
constexpr int kF16 = 6;
constexpr int kF32 = 7;
constexpr int kF64 = 8;
constexpr int kBF16 = 9;

constexpr int kF8E4M3 = 10;
constexpr int kF8E5M2 = 11;
constexpr int kFirstFloat8Version = 22400;
constexpr int kFirstFloat8Capability = 9;  // for reductions

constexpr int kNoColor = -1;

// The layout of 2.14, the first version with nonblocking communicators. Later versions accept it by
// its size and version, and use defaults for newer fields.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = INT_MIN;
};
constexpr int kOldestVersion = 21400;

struct Api {
  Result (*get_version)(int* version) = nullptr;
  Result (*get_unique_id)(UniqueId* id) = nullptr;
  Result (*init_rank)(Comm* comm, int size, UniqueId id, int rank, Config* config) = nullptr;
  // Since 2.18; null in older ones.
  Result (*split)(Comm comm, int color, int key, Comm* part, Config* config) = nullptr;
  Result (*destroy)(Comm comm) = nullptr;
  Result (*abort)(Comm comm) = nullptr;
  Result (*get_async_error)(Comm comm, Result* error) = nullptr;
  const char* (*get_error_string)(Result result) = nullptr;
  const char* (*get_last_error)(Comm comm) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
  Result (*create_premul_sum)(int* op, void* scalar, int type, int residence, Comm comm) = nullptr;
  Result (*destroy_op)(int op, Comm comm) = nullptr;
  Result (*all_reduce)(const void* in, void* out, std::size_t count, int type, int op, Comm comm,
                       cuda::Stream stream) = nullptr;
  Result (*broadcast)(const void* in, void* out, std::size_t count, int type, int root, Comm comm,
                      cuda::Stream stream) = nullptr;
  Result (*reduce)(const void* in, void* out, std::size_t count, int type, int op, int root,
                   Comm comm, cuda::Stream stream) = nullptr;
  Result (*all_gather)(const void* in, void* out, std::size_t count, int type, Comm comm,
                       cuda::Stream stream) = nullptr;
  Result (*reduce_scatter)(const void* in, void* out, std::size_t count, int type, int op,
                           Comm comm, cuda::Stream stream) = nullptr;
  Result (*send)(const void* in, std::size_t count, int type, int peer, Comm comm,
                 cuda::Stream stream) = nullptr;
  Result (*recv)(void* out, std::size_t count, int type, int peer, Comm comm,
                 cuda::Stream stream) = nullptr;
};

}  // namespace drun::worker::nccl

namespace drun::worker {

template <typename Member>
struct Symbol {
  const char* name = "";
  Member member = nullptr;
  bool is_needed = true;
};
template <typename Member>
Symbol(const char*, Member) -> Symbol<Member>;
template <typename Member>
Symbol(const char*, Member, bool) -> Symbol<Member>;

// The symbol of each function in the tables.
constexpr auto kCudaSymbols = std::tuple{
    Symbol{"cuInit", &cuda::Api::init},
    Symbol{"cuGetErrorString", &cuda::Api::get_error_string},
    Symbol{"cuDeviceGetCount", &cuda::Api::device_get_count},
    Symbol{"cuDeviceGet", &cuda::Api::device_get},
    Symbol{"cuDeviceGetAttribute", &cuda::Api::device_get_attribute},
    Symbol{"cuDeviceGetPCIBusId", &cuda::Api::device_pci_bus_id},
    Symbol{"cuDevicePrimaryCtxRetain", &cuda::Api::primary_context_retain},
    Symbol{"cuDevicePrimaryCtxRelease_v2", &cuda::Api::primary_context_release},
    Symbol{"cuCtxPushCurrent_v2", &cuda::Api::context_push},
    Symbol{"cuCtxPopCurrent_v2", &cuda::Api::context_pop},
    Symbol{"cuStreamCreate", &cuda::Api::stream_create},
    Symbol{"cuStreamDestroy_v2", &cuda::Api::stream_destroy},
    Symbol{"cuStreamWaitEvent", &cuda::Api::stream_wait_event},
    Symbol{"cuStreamSynchronize", &cuda::Api::stream_synchronize},
    Symbol{"cuStreamIsCapturing", &cuda::Api::stream_is_capturing},
    Symbol{"cuThreadExchangeStreamCaptureMode", &cuda::Api::exchange_capture_mode},
    Symbol{"cuEventCreate", &cuda::Api::event_create},
    Symbol{"cuEventDestroy_v2", &cuda::Api::event_destroy},
    Symbol{"cuEventRecord", &cuda::Api::event_record},
    Symbol{"cuEventQuery", &cuda::Api::event_query},
    Symbol{"cuMemAlloc_v2", &cuda::Api::memory_allocate},
    Symbol{"cuMemFree_v2", &cuda::Api::memory_free},
    Symbol{"cuMemcpyHtoDAsync_v2", &cuda::Api::copy_to_device},
    Symbol{"cuMemcpyDtoHAsync_v2", &cuda::Api::copy_to_host},
    Symbol{"cuMemcpyDtoDAsync_v2", &cuda::Api::copy_on_device},
    Symbol{"cuPointerGetAttribute", &cuda::Api::pointer_get_attribute},
};

constexpr auto kNcclSymbols = std::tuple{
    Symbol{"ncclGetVersion", &nccl::Api::get_version},
    Symbol{"ncclGetUniqueId", &nccl::Api::get_unique_id},
    Symbol{"ncclCommInitRankConfig", &nccl::Api::init_rank},
    Symbol{"ncclCommSplit", &nccl::Api::split, false},
    Symbol{"ncclCommDestroy", &nccl::Api::destroy},
    Symbol{"ncclCommAbort", &nccl::Api::abort},
    Symbol{"ncclCommGetAsyncError", &nccl::Api::get_async_error},
    Symbol{"ncclGetErrorString", &nccl::Api::get_error_string},
    Symbol{"ncclGetLastError", &nccl::Api::get_last_error},
    Symbol{"ncclGroupStart", &nccl::Api::group_start},
    Symbol{"ncclGroupEnd", &nccl::Api::group_end},
    Symbol{"ncclRedOpCreatePreMulSum", &nccl::Api::create_premul_sum},
    Symbol{"ncclRedOpDestroy", &nccl::Api::destroy_op},
    Symbol{"ncclAllReduce", &nccl::Api::all_reduce},
    Symbol{"ncclBroadcast", &nccl::Api::broadcast},
    Symbol{"ncclReduce", &nccl::Api::reduce},
    Symbol{"ncclAllGather", &nccl::Api::all_gather},
    Symbol{"ncclReduceScatter", &nccl::Api::reduce_scatter},
    Symbol{"ncclSend", &nccl::Api::send},
    Symbol{"ncclRecv", &nccl::Api::recv},
};

}  // namespace drun::worker
