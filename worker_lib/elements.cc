#include "drun/elements.h"

namespace drun {

std::size_t size_bytes(DataType type) {
  switch (type) {
    case DataType::U8:
    case DataType::I8:
      return 1;
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

std::string_view to_string(DataType type) {
  switch (type) {
    case DataType::U8:
      return "u8";
    case DataType::I8:
      return "i8";
    case DataType::I32:
      return "i32";
    case DataType::U32:
      return "u32";
    case DataType::I64:
      return "i64";
    case DataType::U64:
      return "u64";
    case DataType::F32:
      return "f32";
    case DataType::F64:
      return "f64";
  }
  return "unknown";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return "sum";
    case ReduceOp::Product:
      return "product";
    case ReduceOp::Min:
      return "min";
    case ReduceOp::Max:
      return "max";
  }
  return "unknown";
}

}  // namespace drun
