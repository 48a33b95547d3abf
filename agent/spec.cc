#include "agent/spec.h"

#include <array>
#include <cstddef>

namespace drun {

std::string ranges_text(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
    end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[begin]);
    if (end - begin > 1) text += "-" + std::to_string(numbers[end - 1]);
  }
  return text;
}

const char* to_string(MemoryPolicy policy) {
  constexpr std::array kWords{"none", "prefer", "strict"};
  return kWords.at(static_cast<std::size_t>(policy));
}

}  // namespace drun
