// The tcp transport at its limits: peers that leave, too few descriptors, callers that do not
// identify themselves. One rank is the mesh; the test plays the other one with plain sockets.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <ctime>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/machine.h"
#include "tests/support/mesh_ranks.h"
#include "tests/support/process.h"
#include "worker_lib/mesh/gather_texts.h"
#include "worker_lib/mesh/mesh.h"
#include "worker_lib/tcp/frames.h"
#include "worker_lib/tcp/job_key.h"
#include "worker_lib/tcp/sockets.h"
#include "worker_lib/tcp/tcp_mesh.h"

namespace drun::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using worker::Mesh;
using worker::tcp::Frame;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kSlot = 7;

std::chrono::duration<double> used_cpu() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

// Counts the calls that reach the store.
class CountedStore final : public KeyStore {
 public:
  void set(const std::string& key, const std::string& value, Milliseconds timeout) override {
    ++calls;
    store_->set(key, value, timeout);
  }
  std::string get(const std::string& key, Milliseconds timeout) override {
    ++calls;
    return store_->get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t delta, Milliseconds timeout) override {
    ++calls;
    return store_->add(key, delta, timeout);
  }
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired, Milliseconds timeout) override {
    ++calls;
    return store_->compare_set(key, expected, desired, timeout);
  }
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override {
    ++calls;
    store_->wait(keys, timeout);
  }
  bool has(const std::string& key, Milliseconds timeout) override {
    ++calls;
    return store_->has(key, timeout);
  }
  void remove(const std::string& key, Milliseconds timeout) override {
    ++calls;
    store_->remove(key, timeout);
  }

  std::atomic<int> calls = 0;

 private:
  std::shared_ptr<KeyStore> store_ = make_memory_key_store();
};

void send_all(const UniqueFd& fd, const void* data, std::size_t bytes) {
  if (::send(fd.get(), data, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes))
    throw std::runtime_error("cannot send");
}

// Receives up to `bytes`; fewer at the end of the connection or after 10 s.
std::string receive_some(const UniqueFd& fd, std::size_t bytes) {
  std::string all;
  while (all.size() < bytes) {
    pollfd one{fd.get(), POLLIN, 0};
    if (::poll(&one, 1, 10'000) <= 0) break;
    std::string piece(bytes - all.size(), '\0');
    const ssize_t got = ::recv(fd.get(), piece.data(), piece.size(), 0);
    if (got <= 0) break;
    all += piece.substr(0, static_cast<std::size_t>(got));
  }
  return all;
}

// The worker key of this process, and of all processes forked from it.
class KeyOfProcess {
 public:
  explicit KeyOfProcess(char digit) {
    testing::write_file(directory_.file("key"), std::string(64, digit));
    setenv("DRUN_WORKER_KEY_FILE", directory_.file("key").c_str(), 1);
  }
  ~KeyOfProcess() { unsetenv("DRUN_WORKER_KEY_FILE"); }
  KeyOfProcess(const KeyOfProcess&) = delete;
  KeyOfProcess& operator=(const KeyOfProcess&) = delete;

 private:
  testing::TemporaryDirectory directory_;
};

// Rank 1 of two, as far as the network shows it. The mesh is rank 0.
class PlayedRank {
 public:
  PlayedRank() : listening_(worker::tcp::listen_at("127.0.0.1")) {
    place_ = {"127.0.0.1", listening_.port, worker::tcp::make_key(),
              getenv("DRUN_WORKER_KEY_FILE") != nullptr};
    store->set("tcp/1", to_string(place_), seconds(1));
  }

  std::unique_ptr<Mesh> make_mesh(bool is_lookout = false, bool is_other_node = false) {
    BackendContext context;
    context.size = 2;
    context.node_of = {0, is_other_node ? 1 : 0};
    context.store = store;
    context.is_lookout = is_lookout;
    context.deadline = in(seconds(20));
    auto mesh = worker::make_tcp_mesh(context);
    context.rank = 1;
    mesh_ = worker::tcp::parse_place(worker::gather_texts(context, "tcp", to_string(place_))[0]);
    return mesh;
  }

  UniqueFd dial() const { return worker::tcp::dial(mesh_); }
  worker::tcp::Hello hello() const {
    return {.key = mesh_.key, .rank = 1, .size = 2, .nonce = worker::tcp::make_key()};
  }
  const worker::tcp::Key& key() const { return place_.key; }
  const worker::tcp::Key& mesh_key() const { return mesh_.key; }
  void say_hello(const UniqueFd& fd) const {
    const worker::tcp::HelloBytes hello =
        encode(worker::tcp::Hello{.key = mesh_.key, .rank = 1, .size = 2, .lane = 0});
    send_all(fd, hello.data(), hello.size());
  }
  void send_frame(const UniqueFd& fd, const Frame& frame, const std::string& data = "") const {
    const worker::tcp::Head head = encode(frame);
    send_all(fd, (std::string(head.data(), head.size()) + data).data(), head.size() + data.size());
  }
  void send_word(const UniqueFd& fd) const {
    say_hello(fd);
    send_frame(fd, {.kind = Frame::Kind::Eager, .slot = kSlot, .size_bytes = 4}, "word");
  }

  UniqueFd accept() const {
    pollfd one{listening_.fd.get(), POLLIN, 0};
    ::poll(&one, 1, 10'000);
    return worker::tcp::accept_from(listening_.fd.get());
  }
  void close_listener() { listening_.fd.reset(); }

  const std::shared_ptr<CountedStore> store = std::make_shared<CountedStore>();

 private:
  worker::tcp::Listening listening_;
  worker::tcp::Place place_;
  worker::tcp::Place mesh_;
};

// The packets that have arrived on a connection. The start of linux/tcp.h's tcp_info, which this
// glibc cuts off.
std::uint32_t packets_in(const UniqueFd& fd) {
  struct {
    tcp_info start;
    std::uint64_t rates_and_bytes[4];
    std::uint32_t packets_out;
    std::uint32_t packets_in;
  } info{};
  static_assert(sizeof info.start == 104);
  socklen_t size = sizeof info;
  if (getsockopt(fd.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < sizeof info)
    throw std::runtime_error("cannot count packets");
  return info.packets_in;
}

// Bytes that differ between neighbors, and between pieces.
std::string numbered_bytes(std::size_t bytes) {
  std::string made(bytes, ' ');
  for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>(i % 251);
  return made;
}

// The next frame's head; the payload is skipped.
std::optional<Frame> next_frame(const UniqueFd& from_mesh) {
  using namespace worker::tcp;
  const std::string head = receive_some(from_mesh, kHeadBytes);
  if (head.size() < kHeadBytes) return std::nullopt;
  const std::optional<Frame> frame = decode_frame(head);
  if (frame && frame->kind == Frame::Kind::Eager) receive_some(from_mesh, frame->size_bytes);
  return frame;
}

std::vector<UniqueFd> dial_silently(const PlayedRank& played, int count) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < count; ++i) silent.push_back(played.dial());
  return silent;
}

}  // namespace

TEST_CASE("a rank that waits for another sleeps after a third one has left") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say& say) {
    BackendContext context = context_of(rank, 3);
    context.is_lookout = true;
    const std::unique_ptr<Mesh> mesh = worker::make_tcp_mesh(context);
    char word[4] = {};
    if (rank == 2) mesh->send(0, kSlot, word, sizeof word)->finish(in(seconds(20)));
    if (rank == 1) std::this_thread::sleep_for(seconds(1));
    if (rank == 1) mesh->send(0, kSlot, word, sizeof word)->finish(in(seconds(20)));
    if (rank != 0) return;
    mesh->recv(2, kSlot, word, sizeof word)->finish(in(seconds(20)));
    const auto before = used_cpu();
    mesh->recv(1, kSlot, word, sizeof word)->finish(in(seconds(20)));
    say(std::to_string((used_cpu() - before).count()));
  });
  check_exited(ends);
  CHECK(std::stod(ends[0].said) < 0.3);
}

TEST_CASE("the peers of a rank that aborts see the end of its connections while it lives on") {
  PlayedRank played;
  const auto mesh = played.make_mesh(true);
  const UniqueFd from_mesh = played.accept();
  CHECK(receive_some(from_mesh, worker::tcp::kHelloBytes).size() == worker::tcp::kHelloBytes);
  mesh->abort();
  const auto began = Clock::now();
  CHECK(receive_some(from_mesh, 1).empty());
  CHECK(Clock::now() - began < test::scaled(seconds(5)));
}

TEST_CASE("a sleeping send returns when another thread's message completes it") {
  PlayedRank played;
  const auto mesh = played.make_mesh();
  const UniqueFd to_mesh = played.dial();
  played.say_hello(to_mesh);
  // Its parts take turns with the short messages below.
  const std::string large(std::size_t{8} << 20, ' ');
  const auto sent = mesh->send(1, kSlot, large.data(), large.size());
  const UniqueFd from_mesh = played.accept();
  receive_some(from_mesh, worker::tcp::kHelloBytes);
  const std::optional<Frame> ask = next_frame(from_mesh);
  REQUIRE((ask && ask->kind == Frame::Kind::Ask));
  played.send_frame(to_mesh, {.kind = Frame::Kind::Grant, .number = ask->number});
  std::atomic<bool> has_returned = false;
  std::thread sender([&] {
    sent->finish(in(seconds(30)));
    has_returned = true;
  });
  // So little is read at a time that the kernel does not report the free space, and each short
  // message uses it for what is queued. Both buffers together hold more than the last messages.
  std::vector<std::unique_ptr<Transfer>> messages;
  std::string piece(16 << 10, ' ');
  for (std::size_t bytes = 0; bytes < large.size();) {
    pollfd one{from_mesh.get(), POLLIN, 0};
    REQUIRE(::poll(&one, 1, 10'000) == 1);
    const ssize_t got = ::recv(from_mesh.get(), piece.data(), piece.size(), 0);
    REQUIRE(got > 0);
    bytes += static_cast<std::size_t>(got);
    messages.push_back(mesh->send(1, kSlot + 1, "short", 5));
  }
  CHECK(testing::eventually([&] { return has_returned.load(); }));
  mesh->abort();
  sender.join();
}

TEST_CASE("what a rank had sent before it ended arrives, however long it takes") {
  const std::string sent = numbered_bytes(200'000);
  constexpr std::size_t kPiece = 2000;
  Clock::duration longest_pause{};
  std::string failure;
  // On a busy machine the sender can pause longer than the mesh waits for more; then try again.
  for (int tries = 0; tries < 20 && (tries == 0 || longest_pause > milliseconds(30)); ++tries) {
    PlayedRank played;
    const auto mesh = played.make_mesh(true);
    std::string received(sent.size(), ' ');
    const auto receiving = mesh->recv(1, kSlot, received.data(), received.size());
    UniqueFd to_mesh = played.dial();
    played.say_hello(to_mesh);
    played.send_frame(to_mesh,
                      {.kind = Frame::Kind::Eager, .slot = kSlot, .size_bytes = sent.size()});
    longest_pause = {};
    std::thread network([&] {
      auto before = Clock::now();
      played.accept().reset();  // the end shows here first
      for (std::size_t done = 0; done < sent.size(); done += kPiece) {
        std::this_thread::sleep_for(milliseconds(1));
        if (::send(to_mesh.get(), sent.data() + done, kPiece, MSG_NOSIGNAL) < 0) return;  // ended
        const auto now = Clock::now();
        longest_pause = std::max(longest_pause, now - before);
        before = now;
      }
      to_mesh.reset();
    });
    failure = failure_of([&] { receiving->finish(in(seconds(20))); });
    if (failure == "no failure" && received != sent) failure = "wrong bytes";
    mesh->abort();
    network.join();
  }
  CHECK(failure == "no failure");
}

TEST_CASE("a network failure that a send reports is not the end of the other rank") {
  PlayedRank played;
  const auto mesh = played.make_mesh(true);
  const int out = mesh->lifelines().at(0).fd;
  const int patience_ms = 50;
  REQUIRE(setsockopt(out, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof patience_ms) == 0);
  const std::string unread(worker::tcp::kEagerBytes, ' ');
  const auto first = mesh->send(1, kSlot, unread.data(), unread.size());
  pollfd failed{.fd = out, .events = 0, .revents = 0};
  REQUIRE(::poll(&failed, 1, 30'000) == 1);
  const auto second = mesh->send(1, kSlot, "word", 4);  // gets the error, and no other call does
  CHECK_FALSE(mesh->tell_lost(1));
  CHECK_THAT(failure_of([&] { second->finish(in(seconds(5))); }),
             ContainsSubstring("lost the connection to rank 1: Connection timed out"));
}

TEST_CASE("a rank without a descriptor for a connection reports the limit and blames no peer") {
  PlayedRank played;
  const auto mesh = played.make_mesh();
  const FewDescriptors tight(0);
  const std::string failure =
      failure_of([&] { mesh->send(1, kSlot, "word", 4)->finish(in(seconds(5))); });
  CHECK_THAT(failure,
             ContainsSubstring("system: cannot make a socket: Too many open files (limit " +
                               tight.limit() + "); raise it with ulimit -n"));
}

TEST_CASE("a rank without a descriptor for a caller sleeps, reports the limit, and accepts later") {
  PlayedRank played;
  const auto mesh = played.make_mesh(true);
  UniqueFd caller;
  std::string word(4, ' ');
  {
    const auto received = mesh->recv(1, kSlot, word.data(), word.size());
    caller = played.dial();
    played.send_word(caller);
    const FewDescriptors tight(0);
    const auto before = used_cpu();
    const std::string failure = failure_of([&] { received->finish(in(seconds(1))); });
    CHECK_THAT(failure,
               ContainsSubstring("system: cannot accept the connection of rank 1: Too many open "
                                 "files (limit " +
                                 tight.limit() + ")"));
    CHECK((used_cpu() - before).count() < 0.3);
  }
  CHECK(mesh->recv(1, kSlot, word.data(), word.size())->finish(in(seconds(10))) == 1);
  CHECK(word == "word");
}

TEST_CASE("a caller that is slow to identify itself is not lost among 200 others") {
  PlayedRank played;
  const auto mesh = played.make_mesh();
  std::string word(4, ' ');
  const auto received = mesh->recv(1, kSlot, word.data(), word.size());
  const UniqueFd caller = played.dial();
  const std::vector<UniqueFd> others = dial_silently(played, 200);
  for (int i = 0; i < 10; ++i) received->is_done();
  played.send_word(caller);
  CHECK(failure_of([&] { received->finish(in(seconds(4))); }) == "no failure");
  CHECK(word == "word");
}

TEST_CASE("a caller gets through after 200 silent ones, whose connections are closed in turn") {
  PlayedRank played;
  const auto mesh = played.make_mesh();
  std::string word(4, ' ');
  const auto received = mesh->recv(1, kSlot, word.data(), word.size());
  const std::vector<UniqueFd> silent = dial_silently(played, 200);
  for (int i = 0; i < 10; ++i) received->is_done();
  const UniqueFd caller = played.dial();
  played.send_word(caller);
  const auto before = used_cpu();
  CHECK(failure_of([&] { received->finish(in(test::scaled(seconds(20)))); }) == "no failure");
  CHECK((used_cpu() - before).count() < 0.3);
  CHECK(word == "word");
  CHECK(receive_some(silent.front(), 1).empty());  // its end
}

// On a busy machine the kernel leaves this mode for a moment: when it repeats a packet, because
// this process was not running.
TEST_CASE("most short messages that are read at once are not acknowledged with a packet") {
  constexpr std::uint32_t kMessages = 50;
  PlayedRank played;
  const auto mesh = played.make_mesh();
  const UniqueFd to_mesh = played.dial();
  played.say_hello(to_mesh);
  std::string word(4, ' ');
  std::uint32_t fewest = kMessages;
  for (int round = 0; round < 100 && fewest > kMessages * 3 / 4; ++round) {
    const std::uint32_t before = packets_in(to_mesh);
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      played.send_frame(to_mesh, {.kind = Frame::Kind::Eager, .slot = kSlot, .size_bytes = 4},
                        "word");
      mesh->recv(1, kSlot, word.data(), word.size())->finish(in(seconds(10)));
    }
    fewest = std::min(fewest, packets_in(to_mesh) - before);
  }
  CHECK(fewest <= kMessages * 3 / 4);
}

TEST_CASE("connections within a host use Reno, whatever the system's congestion control is") {
  const std::string address = GENERATE("127.0.0.1", "127.0.0.2");
  const worker::tcp::Listening listening = worker::tcp::listen_at(address);
  const UniqueFd fd = worker::tcp::dial({.address = address, .port = listening.port});
  std::array<char, 16> name{};
  socklen_t size = name.size();
  REQUIRE(getsockopt(fd.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) == 0);
  CHECK(std::string(name.data()) == "reno");
}

TEST_CASE("a large message uses one connection if the others fail") {
  PlayedRank played;
  const auto mesh = played.make_mesh(true, true);
  const UniqueFd to_mesh = played.dial();
  played.say_hello(to_mesh);
  const UniqueFd from_mesh = played.accept();
  const std::string data = numbered_bytes(3 << 20);
  const auto sent = mesh->send(1, kSlot, data.data(), data.size());
  using namespace worker::tcp;
  const std::string began = receive_some(from_mesh, kHelloBytes + kHeadBytes);
  const std::optional<Frame> ask = decode_frame(began.substr(kHelloBytes));
  REQUIRE(ask);
  REQUIRE(ask->kind == Frame::Kind::Ask);
  played.close_listener();  // resets those that wait to be accepted
  played.send_frame(to_mesh, {.kind = Frame::Kind::Grant, .number = ask->number});
  std::string failure;
  std::thread sender([&] { failure = failure_of([&] { sent->finish(in(seconds(10))); }); });
  std::string got(data.size(), '\0');
  for (std::size_t left = data.size(); left > 0;) {
    const std::string head = receive_some(from_mesh, kHeadBytes);
    const std::optional<Frame> part = head.size() == kHeadBytes ? decode_frame(head) : std::nullopt;
    if (!part || part->kind != Frame::Kind::Data) break;
    const std::string bytes = receive_some(from_mesh, part->size_bytes);
    std::copy(bytes.begin(), bytes.end(), got.begin() + static_cast<std::ptrdiff_t>(part->slot));
    left -= std::min(left, bytes.size());
  }
  sender.join();
  CHECK(failure == "no failure");
  CHECK(got == data);
}

// It computes, loads data or writes a checkpoint. The kernel must not take that for an outage,
// though the data that waits for it fills its buffer.
TEST_CASE("a rank that does not read for longer than an outage takes to notice is not lost",
          "[slow]") {
  const StoreProcess store;
  check_exited(run_ranks({.size = 2, .port = store.port()}, [](int rank, const Say&) {
    ProcessGroup group = ProcessGroup::connect(over("tcp", seconds(200)));
    group.barrier();
    if (rank == 1) std::this_thread::sleep_for(seconds(33));
    std::vector<float> data(2'000'000, 1);
    group.all_reduce(data);
    expect(data.front() == 2 && data.back() == 2, "the sum");
  }));
}

TEST_CASE("messages that no one receives use a limited window, and further ones wait outside") {
  using namespace worker::tcp;
  constexpr std::size_t kInWindow = kWindowBytes / (kEagerBytes + 2 * kHeadBytes);
  const std::string data = numbered_bytes(kEagerBytes);
  PlayedRank played;
  const auto mesh = played.make_mesh();
  const UniqueFd to_mesh = played.dial();
  played.say_hello(to_mesh);

  std::vector<std::unique_ptr<Transfer>> sent;
  for (std::size_t i = 0; i < kInWindow + 2; ++i)
    sent.push_back(mesh->send(1, kSlot, data.data(), data.size()));
  const UniqueFd from_mesh = played.accept();
  receive_some(from_mesh, kHelloBytes);
  std::vector<Frame::Kind> kinds;
  std::atomic<bool> has_read = false;
  std::thread reader([&] {
    while (kinds.size() < sent.size()) {
      const std::optional<Frame> frame = next_frame(from_mesh);
      if (!frame) break;
      kinds.push_back(frame->kind);
    }
    has_read = true;
  });
  while (!has_read) sent.front()->is_done(), sent.back()->is_done();
  reader.join();
  std::vector<Frame::Kind> expected(kInWindow, Frame::Kind::Eager);
  expected.resize(sent.size(), Frame::Kind::Ask);
  CHECK(kinds == expected);

  std::string got(data.size(), ' ');
  const auto received = mesh->recv(1, kSlot + 1, got.data(), got.size());
  std::thread sender([&] {
    const Head head =
        encode(Frame{.kind = Frame::Kind::Eager, .slot = kSlot, .size_bytes = data.size()});
    const std::string text = std::string(head.data(), head.size()) + data;
    // The mesh closes the connection at the first one too many.
    for (std::size_t i = 0; i < kInWindow + 20; ++i)
      if (::send(to_mesh.get(), text.data(), text.size(), MSG_NOSIGNAL) <= 0) return;
  });
  CHECK_THAT(failure_of([&] { received->finish(in(seconds(10))); }),
             ContainsSubstring("it broke the protocol"));
  sender.join();
}

TEST_CASE("ranks with one worker key exchange messages of any size, and see each other's end") {
  const bool is_lookout = GENERATE(false, true);
  const KeyOfProcess key('a');
  const StoreProcess store;
  const auto ends = run_ranks({.size = 3, .port = store.port()}, [&](int rank, const Say&) {
    BackendContext context = context_of(rank, 3);
    context.node_of = {0, 1, 2};  // so that large messages use several connections
    context.is_lookout = is_lookout;
    const std::unique_ptr<Mesh> mesh = worker::make_tcp_mesh(context);
    std::vector<char> out(5 << 20);
    std::vector<char> in_(5 << 20);
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{1} << 16, out.size()}) {
      out.assign(out.size(), static_cast<char>('0' + rank));
      const auto sent = mesh->send((rank + 1) % 3, kSlot, out.data(), bytes);
      const auto received = mesh->recv((rank + 2) % 3, kSlot, in_.data(), bytes);
      received->finish(in(seconds(20)));
      sent->finish(in(seconds(20)));
      expect(
          std::count(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(bytes),
                     static_cast<char>('0' + (rank + 2) % 3)) == static_cast<std::ptrdiff_t>(bytes),
          "the neighbor's data");
    }
    if (rank == 2) return;
    char word = 0;
    const std::string failure =
        failure_of([&] { mesh->recv(2, kSlot, &word, 1)->finish(in(seconds(20))); });
    expect(failure.starts_with("peer lost peer=2"), "the end of rank 2, not " + failure);
  });
  check_exited(ends);
}

TEST_CASE("a rank with another worker key, without one, or with an unreadable one is refused") {
  const KeyOfProcess key('a');
  const testing::TemporaryDirectory directory;
  const auto refusal_of = [&](const std::string& content) {
    const std::string file = directory.file("other");
    ::unlink(file.c_str());
    if (!content.empty()) testing::write_file(file, content);
    const StoreProcess store;
    const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
      if (rank == 1) setenv("DRUN_WORKER_KEY_FILE", file.c_str(), 1);
      if (rank == 1 && content == "-") unsetenv("DRUN_WORKER_KEY_FILE");
      BackendContext context = context_of(rank, 2);
      context.deadline = in(seconds(3));
      say(failure_of([&] {
        const std::unique_ptr<Mesh> mesh = worker::make_tcp_mesh(context);
        char word = 0;
        mesh->recv(1 - rank, kSlot, &word, 1)->finish(in(seconds(20)));
      }));
    });
    return ends[0].said + ends[1].said;
  };
  CHECK_THAT(refusal_of(std::string(64, 'b')),
             ContainsSubstring("lost the connection to rank 0: it has another worker key") &&
                 ContainsSubstring("lost the connection to rank 1: it has another worker key"));
  CHECK_THAT(refusal_of("-"),
             ContainsSubstring("system peer=1: rank 0 has the worker key of a job with a secret, "
                               "rank 1 has none") &&
                 ContainsSubstring("system peer=0: rank 0 has the worker key of a job with a "
                                   "secret, rank 1 has none"));
  CHECK_THAT(refusal_of("short"), ContainsSubstring("other, which DRUN_WORKER_KEY_FILE names: the "
                                                    "file contains no key"));
  CHECK_THAT(refusal_of(""), ContainsSubstring("No such file or directory; a wrapper"));
}

TEST_CASE("a caller without the worker key is rejected, even with the address key or a recording") {
  using namespace worker::tcp;
  const KeyOfProcess key('a');
  const JobKey job_key = JobKey::of_process().value();
  PlayedRank played;
  const auto mesh = played.make_mesh();
  std::string word(4, ' ');
  const auto received = mesh->recv(1, kSlot, word.data(), word.size());
  char unused = 0;
  const auto never = mesh->recv(1, kSlot + 1, &unused, 1);  // to poll the mesh with
  const auto begin = [&](const Hello& hello) {
    UniqueFd fd = played.dial();
    const HelloBytes bytes = encode(hello);
    send_all(fd, bytes.data(), bytes.size());
    never->is_done();
    return fd;
  };
  const auto answer = [&](const UniqueFd& fd) {
    return decode_challenge(receive_some(fd, kHelloBytes)).value();
  };
  // Sends the proof and a message. False if the mesh closes the connection.
  const auto is_admitted = [&](const UniqueFd& fd, const Proof& proof) {
    send_all(fd, proof.data(), proof.size());
    played.send_frame(fd, {.kind = Frame::Kind::Eager, .slot = kSlot, .size_bytes = 4}, "word");
    for (int i = 0; i < 3; ++i) never->is_done();
    pollfd one{fd.get(), POLLIN, 0};
    return ::poll(&one, 1, 0) == 0;
  };
  const auto proof_for = [&](const Hello& hello, const Challenge& challenge) {
    return job_key.prove(proven_text(Prover::Caller, hello, played.key(), challenge.nonce));
  };

  const Hello hello = played.hello();
  {
    UniqueFd fd = begin(hello);
    CHECK_FALSE(is_admitted(fd, Proof{}));
  }
  const Hello without_address_key{.rank = 1, .size = 2};
  CHECK(receive_some(begin(without_address_key), 1).empty());

  // A recorded proof, and the called rank's own one sent back.
  const UniqueFd first = begin(hello);
  const Challenge challenge = answer(first);
  const Proof recorded = proof_for(hello, challenge);
  {
    UniqueFd fd = begin(hello);
    CHECK(answer(fd).nonce != challenge.nonce);
    CHECK_FALSE(is_admitted(fd, recorded));
  }
  {
    UniqueFd fd = begin(hello);
    CHECK_FALSE(is_admitted(fd, answer(fd).proof));
  }
  CHECK_THAT(failure_of([&] {
               char other = 0;
               mesh->recv(1, kSlot + 2, &other, 1)->finish(in(milliseconds(1)));
             }),
             ContainsSubstring("4 connections were rejected, which did not begin as this group's "
                               "with its worker key"));
  CHECK(word == "    ");
  CHECK(is_admitted(first, recorded));
  CHECK(received->finish(in(seconds(10))) == 1);
  CHECK(word == "word");
  // The same caller again.
  UniqueFd again = begin(hello);
  CHECK_FALSE(is_admitted(again, proof_for(hello, answer(again))));
}

TEST_CASE(
    "a rank with a worker key sends only its hello until the called rank has proven the key") {
  using namespace worker::tcp;
  const KeyOfProcess key('a');
  PlayedRank played;
  const auto mesh = played.make_mesh();
  const std::string data = "private";
  const auto sent = mesh->send(1, kSlot, data.data(), data.size());
  const UniqueFd from_mesh = played.accept();
  const std::string hello = receive_some(from_mesh, kHelloBytes);
  REQUIRE(decode_hello(hello));
  const auto before = used_cpu();
  CHECK_THAT(failure_of([&] {
               char word = 0;
               mesh->recv(1, kSlot, &word, 1)->finish(in(milliseconds(500)));
             }),
             ContainsSubstring("rank 1 did not do its part in time"));
  CHECK((used_cpu() - before).count() < 0.3);
  CHECK_FALSE(sent->is_done().value());
  const HelloBytes wrong = encode(Challenge{.nonce = make_key()});
  send_all(from_mesh, wrong.data(), wrong.size());
  CHECK_THAT(failure_of([&] { sent->finish(in(seconds(10))); }),
             ContainsSubstring("lost the connection to rank 1: it has another worker key than"));
  pollfd one{from_mesh.get(), POLLIN, 0};
  CHECK(::poll(&one, 1, 0) == 0);  // nothing was sent
}

TEST_CASE("messages do not use the store, which may hang") {
  PlayedRank played;
  const auto mesh = played.make_mesh();
  const int before = played.store->calls;
  std::string word(4, ' ');
  mesh->send(1, kSlot, word.data(), word.size())->finish(in(seconds(5)));
  const auto received = mesh->recv(1, kSlot, word.data(), word.size());
  CHECK(failure_of([&] { received->finish(in(milliseconds(1))); }).starts_with("timeout peer=1"));
  CHECK(played.store->calls == before);
}

namespace {

// Counts the messages that exist.
class CountedMesh final : public worker::Mesh {
 public:
  struct Count {
    int now = 0;
    int most = 0;
  };

  CountedMesh(std::unique_ptr<Mesh> mesh, Count& count) : mesh_(std::move(mesh)), count_(count) {}
  std::string name() const override { return mesh_->name(); }
  int rank() const override { return mesh_->rank(); }
  int size() const override { return mesh_->size(); }
  std::size_t piece_bytes(std::size_t bytes) const override { return mesh_->piece_bytes(bytes); }
  Started send(int to, Slot slot, const void* data, std::size_t bytes) override {
    return std::make_unique<Counted>(mesh_->send(to, slot, data, bytes), count_);
  }
  Started recv(int from, Slot slot, void* data, std::size_t bytes) override {
    return std::make_unique<Counted>(mesh_->recv(from, slot, data, bytes), count_);
  }
  Started recv_any(Slot slot, void* data, std::size_t bytes, worker::ClaimSide claim) override {
    return std::make_unique<Counted>(mesh_->recv_any(slot, data, bytes, claim), count_);
  }
  void abort() noexcept override { mesh_->abort(); }
  bool keeps_deadlines() const override { return mesh_->keeps_deadlines(); }
  std::vector<Lifeline> lifelines() const override { return mesh_->lifelines(); }
  bool tell_lost(int rank) noexcept override { return mesh_->tell_lost(rank); }

 private:
  class Counted final : public Transfer {
   public:
    Counted(Started message, Count& count) : message_(std::move(message)), count_(count) {
      count_.most = std::max(count_.most, ++count_.now);
    }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() override { --count_.now; }
    int finish(Deadline deadline) override { return message_->finish(deadline); }
    std::optional<bool> is_done() override { return message_->is_done(); }

   private:
    Started message_;
    Count& count_;
  };

  std::unique_ptr<Mesh> mesh_;
  Count& count_;
};

}  // namespace

TEST_CASE("a large collective keeps only the messages that are on their way") {
  const StoreProcess store;
  const auto ends = run_ranks({.size = 2, .port = store.port()}, [&](int rank, const Say& say) {
    CountedMesh::Count count;
    const auto backend = worker::make_mesh_backend(
        std::make_unique<CountedMesh>(worker::make_tcp_mesh(context_of(rank, 2)), count), false);
    std::vector<float> data(16 << 20, 1.0f);
    backend->run({.operation = Operation::AllReduce,
                  .type = DataType::F32,
                  .input = data.data(),
                  .output = data.data(),
                  .count = data.size()},
                 {1, in(seconds(20))});
    say(std::to_string(count.most));
  });
  check_exited(ends);
  for (const RankEnd& end : ends) CHECK(std::stoi(end.said) < 64);
}

}  // namespace drun::test
