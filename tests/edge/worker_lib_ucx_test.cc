// Errors of UCX as a program sees them: an unusable library, and a lost rank.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/mesh_ranks.h"
#include "tests/support/places.h"
#include "tests/support/process.h"
#include "tests/support/ranks.h"
#include "worker_lib/ucx/ucx_mesh.h"

namespace drun::test {
namespace {

// The path of a library that this process has loaded.
std::string path_of(const std::string& library) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with("/" + library)) return line.substr(line.find('/'));
  throw std::runtime_error("not loaded: " + library);
}

// Whether programs are linked with UCX, and so use it beside drun: Debian 13's Gloo needs Open MPI.
bool is_linked_with_ucx() { return dlopen("libucs.so.0", RTLD_NOW | RTLD_NOLOAD) != nullptr; }

// What two ranks print that find the directory's libraries first.
std::vector<std::string> said_with(const std::string& directory) {
  const StoreProcess store;
  std::vector<std::string> said;
  for (const RankEnd& end : run_programs(
           {.size = 2, .port = store.port(), .environment = {{"LD_LIBRARY_PATH", directory}}},
           "/bin/sh",
           {"-c", "exec \"$0\" all_reduce --backend ucx --bytes 4:4 2>&1",
            testing::built("drun-perf")})) {
    CHECK(end.exit_code == 1);
    said.push_back(end.said);
  }
  return said;
}

}  // namespace

TEST_CASE("without a usable UCX the error names the library, the reason and the remedy") {
  const testing::TemporaryDirectory directory;
  const std::string library = directory.file("libucp.so.0");
  if (!worker::has_ucx()) {
    for (const std::string& said : said_with(directory.path()))
      CHECK_THAT(said, ContainsSubstring("built without UCX; choose tcp or shm+tcp, or install"));
    return;
  }
  if (is_linked_with_ucx()) {
    WARN("skipped: libgloo is linked with UCX, so that programs do not start without it");
    return;
  }
  const std::string remedy = "; install UCX 1.13 or later (Debian's libucx0), or choose tcp or";
  testing::write_file(library, "no library");
  for (const std::string& said : said_with(directory.path()))
    CHECK_THAT(said, ContainsSubstring("cannot load libucp.so.0: " + library) &&
                         ContainsSubstring(remedy));
  std::filesystem::remove(library);
  std::filesystem::create_symlink(path_of("libm.so.6"), library);
  for (const std::string& said : said_with(directory.path()))
    CHECK_THAT(said,
               ContainsSubstring("cannot load libucp.so.0: it has no ucp_config_read" + remedy));
}

TEST_CASE("the loss of a rank is reported without UCX's own errors, unless UCX_LOG_LEVEL is set") {
  if (!worker::has_ucx()) return;
  const bool is_set = GENERATE(false, true);
  const bool is_expected = is_set || is_linked_with_ucx();
  const testing::TemporaryDirectory directory;
  const StoreProcess store;
  Ranks ranks{.size = 2, .port = store.port()};
  if (is_set) ranks.environment = {{"UCX_LOG_LEVEL", "error"}};
  const auto ends = run_ranks(ranks, [&](int rank, const Say& say) {
    const UniqueFd file(
        ::open(directory.file(std::to_string(rank)).c_str(), O_CREAT | O_RDWR, 0600));
    ::dup2(file.get(), STDERR_FILENO);
    ::dup2(file.get(), STDOUT_FILENO);
    const BackendContext context = context_of(rank, 2);
    auto backend = worker::connect_ucx(context);
    if (rank == 1) {
      backend.reset();
      context.store->set("ended", "", std::chrono::seconds(20));
      return;
    }
    context.store->get("ended", std::chrono::seconds(20));
    int number = 0;
    say(failure_of([&] {
      backend->start_recv(Elements(&number, 1), 1, 0)->finish(in(std::chrono::seconds(20)));
    }));
  });
  check_exited(ends);
  CHECK_THAT(ends[0].said, StartsWith("peer lost peer=1: lost the connection to rank 1: "));
  CHECK((testing::read_file(directory.file("0")).find("UCX  ERROR") != std::string::npos) ==
        is_expected);
}

}  // namespace drun::test
