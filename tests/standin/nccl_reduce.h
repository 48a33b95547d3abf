// core. The reductions of the NCCL stand-in, one rank after the other.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

#include "worker_lib/math/with_type.h"
#include "worker_lib/nccl/abi.h"

namespace standin {

inline drun::DataType type_of(int type) {
  using drun::DataType;
  using namespace drun::worker::nccl;
  switch (type) {
    case kI8:
      return DataType::I8;
    case kI32:
      return DataType::I32;
    case kU32:
      return DataType::U32;
    case kI64:
      return DataType::I64;
    case kU64:
      return DataType::U64;
    case kF16:
      return DataType::F16;
    case kBF16:
      return DataType::BF16;
    case kF32:
      return DataType::F32;
    case kF64:
      return DataType::F64;
    case kF8E4M3:
      return DataType::F8E4M3;
    case kF8E5M2:
      return DataType::F8E5M2;
    default:
      return DataType::U8;
  }
}

inline std::size_t element_bytes(int type) {
  std::size_t bytes = 0;
  drun::worker::with_type(type_of(type), [&](auto zero) { bytes = sizeof zero; });
  return bytes;
}

template <typename N>
N combine(int op, N left, N right) {
  using namespace drun::worker::nccl;
  if (op == kProduct) return static_cast<N>(left * right);
  if (op == kMax) return left < right ? right : left;
  if (op == kMin) return left < right ? left : right;
  return static_cast<N>(left + right);
}

inline double number_at(const void* data, int type) {
  double number = 0;
  drun::worker::with_type(type_of(type), [&](auto zero) {
    using T = decltype(zero);
    using N = std::conditional_t<std::is_class_v<T>, float, T>;
    T value;
    std::memcpy(&value, data, sizeof value);
    number = static_cast<double>(static_cast<N>(value));
  });
  return number;
}

// Fills `product` with the elements at `data`, times `factor`.
inline void multiply(std::vector<char>& product, const void* data, int type, double factor) {
  drun::worker::with_type(type_of(type), [&](auto zero) {
    using T = decltype(zero);
    using N = std::conditional_t<std::is_class_v<T>, float, T>;
    for (std::size_t at = 0; at < product.size(); at += sizeof(T)) {
      const double number = number_at(static_cast<const char*>(data) + at, type);
      const T result(static_cast<N>(number * factor));
      std::memcpy(product.data() + at, &result, sizeof result);
    }
  });
}

// Reduces `count` elements of each rank, starting at `from`, into `out`.
inline void reduce(const std::vector<std::vector<char>>& all, std::size_t from, std::size_t count,
                   int type, int op, void* out) {
  drun::worker::with_type(type_of(type), [&](auto zero) {
    using T = decltype(zero);
    using N = std::conditional_t<std::is_class_v<T>, float, T>;
    for (std::size_t i = 0; i < count; ++i) {
      const auto number = [&](const std::vector<char>& bytes) {
        T value;
        std::memcpy(&value, bytes.data() + (from + i) * sizeof(T), sizeof(T));
        return static_cast<N>(value);
      };
      N sum = number(all[0]);
      for (std::size_t rank = 1; rank < all.size(); ++rank)
        sum = combine(op, sum, number(all[rank]));
      if (op == drun::worker::nccl::kAverage)
        sum = static_cast<N>(sum / static_cast<N>(all.size()));
      const T result(sum);
      std::memcpy(static_cast<char*>(out) + i * sizeof(T), &result, sizeof(T));
    }
  });
}

}  // namespace standin
