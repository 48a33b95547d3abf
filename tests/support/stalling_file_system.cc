#include "tests/support/stalling_file_system.h"

#include <sys/mount.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>

#include "tests/support/places.h"

namespace drun::test {

namespace fs = std::filesystem;

StallingFileSystem::StallingFileSystem() {
  fs::create_directory(directory_.file("files"));
  fs::create_directory(mount_);
  testing::Launch launch;
  launch.argv = {testing::built("workers/stalling_fs"), directory_.file("files"),
                 directory_.file("stall"), mount_};
  server_.emplace(launch);
  if (server_->prints("mounted")) return;
  const testing::Ended ended = server_->wait();
  why_ = ended.out + ended.err;
  if (why_.empty()) why_ = "exit code " + std::to_string(ended.code);
}

StallingFileSystem::~StallingFileSystem() {
  resume();
  if (!is_mounted()) return;
  server_->signal(SIGTERM);
  server_->signal(SIGCONT);
  server_->wait();
  ::umount2(mount_.c_str(), MNT_DETACH);  // fails if it is no longer mounted
}

void StallingFileSystem::stall() const { testing::write_file(directory_.file("stall"), ""); }

void StallingFileSystem::resume() const {
  std::error_code ignored;
  fs::remove(directory_.file("stall"), ignored);
}

void StallingFileSystem::stop_server() {
  server_->signal(SIGSTOP);
  siginfo_t info{};  // until it has stopped, it could still take a request
  ::waitid(P_PID, static_cast<id_t>(server_->pid()), &info, WSTOPPED | WNOWAIT);
}

}  // namespace drun::test
