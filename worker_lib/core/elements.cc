#include "drun/elements.h"

namespace drun {

std::size_t size_bytes(DataType type) {
  switch (type) {
    case DataType::U8:
    case DataType::I8:
    case DataType::F8E4M3:
    case DataType::F8E5M2:
      return 1;
    case DataType::I16:
    case DataType::F16:
    case DataType::BF16:
      return 2;
    case DataType::I32:
    case DataType::U32:
    case DataType::F32:
      return 4;
    case DataType::I64:
    case DataType::U64:
    case DataType::F64:
      return 8;
  }
  return 1;
}

bool is_floating_point(DataType type) {
  switch (type) {
    case DataType::F16:
    case DataType::BF16:
    case DataType::F32:
    case DataType::F64:
    case DataType::F8E4M3:
    case DataType::F8E5M2:
      return true;
    default:
      return false;
  }
}

std::string_view to_string(DataType type) {
  constexpr std::string_view kNames[] = {"u8",  "i8",   "i16", "i32", "u32",    "i64",   "u64",
                                         "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2"};
  const auto at = static_cast<std::size_t>(type);
  return at < std::size(kNames) ? kNames[at] : "unknown";
}

std::string_view to_string(ReduceOp op) {
  constexpr std::string_view kNames[] = {"sum",  "product", "min",  "max",
                                         "band", "bor",     "bxor", "avg"};
  const auto at = static_cast<std::size_t>(op);
  return at < std::size(kNames) ? kNames[at] : "unknown";
}

}  // namespace drun
