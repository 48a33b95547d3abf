#include "launcher/engines/pmi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
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

#include "launcher/engines/engine_facts.h"
#include "rendezvous/base/late_library.h"
#include "rendezvous/base/unique_fd.h"

#if __has_include(<pmix.h>)
#include <pmix.h>
#define DRUN_HAS_PMIX 1
#endif

namespace drun::engines {
namespace {

using std::chrono::milliseconds;

#ifdef DRUN_HAS_PMIX

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostAnswerBytes = 4096;

struct Functions {
  decltype(PMIx_Init)* init = nullptr;
  decltype(PMIx_Put)* put = nullptr;
  decltype(PMIx_Commit)* commit = nullptr;
  decltype(PMIx_Fence)* fence = nullptr;
  decltype(PMIx_Get)* get = nullptr;
  decltype(PMIx_Finalize)* finalize = nullptr;
  decltype(PMIx_Error_string)* words = nullptr;

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

// The exchange, run in the child process. Its answer is a letter and a text: "M3 TEXT" for 3
// processes and the text, "U..." for no usable library, "R..." for a refusal.
class PmixTalk {
 public:
  explicit PmixTalk(const Functions& pmix) : pmix_(pmix) {}

  std::string hold(const std::optional<std::string>& own_text) {
    pmix_proc_t self{};
    // For example, the library's version differs from the launcher's. Treat it as missing.
    if (!is_good("PMIx_Init", pmix_.init(&self, nullptr, 0))) return "U" + refusal_.substr(1);
    const std::string answer = exchange(self, own_text);
    // An engine treats a process that exits without PMIx_Finalize as crashed.
    pmix_.finalize(nullptr, 0);
    return answer;
  }

 private:
  std::string exchange(const pmix_proc_t& self, const std::optional<std::string>& own_text) {
    if (own_text && !put(*own_text)) return refusal_;
    pmix_info_t collect{};
    std::strncpy(collect.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    if (!is_good("PMIx_Fence", pmix_.fence(nullptr, 0, &collect, 1))) return refusal_;
    pmix_proc_t first = self;
    first.rank = 0;
    pmix_value_t* text = nullptr;
    if (!is_good("PMIx_Get", pmix_.get(&first, kMeetingKey, nullptr, 0, &text))) return refusal_;
    if (text == nullptr || text->type != PMIX_STRING || text->data.string == nullptr)
      return "Rrank 0 has sent no text";
    const std::string words = text->data.string;  // copy before the next call
    return "M" + std::to_string(processes(self)) + " " + words;
  }

  bool put(const std::string& own_text) {
    std::string text = own_text;
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = text.data();
    return is_good("PMIx_Put", pmix_.put(PMIX_GLOBAL, kMeetingKey, &value)) &&
           is_good("PMIx_Commit", pmix_.commit());
  }

  // 0: unknown.
  std::uint32_t processes(const pmix_proc_t& self) {
    pmix_proc_t job = self;
    job.rank = PMIX_RANK_WILDCARD;
    pmix_value_t* size = nullptr;
    const pmix_status_t status = pmix_.get(&job, PMIX_JOB_SIZE, nullptr, 0, &size);
    const bool is_known = status == PMIX_SUCCESS && size != nullptr && size->type == PMIX_UINT32;
    return is_known ? size->data.uint32 : 0;
  }

  bool is_good(const char* function, pmix_status_t status) {
    if (status != PMIX_SUCCESS) refusal_ = std::string("R") + function + ": " + pmix_.words(status);
    return status == PMIX_SUCCESS;
  }

  const Functions& pmix_;
  std::string refusal_;
};

std::string answer_of(const std::optional<std::string>& own_text, const std::string& library) {
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);  // for its plug-ins
  if (loaded == nullptr) return std::string("U") + dlerror();
  const Functions pmix = functions_of(loaded);
  if (!pmix.are_all()) return "U" + library + " lacks a function";
  return PmixTalk(pmix).hold(own_text);
}

// PMIx_Fence waits for ranks that may never call it, so this process must die with its parent.
[[noreturn]] void talk(pid_t parent, int to, const std::optional<std::string>& own_text,
                       const std::string& library) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  const std::string answer = answer_of(own_text, library);
  const auto written = write(to, answer.data(), std::min(answer.size(), kMostAnswerBytes));
  _exit(written < 0 ? 1 : 0);
}

// Reads until end of file; nullopt at the deadline.
std::optional<std::string> read_all(int from, Clock::time_point deadline) {
  std::string text;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd one{.fd = from, .events = POLLIN, .revents = 0};
    const int ready = poll(&one, 1, static_cast<int>(std::max<milliseconds::rep>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    std::array<char, kMostAnswerBytes> piece;
    const auto count = ::read(from, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || text.size() > kMostAnswerBytes) return text;
    text.append(piece.data(), static_cast<std::size_t>(count));
  }
}

Result<MeetingResult> understood(const std::string& answer) {
  const char kind = answer.empty() ? ' ' : answer.front();
  const std::string rest = answer.substr(answer.empty() ? 0 : 1);
  const std::size_t blank = rest.find(' ');
  if (kind == 'M' && blank != rest.npos) {
    const auto processes = whole_number(rest.substr(0, blank));
    return MeetingResult{
        .text = rest.substr(blank + 1),
        .processes = static_cast<int>(std::min<long long>(processes.value_or(0), 1 << 30))};
  }
  if (kind == 'U') return Error{ErrorCode::Unreachable, rest};
  return Error{ErrorCode::Refused, kind == 'R' ? rest : "the talk over PMIx has crashed"};
}

#endif  // DRUN_HAS_PMIX

}  // namespace

#ifdef DRUN_HAS_PMIX

bool has_pmix() { return true; }

Result<MeetingResult> meet_by_pmix(const std::optional<std::string>& own_text, milliseconds limit,
                                   const std::string& library) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("make a pipe for PMIx", errno);
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return system_error("fork to talk over PMIx", errno);
  if (child == 0) talk(parent, theirs.get(), own_text, library);
  theirs.reset();
  const std::optional<std::string> answer = read_all(ours.get(), Clock::now() + limit);
  if (!answer) kill(child, SIGKILL);
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (answer) return understood(*answer);
  return Error{ErrorCode::Timeout,
               "the other ranks have not come within " + std::to_string(limit.count()) + " ms"};
}

#else

bool has_pmix() { return false; }

Result<MeetingResult> meet_by_pmix(const std::optional<std::string>&, milliseconds,
                                   const std::string&) {
  return Error{ErrorCode::Unreachable,
               "this drun was built without PMIx; build it where libpmix-dev is installed"};
}

#endif

}  // namespace drun::engines
