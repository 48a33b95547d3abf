// core. Converts a DataType to its C++ type.
// Thread: any.
#pragma once

#include <cstdint>

#include "drun/elements.h"

namespace drun::worker {

// Calls `visit` with a value of the C++ type of `type`.
template <typename Visitor>
void with_type(DataType type, Visitor&& visit) {
  switch (type) {
    case DataType::U8:
      return visit(std::uint8_t{});
    case DataType::I8:
      return visit(std::int8_t{});
    case DataType::I16:
      return visit(std::int16_t{});
    case DataType::I32:
      return visit(std::int32_t{});
    case DataType::U32:
      return visit(std::uint32_t{});
    case DataType::I64:
      return visit(std::int64_t{});
    case DataType::U64:
      return visit(std::uint64_t{});
    case DataType::F16:
      return visit(Float16{});
    case DataType::BF16:
      return visit(BFloat16{});
    case DataType::F32:
      return visit(float{});
    case DataType::F64:
      return visit(double{});
    case DataType::F8E4M3:
      return visit(Float8E4M3{});
    case DataType::F8E5M2:
      return visit(Float8E5M2{});
  }
}

}  // namespace drun::worker
