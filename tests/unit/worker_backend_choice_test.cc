#include "tests/support/catch.h"
#include "worker_lib/core/backends.h"

namespace drun::worker {

TEST_CASE("a backend is chosen by name or by the location of the data") {
  struct Row {
    const char* text;
    BackendChoice choice;
  };
  const Row rows[] = {
      {"gloo", {.name = "gloo"}},
      {"shm+gloo", {.name = "shm+gloo"}},
      {"cpu:shm", {.name = "shm"}},
      {"cuda:nccl", {.name = "nccl"}},
      {"cpu:shm+gloo,cuda:nccl", {.name = "shm+gloo", .gpu = "nccl"}},
      {"cuda:mine,cpu:gloo", {.name = "gloo", .gpu = "mine"}},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    const Result<BackendChoice> choice = parse_backend(row.text);
    REQUIRE(choice);
    CHECK(*choice == row.choice);
  }
}

TEST_CASE("the message for a malformed backend choice shows the accepted forms") {
  for (const char* text :
       {"", "cpu:", "cuda:", "cpu:gloo,", "gloo,nccl", "cpu:gloo,cpu:shm",
        "cpu:gloo,cuda:nccl,cuda:nccl", "tpu:x", "cpu:cuda:nccl", ",cuda:nccl"}) {
    INFO(text);
    const Result<BackendChoice> choice = parse_backend(text);
    REQUIRE_FALSE(choice);
    CHECK(choice.error().code == ErrorCode::Usage);
    CHECK_THAT(choice.error().message, ContainsSubstring("neither a name nor cpu:name"));
  }
}

}  // namespace drun::worker
