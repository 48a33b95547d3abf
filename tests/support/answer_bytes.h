// Encodes a store's answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/wire.h"

namespace drun::test {

inline std::string answer_bytes(const store::Answer& answer) {
  OutQueue out;
  encode(answer, out);
  std::vector<std::string_view> pieces;
  out.front(1000, pieces);
  std::string bytes;
  for (const std::string_view piece : pieces) bytes += piece;
  return bytes;
}

}  // namespace drun::test
