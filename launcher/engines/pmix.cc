#include "launcher/engines/pmix.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "launcher/engines/reading.h"
#include "launcher/library_function.h"
#include "rendezvous/unique_fd.h"

namespace drun::engines {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kMostAnswerBytes = 4096;

// What pmix_common.h has, as far as it is used.
constexpr std::uint8_t kGlobal = 3;
constexpr std::uint16_t kBool = 1;
constexpr std::uint16_t kString = 3;
constexpr std::uint16_t kUint32 = 14;
constexpr std::uint32_t kAnyRank = 0xfffffffe;

struct Proc {
  std::array<char, 256> space{};
  std::uint32_t rank = 0;
};
struct Value {
  std::uint16_t type = 0;
  union {
    bool flag;
    const char* text;
    std::uint32_t number;
    std::array<char, 24> room{};
  };
};
struct Info {
  std::array<char, 512> key{};
  std::uint32_t flags = 0;
  Value value{};
};
static_assert(sizeof(Proc) == 260 && sizeof(Value) == 32 && offsetof(Value, room) == 8 &&
              sizeof(Info) == 552);

struct Functions {
  int (*init)(Proc*, Info*, std::size_t) = nullptr;
  int (*put)(std::uint8_t, const char*, Value*) = nullptr;
  int (*commit)() = nullptr;
  int (*fence)(const Proc*, std::size_t, const Info*, std::size_t) = nullptr;
  int (*get)(const Proc*, const char*, const Info*, std::size_t, Value**) = nullptr;
  int (*finalize)(const Info*, std::size_t) = nullptr;
  const char* (*words)(int) = nullptr;

  bool are_all() const { return init && put && commit && fence && get && finalize && words; }
};

Functions functions_of(void* library) {
  Functions found;
  find_function(library, "PMIx_Init", found.init);
  find_function(library, "PMIx_Put", found.put);
  find_function(library, "PMIx_Commit", found.commit);
  find_function(library, "PMIx_Fence", found.fence);
  find_function(library, "PMIx_Get", found.get);
  find_function(library, "PMIx_Finalize", found.finalize);
  find_function(library, "PMIx_Error_string", found.words);
  return found;
}

// The talk, in the process of its own. Its answer is a letter and a text: "M3 TEXT" what was met,
// "U..." no library, or none that the launcher talks to, "R..." a refusal.
class PmixTalk {
 public:
  explicit PmixTalk(const Functions& pmix) : pmix_(pmix) {}

  std::string hold(const std::optional<std::string>& told) {
    Proc self;
    // A library of another version than the launcher's own, say: as if there were none.
    if (!is_good("PMIx_Init", pmix_.init(&self, nullptr, 0))) return "U" + refusal_.substr(1);
    const std::string answer = exchange(self, told);
    // An engine takes a process that says no farewell for one that has crashed.
    pmix_.finalize(nullptr, 0);
    return answer;
  }

 private:
  std::string exchange(const Proc& self, const std::optional<std::string>& told) {
    if (told && !put(*told)) return refusal_;
    Info collect{.value = {.type = kBool, .flag = true}};
    std::strcpy(collect.key.data(), "pmix.collect");
    if (!is_good("PMIx_Fence", pmix_.fence(nullptr, 0, &collect, 1))) return refusal_;
    Proc first = self;
    first.rank = 0;
    Value* text = nullptr;
    if (!is_good("PMIx_Get", pmix_.get(&first, kMeetingKey, nullptr, 0, &text))) return refusal_;
    if (text == nullptr || text->type != kString || text->text == nullptr)
      return "Rrank 0 has told no text";
    return "M" + std::to_string(processes(self)) + " " + text->text;
  }

  bool put(const std::string& told) {
    Value value{.type = kString, .text = told.c_str()};
    return is_good("PMIx_Put", pmix_.put(kGlobal, kMeetingKey, &value)) &&
           is_good("PMIx_Commit", pmix_.commit());
  }

  // 0: the engine does not say.
  std::uint32_t processes(const Proc& self) {
    Proc job = self;
    job.rank = kAnyRank;
    Value* size = nullptr;
    const int status = pmix_.get(&job, "pmix.job.size", nullptr, 0, &size);
    return status == 0 && size != nullptr && size->type == kUint32 ? size->number : 0;
  }

  bool is_good(const char* function, int status) {
    if (status != 0) refusal_ = std::string("R") + function + ": " + pmix_.words(status);
    return status == 0;
  }

  const Functions& pmix_;
  std::string refusal_;
};

std::string answer_of(const std::optional<std::string>& told, const std::string& library) {
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);  // its plug-ins look for it
  if (loaded == nullptr) return std::string("U") + dlerror();
  const Functions pmix = functions_of(loaded);
  if (!pmix.are_all()) return "U" + library + " lacks a function";
  return PmixTalk(pmix).hold(told);
}

[[noreturn]] void talk(int to, const std::optional<std::string>& told, const std::string& library) {
  const std::string answer = answer_of(told, library);
  const auto written = write(to, answer.data(), std::min(answer.size(), kMostAnswerBytes));
  _exit(written < 0 ? 1 : 0);
}

// What it writes until it ends; absent: the time was over.
std::optional<std::string> read_all(int from, Clock::time_point deadline) {
  std::string text;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd one{.fd = from, .events = POLLIN, .revents = 0};
    const int ready = poll(&one, 1, static_cast<int>(std::max<milliseconds::rep>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    std::array<char, kMostAnswerBytes> piece;
    const auto count = read(from, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || text.size() > kMostAnswerBytes) return text;
    text.append(piece.data(), static_cast<std::size_t>(count));
  }
}

Result<Met> understood(const std::string& answer) {
  const char kind = answer.empty() ? ' ' : answer.front();
  const std::string rest = answer.substr(answer.empty() ? 0 : 1);
  const std::size_t blank = rest.find(' ');
  if (kind == 'M' && blank != rest.npos) {
    const auto processes = whole_number(rest.substr(0, blank));
    return Met{.told = rest.substr(blank + 1),
               .processes = static_cast<int>(std::min<long long>(processes.value_or(0), 1 << 30))};
  }
  if (kind == 'U') return Error{ErrorCode::Unreachable, rest};
  return Error{ErrorCode::Refused, kind == 'R' ? rest : "the talk over PMIx has crashed"};
}

}  // namespace

Result<Met> meet_by_pmix(const std::optional<std::string>& told, milliseconds limit,
                         const std::string& library) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("make a pipe for PMIx", errno);
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t child = fork();
  if (child < 0) return system_error("fork to talk over PMIx", errno);
  if (child == 0) talk(theirs.get(), told, library);
  theirs.reset();
  const std::optional<std::string> answer = read_all(ours.get(), Clock::now() + limit);
  if (!answer) kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (answer) return understood(*answer);
  return Error{ErrorCode::Timeout,
               "the other ranks have not come within " + std::to_string(limit.count()) + " ms"};
}

}  // namespace drun::engines
