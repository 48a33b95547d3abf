#include "agent/stacks/stacks.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "agent/process/descendants.h"
#include "agent/stacks/evidence.h"
#include "agent/stacks/proc_text.h"
#include "rendezvous/base/text.h"
#include "rendezvous/protocol/membership_text.h"

namespace drun::agent {
namespace {

std::string path_list(std::span<const std::string> environment) {
  for (const std::string& line : environment)
    if (line.starts_with("PATH=")) return line.substr(5);
  return "/bin:/usr/bin";
}

bool is_program(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0 && S_ISREG(about.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

// Empty: it is nowhere.
std::string find_on(std::string_view list, const char* name) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(':'), list.size());
    const std::string folder(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
    if (!folder.starts_with('/')) continue;
    if (std::string path = folder + "/" + name; is_program(path)) return path;
  }
  return "";
}

}  // namespace

StackTools find_stack_tools(std::span<const std::string> environment) {
  StackTools found;
  found.objection = ptrace_objection(read_proc_file("/proc/sys/kernel/yama/ptrace_scope"),
                                     read_proc_file("/proc/self/status", 8192));
  if (!found.objection.empty()) return found;
  const std::string list = path_list(environment);
  const std::string py_spy = find_on(list, "py-spy");
  if (py_spy.empty())
    found.missing_for_python = "py-spy is not installed";
  else
    found.tools.push_back({"py-spy", py_spy, true, parse_py_spy});
  std::string gdb = find_on(list, "gdb");
  std::string eu_stack = find_on(list, "eu-stack");
  // gdb reads the symbols of all libraries first: for seconds, if PyTorch is among them.
  if (!gdb.empty() && !eu_stack.empty())
    found.tools.push_back({"eu-stack", eu_stack, true, parse_eu_stack});
  if (!gdb.empty())
    found.tools.push_back({"gdb", std::move(gdb), false, parse_gdb});
  else if (!eu_stack.empty())
    found.tools.push_back({"eu-stack", std::move(eu_stack), false, parse_eu_stack});
  else
    found.missing = "gdb and eu-stack are not installed";
  return found;
}

std::vector<std::string> stack_tool_argv(const StackTool& tool, int pid) {
  const std::string number = std::to_string(pid);
  if (std::string_view(tool.name) == "py-spy") return {tool.path, "dump", "--pid", number};
  if (std::string_view(tool.name) == "eu-stack") return {tool.path, "-m", "-p", number};
  return {tool.path, "-nx",
          "-batch",  // no questions, no pages
          "-iex",    "set auto-load off",
          "-ex",     "thread apply all bt " + std::to_string(kMostFrames),
          "-p",      number};
}

std::string tool_complaint(std::string_view output) {
  std::string first;
  for (const std::string_view each : split(output, '\n')) {
    std::string line(each.substr(0, 160));
    for (char& c : line)
      if (c >= '0' && c <= '9') c = '#';
    const bool is_telling = line.find("ptrace") != line.npos ||
                            line.find("ermitted") != line.npos || line.find("rror") != line.npos;
    if (is_telling) return line;
    if (first.empty()) first = line;
  }
  return first.empty() ? "it printed nothing" : first;
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostStackProcesses = 16;  // of a worker
constexpr std::size_t kMostLooked = 4;           // of them by tools
constexpr std::size_t kMostHelpers = 4;
constexpr std::chrono::milliseconds kSearchLimit = std::chrono::seconds(2);

// In ascending order: the main thread is the process's own number, and mostly the first.
std::vector<int> threads_of(int pid) {
  std::vector<int> threads;
  DIR* directory = ::opendir(("/proc/" + std::to_string(pid) + "/task").c_str());
  if (directory == nullptr) return threads;
  while (const dirent* entry = ::readdir(directory)) {
    const int thread = std::atoi(entry->d_name);
    if (thread > 0 && threads.size() < kMostThreads) threads.push_back(thread);
  }
  ::closedir(directory);
  std::sort(threads.begin(), threads.end());
  return threads;
}

ProcessStacks seen_in_proc(const ProcessStat& process) {
  ProcessStacks seen{.name = process_name(process.pid),
                     .state = state_words(process.state),
                     .source = "/proc",
                     .threads = {}};
  for (const int thread : threads_of(process.pid)) {
    const std::string place =
        "/proc/" + std::to_string(process.pid) + "/task/" + std::to_string(thread) + "/";
    seen.threads.push_back(thread_of({.comm = read_proc_file(place + "comm"),
                                      .stat = read_proc_file(place + "stat"),
                                      .wchan = read_proc_file(place + "wchan"),
                                      .syscall = read_proc_file(place + "syscall"),
                                      .kernel_stack = read_proc_file(place + "stack")}));
  }
  return seen;
}

bool is_python(int pid) {
  std::array<char, 512> path;
  const ssize_t size =
      ::readlink(("/proc/" + std::to_string(pid) + "/exe").c_str(), path.data(), path.size());
  if (size <= 0) return false;
  const std::string_view text(path.data(), static_cast<std::size_t>(size));
  return text.substr(text.rfind('/') + 1).starts_with("python");
}

}  // namespace

StackCollector::StackCollector(asio::io_context& io, std::span<const std::string> environment,
                               std::chrono::milliseconds limit)
    : io_(io), environment_(environment), limit_(limit), timer_(io) {}

StackCollector::~StackCollector() {
  waiting_.clear();
  stop();
}

void StackCollector::collect(const std::vector<int>& pids, OnDone on_done) {
  waiting_.push_back(std::move(on_done));
  if (std::exchange(is_looking_, true)) return;
  if (!starter_) starter_.emplace(io_, kMostHelpers);
  found_ = {};
  found_.workers.resize(pids.size());
  late_.clear();
  pids_ = pids;
  search_tools();
}

void StackCollector::search_tools() {
  const auto give_up = [this] {
    begin({.objection = "cannot search PATH for gdb, eu-stack and py-spy: a directory does not "
                        "answer within " +
                        rendezvous::duration_text(kSearchLimit)});
  };
  if (search_ && !search_->is_done) return give_up();  // its thread still waits
  search_ = std::make_shared<Search>();
  if (!searcher_) searcher_ = std::make_unique<FileWriter>(io_, Log(), FileWriter::Listener{});
  is_searching_ = true;
  searcher_->run(
      [search = search_,
       environment = std::vector<std::string>(environment_.begin(), environment_.end())] {
        search->tools = find_stack_tools(environment);
        search->is_done = true;
      },
      [this](bool) {
        if (is_searching_) begin(search_->tools);
      });
  timer_.expires_after(kSearchLimit);
  timer_.async_wait([this, search = search_, give_up](const error_code& ec) {
    if (ec || !is_searching_ || search != search_) return;
    searcher_.reset();
    give_up();
  });
}

void StackCollector::begin(StackTools tools) {
  is_searching_ = false;
  timer_.cancel();
  tools_ = std::move(tools);
  look_into_proc(pids_);
  deadline_ = Clock::now() + limit_;
  start_some();
}

std::vector<int> StackCollector::stop() {
  std::vector<int> killed;
  for (const auto& helper : helpers_) killed.push_back(helper->pid());
  for (const auto& helper : late_) killed.push_back(helper->pid());
  std::erase(killed, 0);
  jobs_.clear();
  helpers_.clear();
  late_.clear();
  searcher_.reset();
  is_searching_ = false;
  if (is_looking_) finish();
  return killed;
}

void StackCollector::look_into_proc(const std::vector<int>& pids) {
  const Descendants found;
  const auto trees = trees_below(pids, found.all(), kMostStackProcesses);
  for (std::size_t worker = 0; worker < trees.size(); ++worker) {
    for (const ProcessStat& process : trees[worker])
      if (process.state != 'Z') found_.workers[worker].push_back(seen_in_proc(process));
  }
  add_note(found_.notes, tools_.objection);
  // Every worker's own process first, then their children.
  for (std::size_t i = 0; i < kMostLooked; ++i) {
    for (std::size_t worker = 0; worker < trees.size(); ++worker)
      if (i < found_.workers[worker].size()) add_job(worker, i, trees[worker]);
  }
}

void StackCollector::add_job(std::size_t worker, std::size_t process,
                             const std::vector<ProcessStat>& tree) {
  std::vector<int> living;
  for (const ProcessStat& each : tree)
    if (each.state != 'Z') living.push_back(each.pid);
  Job job{worker, process, living[process], {}};
  const bool is_pythons = is_python(job.pid);
  for (const StackTool& tool : tools_.tools)
    if (is_pythons || !tool.is_for_python) job.tools.push_back(tool);
  if (is_pythons) add_note(found_.notes, tools_.missing_for_python);
  add_note(found_.notes, tools_.missing);
  if (!job.tools.empty()) jobs_.push_back(std::move(job));
}

void StackCollector::start_some() {
  while (!jobs_.empty() && helpers_.size() < kMostHelpers) {
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    start(std::move(job));
  }
  // Posted, so that no caller is answered from inside its call.
  if (jobs_.empty() && helpers_.empty()) {
    timer_.expires_after(std::chrono::seconds(0));
    timer_.async_wait([this](const error_code& ec) {
      if (!ec && is_looking_ && helpers_.empty()) finish();
    });
  }
}

void StackCollector::start(Job job) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
  if (left.count() <= 0) return add_note(found_.notes, out_of_time(job));
  const std::vector<std::string> argv = stack_tool_argv(job.tools.front(), job.pid);
  const Place place = helpers_.insert(helpers_.end(), nullptr);
  *place = std::make_unique<Helper>(
      io_, *starter_, argv, environment_, left,
      [this, place, job = std::move(job)](const Helper::End& end) { ended(place, job, end); });
}

std::string StackCollector::out_of_time(const Job& job) const {
  return std::string(job.tools.front().name) + " was stopped after " +
         rendezvous::duration_text(limit_);
}

void StackCollector::ended(Place place, Job job, const Helper::End& end) {
  const StackTool tool = job.tools.front();
  if (end.is_late) {
    late_.push_back(std::move(*place));  // killed, and not yet dead
    resume(job);
  } else {  // its callback is running: it is destroyed when that has returned
    asio::post(io_, [helper = std::shared_ptr<Helper>(std::move(*place))] {});
  }
  helpers_.erase(place);
  std::vector<ThreadStack> threads = tool.parse(end.output);
  if (!threads.empty() && !end.is_late) {
    ProcessStacks& process = found_.workers[job.worker][job.process];
    process.source = tool.name;
    process.threads = std::move(threads);
  } else if (::access(("/proc/" + std::to_string(job.pid)).c_str(), F_OK) == 0) {
    add_note(found_.notes,
             end.is_late ? out_of_time(job)
                         : std::string(tool.name) + ": " +
                               (end.trouble.empty() ? tool_complaint(end.output) : end.trouble));
    job.tools.erase(job.tools.begin());
    if (!job.tools.empty() && !end.is_late) jobs_.push_front(std::move(job));
  }
  start_some();
}

// A debugger that is killed while it attaches leaves the process with its SIGSTOP.
void StackCollector::resume(const Job& job) const {
  const std::string& before = found_.workers[job.worker][job.process].state;
  if (!before.starts_with("stopped")) ::kill(job.pid, SIGCONT);
}

void StackCollector::finish() {
  is_looking_ = false;
  timer_.cancel();
  for (OnDone& done : std::exchange(waiting_, {})) done(found_);
}

}  // namespace drun::agent
