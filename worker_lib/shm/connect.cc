#include "worker_lib/shm/connect.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "worker_lib/base/deadline.h"
#include "worker_lib/base/process.h"
#include "worker_lib/base/signature.h"
#include "worker_lib/base/unix_socket.h"
#include "worker_lib/mesh/gather_texts.h"
#include "worker_lib/shm/segment.h"

namespace drun::worker::shm {
namespace {

using Kind = WorkerError::Kind;
using std::chrono::milliseconds;

const std::string kKey = "shm";
// How long after the common deadline rank 0's explanation can arrive.
constexpr milliseconds kGrace{500};
// Connections that have not identified themselves yet.
constexpr std::size_t kMostStrangers = 64;

bool is_own_user(int socket) { return unix_socket::peer_user(socket) == geteuid(); }

void keep(Lifelines& lifelines, UniqueFd socket, int rank) {
  lifelines.lines.push_back({.fd = socket.get(), .rank = rank});
  lifelines.fds.push_back(std::move(socket));
}

[[noreturn]] void throw_system(const std::string& message) {
  throw BackendFailure(Kind::System, message + ": " + error_text(errno));
}

// Until one of these descriptors, of `ranks`, is readable. False if the deadline passes first.
// Throws PeerLost if one of the ranks has ended.
bool await_or_lose(const BackendContext& context, const std::vector<int>& fds,
                   const std::vector<int>& ranks, Deadline deadline) {
  const auto now = [] { return Deadline::clock::now(); };
  while (!unix_socket::await_readable(fds, std::min(deadline, now() + kBetweenEndChecks))) {
    const std::optional<int> ended =
        context.ended_rank ? context.ended_rank(ranks) : std::optional<int>();
    if (!ended && now() < deadline) continue;
    // What an ended process has sent is there by now.
    if (unix_socket::await_readable(fds, now())) return true;
    if (!ended) return false;
    throw loss_of_unconnected(*ended);
  }
  return true;
}

class Leader {
 public:
  Leader(const BackendContext& context, std::size_t segment_bytes)
      : context_(context),
        segment_bytes_(segment_bytes),
        members_(static_cast<std::size_t>(context.size)) {}

  Connection connect() {
    Connection connection;
    connection.segment = create_memory(segment_bytes_);
    connection.regions = create_memory(0);
    cores_ = own_cores();
    const std::string name = unix_socket::random_name();
    listener_ = unix_socket::listen_at(name, context_.size + 16);
    if (!listener_) throw_system("cannot listen on a unix socket");
    context_.store->set(kKey, name, left_until(context_.deadline));
    connect_members(connection);
    connection.cores = cores_;
    forget_key(context_, kKey);
    return connection;
  }

 private:
  // Sends the reason of a failure to the ranks that have called and have no answer yet.
  void connect_members(Connection& connection) {
    try {
      while (!missing().empty()) {
        await_ranks();
        check_members();
        admit_stranger();
        hear_strangers();
      }
      check_members();
      accept_members(connection);
    } catch (const BackendFailure& failure) {
      Answer answer{.kind = Answer::Kind::No, .why = failure.what()};
      if (failure.kind == Kind::Timeout) answer.kind = Answer::Kind::Late;
      if (failure.kind == Kind::PeerLost) answer.kind = Answer::Kind::Lost;
      answer.lost = failure.peer.value_or(0);
      tell_all(to_text(answer));
      throw;
    }
  }

  // Also those that have called, but have not been heard.
  void tell_all(const std::string& answer) {
    while (UniqueFd caller = unix_socket::accept_from(listener_.get()))
      if (is_own_user(caller.get())) strangers_.push_back(std::move(caller));
    for (const std::vector<UniqueFd>* sockets : {&members_, &strangers_})
      for (const UniqueFd& socket : *sockets)
        if (socket) unix_socket::send_message(socket.get(), answer);
  }

  void accept_members(Connection& connection) {
    const std::string yes = to_text(Answer{.kind = Answer::Kind::Yes, .cores = cores_});
    for (int rank = 1; rank < context_.size; ++rank) {
      UniqueFd member = std::exchange(members_[static_cast<std::size_t>(rank)], UniqueFd());
      if (!unix_socket::send_message(member.get(), yes,
                                     {connection.segment.get(), connection.regions.get()}))
        lose(rank);
      keep(connection.lifelines, std::move(member), rank);
    }
  }

  // A rank that has said hello says nothing more: if its socket is readable, it has closed it.
  void check_members() const {
    const auto is_readable = [](const std::vector<int>& fds) {
      return !fds.empty() && unix_socket::await_readable(fds, Deadline::clock::now());
    };
    std::vector<int> fds;
    for (const UniqueFd& member : members_)
      if (member) fds.push_back(member.get());
    if (!is_readable(fds)) return;
    for (int rank = 1; rank < context_.size; ++rank) {
      const UniqueFd& member = members_[static_cast<std::size_t>(rank)];
      if (member && is_readable({member.get()})) lose(rank);
    }
  }

  // A rank has closed its socket: its process has ended, or its own time was over.
  [[noreturn]] void lose(int rank) const {
    // The end of a process is seen shortly after that of its sockets.
    const Deadline until = Deadline::clock::now() + kGrace;
    while (context_.ended_rank && !context_.ended_rank({rank})) {
      if (Deadline::clock::now() >= until)
        throw BackendFailure(
            Kind::Timeout, std::nullopt,
            "rank " + std::to_string(rank) + " gave up before all ranks had connected to rank 0");
      std::this_thread::sleep_for(milliseconds(1));
    }
    throw loss_of_unconnected(rank);
  }

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 1; rank < context_.size; ++rank) {
      if (!members_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    }
    return ranks;
  }

  std::vector<int> watched() const {
    std::vector<int> fds = {listener_.get()};
    for (const UniqueFd& stranger : strangers_) fds.push_back(stranger.get());
    for (const UniqueFd& member : members_)
      if (member) fds.push_back(member.get());
    return fds;
  }

  void admit_stranger() {
    UniqueFd stranger = unix_socket::accept_from(listener_.get());
    if (!stranger && is_local_lack(errno))
      throw_system("rank 0 cannot accept the connection of another rank");
    if (!stranger || !is_own_user(stranger.get())) return;
    if (strangers_.size() == kMostStrangers) strangers_.erase(strangers_.begin());
    strangers_.push_back(std::move(stranger));
  }

  void hear_strangers() {
    for (UniqueFd& stranger : strangers_) {
      if (!unix_socket::await_readable({stranger.get()}, Deadline::clock::now())) continue;
      hear(std::exchange(stranger, UniqueFd()));
    }
    std::erase_if(strangers_, [](const UniqueFd& fd) { return !fd; });
  }

  void hear(UniqueFd stranger) {
    const auto message = unix_socket::receive_message(stranger.get());
    const auto hello = message ? parse_hello(message->text) : std::nullopt;
    if (!hello) return;
    std::vector<bool> is_there;
    for (const UniqueFd& member : members_) is_there.push_back(static_cast<bool>(member));
    if (!has_place(*hello, segment_bytes_, is_there)) {
      const Answer no{.kind = Answer::Kind::No,
                      .why = "rank 0 has a group of " + std::to_string(context_.size) +
                             " ranks, in which there is no place for this one: another drun, or "
                             "the same rank twice"};
      unix_socket::send_message(stranger.get(), to_text(no));
      return;
    }
    members_[hello->rank] = std::move(stranger);
    cores_ |= hello->cores;
  }

  // Until one of them connects or writes, or one that has connected ends.
  void await_ranks() const {
    const std::vector<int> ranks = missing();
    if (await_or_lose(context_, watched(), ranks, context_.deadline)) return;
    std::optional<int> peer;
    if (ranks.size() == 1) peer = ranks.front();
    throw BackendFailure(Kind::Timeout, peer,
                         describe_ranks(ranks) + " did not come to share memory with rank 0");
  }

  const BackendContext& context_;
  const std::size_t segment_bytes_;
  UniqueFd listener_;
  std::vector<UniqueFd> strangers_;
  std::vector<UniqueFd> members_;  // by rank
  CoreMask cores_{};               // of the ranks that have connected
};

std::string name_of_leader(const BackendContext& context) {
  try {
    return await_text(context, kKey, {0});
  } catch (const WorkerError& error) {
    if (error.kind() != Kind::Timeout) throw;
    throw BackendFailure(Kind::Timeout, 0, "rank 0 did not come to share its memory");
  }
}

Connection follow(const BackendContext& context, std::size_t segment_bytes) {
  UniqueFd leader = unix_socket::connect_to(name_of_leader(context), context.deadline);
  if (!leader) {
    const int error = errno;
    if (context.ended_rank && context.ended_rank({0})) throw loss_of_unconnected(0);
    errno = error;
    throw_system(std::string("cannot connect to rank 0's unix socket") +
                 (error == ECONNREFUSED ? " (it has ended, or is in another network namespace: "
                                          "choose the backend gloo)"
                                        : ""));
  }
  if (!is_own_user(leader.get())) {
    throw BackendFailure(Kind::System, 0, "rank 0 runs as another user; choose the backend gloo");
  }
  const Hello hello{.rank = static_cast<std::uint32_t>(context.rank),
                    .size = static_cast<std::uint32_t>(context.size),
                    .segment_bytes = segment_bytes,
                    .cores = own_cores()};
  unix_socket::send_message(leader.get(), to_text(hello));
  if (!await_or_lose(context, {leader.get()}, {0}, context.deadline + kGrace)) {
    throw BackendFailure(Kind::Timeout, 0, "rank 0 did not answer");
  }
  auto message = unix_socket::receive_message(leader.get());
  if (!message) throw BackendFailure(Kind::PeerLost, 0, "lost rank 0");
  if (message->lacks_fds) {
    throw BackendFailure(Kind::System,
                         "cannot receive the memory that rank 0 shares: " + error_text(EMFILE));
  }
  const Answer answer = parse_answer(message->text, message->fds.size());
  if (answer.kind == Answer::Kind::Lost && answer.lost >= 0 && answer.lost < context.size)
    throw BackendFailure(Kind::PeerLost, answer.lost, answer.why, true);
  if (answer.kind != Answer::Kind::Yes) {
    throw BackendFailure(answer.kind == Answer::Kind::Late ? Kind::Timeout : Kind::System,
                         std::nullopt, answer.why);
  }
  Connection connection{.segment = std::move(message->fds[0]),
                        .regions = std::move(message->fds[1]),
                        .lifelines = {},
                        .cores = answer.cores};
  // An access beyond its end would raise SIGBUS.
  struct stat memory {};
  if (fstat(connection.segment.get(), &memory) != 0 ||
      static_cast<std::uint64_t>(memory.st_size) < segment_bytes) {
    throw BackendFailure(Kind::System, 0, "the memory that rank 0 shares is too small");
  }
  keep(connection.lifelines, std::move(leader), 0);
  return connection;
}

}  // namespace

Connection connect_ranks(const BackendContext& context, std::size_t segment_bytes) {
  if (context.rank == 0) return Leader(context, segment_bytes).connect();
  return follow(context, segment_bytes);
}

// --- The handshake

namespace {

// The first byte of an answer. The rest of No and Late is the reason, that of Lost a rank and the
// reason.
constexpr char kYes = 'y';
constexpr char kLost = 'd';
constexpr char kNo = 'n';
constexpr char kLate = 'l';

constexpr std::size_t kDescriptors = 2;

}  // namespace

std::string to_text(const Hello& hello) {
  return {reinterpret_cast<const char*>(&hello), sizeof hello};
}

std::optional<Hello> parse_hello(std::string_view text) {
  Hello hello;
  if (text.size() != sizeof hello) return std::nullopt;
  std::memcpy(&hello, text.data(), sizeof hello);
  return hello;
}

bool has_place(const Hello& hello, std::uint64_t segment_bytes, const std::vector<bool>& is_there) {
  return hello.size == is_there.size() && hello.segment_bytes == segment_bytes && hello.rank > 0 &&
         hello.rank < is_there.size() && !is_there[hello.rank];
}

std::string to_text(const Answer& answer) {
  if (answer.kind == Answer::Kind::Yes) {
    return kYes + std::string(reinterpret_cast<const char*>(&answer.cores), sizeof answer.cores);
  }
  if (answer.kind == Answer::Kind::Lost) {
    return kLost + std::string(reinterpret_cast<const char*>(&answer.lost), sizeof answer.lost) +
           answer.why;
  }
  return (answer.kind == Answer::Kind::Late ? kLate : kNo) + answer.why;
}

Answer parse_answer(std::string_view text, std::size_t descriptors) {
  Answer answer;
  const char kind = text.empty() ? '\0' : text.front();
  if (kind == kYes && descriptors == kDescriptors && text.size() == 1 + sizeof answer.cores) {
    answer.kind = Answer::Kind::Yes;
    std::memcpy(&answer.cores, text.data() + 1, sizeof answer.cores);
  } else if (kind == kLost && text.size() > sizeof answer.lost) {
    answer.kind = Answer::Kind::Lost;
    std::memcpy(&answer.lost, text.data() + 1, sizeof answer.lost);
    answer.why = text.substr(1 + sizeof answer.lost);
  } else if (kind == kNo || kind == kLate) {
    answer.kind = kind == kLate ? Answer::Kind::Late : Answer::Kind::No;
    answer.why = text.substr(1);
  } else {
    answer.why = "what listens in rank 0's place is not a drun of this version";
  }
  return answer;
}

}  // namespace drun::worker::shm
