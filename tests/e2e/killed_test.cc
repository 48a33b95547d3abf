// Tests that a job whose processes are killed by SIGKILL leaves no files behind.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/job.h"

namespace drun::testing {
namespace {

namespace fs = std::filesystem;

// A job with every kind of scratch directory. Its workers write down the paths.
class JobWithFiles {
 public:
  explicit JobWithFiles(bool has_chosen_tmpdir) {
    for (const char* name : {"tmp", "runtime", "seen"}) fs::create_directory(directory_.file(name));
    write_file(directory_.file("secret"), "0123456789abcdef0123456789abcdef\n");
    fs::permissions(directory_.file("secret"), fs::perms::owner_read | fs::perms::owner_write);
    environment_["XDG_RUNTIME_DIR"] = directory_.file("runtime");
    if (has_chosen_tmpdir) environment_["TMPDIR"] = directory_.file("tmp");
  }

  Launch launch(const std::string& script) const {
    Launch launch = shell_job(
        {"--nproc-per-node=2", "--hang-timeout=600", "--secret-file=" + directory_.file("secret")},
        script);
    for (const auto& [name, value] : environment_) launch.environment[name] = value;
    return launch;
  }
  void start() {
    const std::string seen = directory_.file("seen/$RANK");
    running_.emplace(
        launch("echo $PPID $TORCHELASTIC_ERROR_FILE $DRUN_WORKER_KEY_FILE "
               "$DRUN_HEARTBEAT_FILE $DRUN_PROGRESS_FILE $TORCH_FR_DUMP_TEMP_FILE >" +
               seen + ".new; mkdir ${DRUN_PROGRESS_FILE%/*}/more; mv " + seen + ".new " + seen +
               "; exec sleep 600"));
    REQUIRE(eventually(
        [this] {
          return fs::exists(directory_.file("seen/0")) && fs::exists(directory_.file("seen/1"));
        },
        20s));
    std::istringstream text(read_file(directory_.file("seen/0")));
    text >> agent_;
    for (std::string path; text >> path;) {
      fs::path at = path;
      while (at.has_relative_path() && !at.filename().string().starts_with("drun_scratch."))
        at = at.parent_path();
      if (at.has_relative_path()) scratch_.insert(at);
    }
  }
  pid_t guardian() const { return running_->pid(); }
  pid_t agent() const { return agent_; }
  const std::set<fs::path>& scratch() const { return scratch_; }
  bool is_empty(const char* name) const { return fs::is_empty(directory_.file(name)); }
  bool is_gone() const {
    return std::none_of(scratch_.begin(), scratch_.end(),
                        [](const fs::path& path) { return fs::exists(path); });
  }
  Ended wait() { return running_->wait(20s); }

 private:
  TemporaryDirectory directory_;
  std::map<std::string, std::string> environment_;
  std::optional<Running> running_;
  pid_t agent_ = 0;
  std::set<fs::path> scratch_;
};

}  // namespace

TEST_CASE("SIGKILL of the agent, the guardian or both leaves no file behind") {
  const std::string victim = GENERATE("agent", "guardian", "both");
  const bool has_chosen_tmpdir = GENERATE(false, true);
  CAPTURE(victim, has_chosen_tmpdir);
  JobWithFiles job(has_chosen_tmpdir);
  job.start();
  REQUIRE(job.scratch().size() == 5);
  // So that neither can react to the end of the other.
  if (victim == "both")
    for (const pid_t pid : {job.guardian(), job.agent()}) kill(pid, SIGSTOP);
  if (victim != "agent") kill(job.guardian(), SIGKILL);
  if (victim != "guardian") kill(job.agent(), SIGKILL);
  CHECK(job.wait().code == 128 + SIGKILL);
  if (victim == "both") {
    const Ended next = run(job.launch("sleep 1"));
    INFO(next.err);
    CHECK(next.code == 0);
  }
  CHECK(eventually([&job] { return job.is_gone(); }));
  CHECK(job.is_empty("tmp"));
  CHECK(job.is_empty("runtime"));
}

TEST_CASE("a job that starts leaves the files of running jobs alone") {
  JobWithFiles job(true);
  job.start();
  const Ended next = run(job.launch("sleep 1"));
  INFO(next.err);
  CHECK(next.code == 0);
  for (const fs::path& path : job.scratch()) {
    CAPTURE(path);
    CHECK(fs::exists(path));
  }
  kill(job.guardian(), SIGTERM);
  CHECK(job.wait().code == 128 + SIGTERM);
  CHECK(job.is_gone());
}

}  // namespace drun::testing
