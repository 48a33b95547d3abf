// The store of a job over TCP, when its server does not answer in time.
#include "drun/key_store.h"

#include "drun/error.h"
#include "tests/support/catch.h"
#include "tests/support/impostor.h"

namespace drun {
namespace {

using namespace std::chrono_literals;

const std::string kOne = std::string(7, '\0') + '\1';  // the answer to the first rank

}  // namespace

TEST_CASE("a store that was silent is an error of the store, and is used again afterwards") {
  test::Impostor impostor({[](const RawSocket& peer) {
                             test::greet(peer);
                             // It also says that the key is there, and then nothing more.
                             peer.say(kOne + std::string(1, '\0'));
                             test::until_closed(peer);
                           },
                           [](const RawSocket& peer) {
                             // The dialect is known now.
                             peer.hear(9);
                             peer.say(std::string(4, '\1') + std::string(1, '\0'));
                             test::until_closed(peer);
                           }});
  const auto store = connect_key_store("127.0.0.1", impostor.port(), 20s);
  try {
    store->get("k", 200ms);
    FAIL("it got a value");
  } catch (const WorkerError& error) {
    CHECK(error.kind() == WorkerError::Kind::Store);
    CHECK_THAT(error.message(), ContainsSubstring("GET \"k\""));
  }
  CHECK(store->has("k", 20s));
}

TEST_CASE("a wait for several keys in memory has one time limit for all") {
  const auto store = make_memory_key_store();
  std::thread setter([&] {
    std::this_thread::sleep_for(1500ms);  // the first key is late
    store->set("a", "", 1s);
  });
  const auto began = std::chrono::steady_clock::now();
  CHECK_THROWS_AS(store->wait({"a", "b"}, 2s), WorkerError);
  CHECK(std::chrono::steady_clock::now() - began < 3s);
  setter.join();
}

}  // namespace drun
