#include "agent/output/file_writer.h"

#include <fcntl.h>

#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "tests/support/catch.h"
#include "tests/support/event_loop.h"
#include "tests/support/process.h"

namespace drun::agent {
namespace {

UniqueFd open_null() { return UniqueFd(::open("/dev/null", O_WRONLY | O_CLOEXEC)); }

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

// A writer whose thread is in a job, as one that hangs in a system call.
struct StuckWriter {
  StuckWriter() {
    writer->run([begun = &begun, end = end.get_future().share()] {
      begun->set_value();
      end.wait();
    });
    begun.get_future().wait();
  }
  ~StuckWriter() { proceed(); }
  void proceed() {
    if (!std::exchange(has_proceeded, true)) end.set_value();
  }

  asio::io_context io{1};
  std::promise<void> begun;
  std::promise<void> end;
  bool has_proceeded = false;
  std::optional<FileWriter> writer{std::in_place, io, Log(), FileWriter::Listener{}};
};

}  // namespace

// A close() by the loop could hang, too.
TEST_CASE("a descriptor that is closed behind a job that hangs is closed only after that job") {
  const bool is_abandoned_first = GENERATE(false, true);
  const bool is_file = GENERATE(false, true);
  CAPTURE(is_abandoned_first, is_file);
  StuckWriter stuck;
  UniqueFd fd = open_null();
  const int number = fd.get();
  std::shared_ptr<FileWriter::File> file;
  if (is_file) {
    file = stuck.writer->adopt(std::move(fd), "file");
    stuck.writer->append(file, "bytes");
  }
  const auto close = [&] {
    if (is_file)
      file.reset();
    else
      stuck.writer->close(std::move(fd));
  };
  if (is_abandoned_first) stuck.writer->abandon();
  close();
  stuck.writer->abandon();
  stuck.io.run();  // returns: nothing is pending
  stuck.writer.reset();
  CHECK(is_open(number));
  stuck.proceed();
  CHECK(testing::eventually([&] { return !is_open(number); }));
}

TEST_CASE("a descriptor that is closed after the thread has ended stays open until the exit") {
  asio::io_context io{1};
  FileWriter writer(io, Log(), {});
  bool has_run = false;
  writer.run([] {}, [&](bool ran) { has_run = ran; });
  io.run();
  REQUIRE(has_run);
  UniqueFd fd = open_null();
  const int number = fd.get();
  writer.abandon();
  writer.close(std::move(fd));
  CHECK(is_open(number));
  ::close(number);
}

}  // namespace drun::agent
