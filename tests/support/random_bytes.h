// Random text for wire tests: up to 39 arbitrary bytes.
#pragma once

#include <random>
#include <string>

namespace drun::test {

inline std::string random_bytes(std::mt19937& random) {
  std::string text(random() % 40, '\0');
  for (char& c : text) c = static_cast<char>(random() % 256);
  return text;
}

}  // namespace drun::test
