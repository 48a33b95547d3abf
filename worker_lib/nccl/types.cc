#include "worker_lib/nccl/types.h"

#include "worker_lib/nccl/abi.h"

namespace drun::worker::nccl {
namespace {

constexpr char kWhoCan[] = "; copy it to memory of the host, where shm and gloo can";

}  // namespace

bool is_float8(DataType type) { return type == DataType::F8E4M3 || type == DataType::F8E5M2; }

bool is_reduction(Operation operation) {
  return operation == Operation::AllReduce || operation == Operation::Reduce ||
         operation == Operation::ReduceScatter;
}

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
    case DataType::F8E4M3:
      return kF8E4M3;
    case DataType::F8E5M2:
      return kF8E5M2;
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
  const bool is_known = type != DataType::I16 && !is_float8(type);
  if (!is_known) return {.type = kU8, .units = size_bytes(type)};
  return {.type = number_of(type), .units = 1};
}

std::string refusal(const Call& call) {
  if (!is_reduction(call.operation)) return {};
  if (call.op == ReduceOp::Band || call.op == ReduceOp::Bor || call.op == ReduceOp::Bxor) {
    return "NCCL has no " + std::string(to_string(call.op)) + kWhoCan;
  }
  if (call.type == DataType::I16) return std::string("NCCL reduces no i16") + kWhoCan;
  return {};
}

std::string float8_refusal(int version, int capability) {
  if (version < kFirstFloat8Version) {
    return "NCCL reduces no numbers of 8 bits before 2.24" + std::string(kWhoCan);
  }
  if (capability >= kFirstFloat8Capability) return {};
  return "NCCL reduces no numbers of 8 bits on a GPU of compute capability " +
         std::to_string(capability) + ".x; 9.0 or later can" + kWhoCan;
}

std::string refusal(bool is_from_anyone, int tag) {
  if (is_from_anyone) return std::string("NCCL does not receive from anyone") + kWhoCan;
  if (tag != 0) return "NCCL has no tags, and this is " + std::to_string(tag) + kWhoCan;
  return {};
}

}  // namespace drun::worker::nccl
