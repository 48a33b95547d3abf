#include "worker_lib/nccl/types.h"

#include "worker_lib/nccl/abi.h"

namespace drun::worker::nccl {
namespace {

constexpr char kWhoCan[] = "; copy it to memory of the host, where shm and gloo can";

}  // namespace

int number_of(DataType type) {
  switch (type) {
    case DataType::I8:
      return kI8;
    case DataType::I32:
      return kI32;
    case DataType::U32:
      return kU32;
    case DataType::I64:
      return kI64;
    case DataType::U64:
      return kU64;
    case DataType::F16:
      return kF16;
    case DataType::BF16:
      return kBF16;
    case DataType::F32:
      return kF32;
    case DataType::F64:
      return kF64;
    case DataType::U8:
    case DataType::I16:
      break;
  }
  return kU8;
}

int number_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Product:
      return kProduct;
    case ReduceOp::Min:
      return kMin;
    case ReduceOp::Max:
      return kMax;
    case ReduceOp::Avg:
      return kAverage;
    default:
      return kSum;
  }
}

Moved moved_as(DataType type) {
  if (type == DataType::I16) return {.type = kU8, .units = size_bytes(type)};
  return {.type = number_of(type), .units = 1};
}

std::string refusal(const Call& call) {
  const bool is_reduced = call.operation == Operation::AllReduce ||
                          call.operation == Operation::Reduce ||
                          call.operation == Operation::ReduceScatter;
  if (!is_reduced) return "";
  if (call.op == ReduceOp::Band || call.op == ReduceOp::Bor || call.op == ReduceOp::Bxor) {
    return "NCCL has no " + std::string(to_string(call.op)) + kWhoCan;
  }
  if (call.type == DataType::I16) return std::string("NCCL reduces no i16") + kWhoCan;
  return "";
}

std::string refusal(bool is_from_anyone, int tag) {
  if (is_from_anyone) return std::string("NCCL does not receive from anyone") + kWhoCan;
  if (tag != 0) return "NCCL has no tags, and this is " + std::to_string(tag) + kWhoCan;
  return "";
}

}  // namespace drun::worker::nccl
