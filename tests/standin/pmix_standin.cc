// A stand-in for PMIx's client library, with its own copy of pmix_common.h's layouts.
// DRUN_TEST_PMIX selects its behavior. "job": a job of 3, whose rank 0 has put "gpu0/abc" unless
// this rank puts another text. "refuses". "number": rank 0 has put a number. "sizeless". "hangs":
// also writes a byte to the descriptor DRUN_TEST_PMIX_FD, if set. "crashes".
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kUnreachable = -25;
constexpr int kNotFound = -46;
constexpr std::uint16_t kString = 3;
constexpr std::uint16_t kUint32 = 14;

struct Proc {
  char space[256];
  std::uint32_t rank;
};
struct Value {
  std::uint16_t type;
  union {
    bool flag;
    char* text;
    std::uint32_t number;
    char room[24];
  };
};

std::string action() {
  const char* const value = std::getenv("DRUN_TEST_PMIX");
  return value == nullptr ? "" : value;
}

Value answer;
std::string text;

}  // namespace

extern "C" {

int PMIx_Init(Proc* self, void*, std::size_t) {
  if (action() == "refuses") return kUnreachable;
  std::strcpy(self->space, "job@1");
  self->rank = 2;
  return 0;
}

int PMIx_Put(std::uint8_t scope, const char* key, Value* value) {
  if (scope != 3 || value->type != kString || std::strcmp(key, "drun-node-0") != 0)
    return kNotFound;
  text = value->text;
  return 0;
}

int PMIx_Commit() { return 0; }

int PMIx_Fence(const Proc*, std::size_t, const void*, std::size_t) {
  if (action() == "hangs") {
    const char* const fd = std::getenv("DRUN_TEST_PMIX_FD");
    if (fd != nullptr && write(std::atoi(fd), "h", 1) != 1) return kNotFound;
    sleep(100);
  }
  if (action() == "crashes") std::_Exit(3);
  return 0;
}

int PMIx_Get(const Proc* whose, const char* key, const void*, std::size_t, Value** found) {
  *found = &answer;
  if (std::strcmp(whose->space, "job@1") != 0) return kNotFound;
  if (std::strcmp(key, "pmix.job.size") == 0) {
    answer.type = kUint32;
    answer.number = 3;
    return action() == "sizeless" || whose->rank != 0xfffffffe ? kNotFound : 0;
  }
  if (std::strcmp(key, "drun-node-0") != 0 || whose->rank != 0) return kNotFound;
  answer.type = action() == "number" ? kUint32 : kString;
  if (text.empty()) text = "gpu0/abc";
  answer.text = text.data();
  return 0;
}

int PMIx_Finalize(const void*, std::size_t) { return 0; }

const char* PMIx_Error_string(int status) {
  return status == kUnreachable ? "UNREACHABLE" : "NOT-FOUND";
}
}
