#include <cstdio>

#include "launcher/version.h"

int main() {
  std::printf("drun %s\n", drun::kVersion);
  return 0;
}
