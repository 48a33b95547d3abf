#include "agent/supervise/coordinator_seat.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace drun::agent {
namespace {

using rendezvous::Server;

JoinSpec at_seat(const JoinSpec& join, std::size_t seat) {
  JoinSpec there = join;
  there.seat = seat;
  there.endpoint = join.seats[seat];
  there.master_addr = there.endpoint.host;
  return there;
}

JoinSpec as_candidate(const JoinSpec& join) {
  JoinSpec there = join;
  there.master_addr = there.endpoint.host;
  return there;
}

}  // namespace

Result<std::unique_ptr<Server>> take_seat(asio::io_context& io, JoinSpec& join, const Log& log,
                                          std::function<void()> on_finished,
                                          Server::OnLeader on_leader, rendezvous::LogSink* lines,
                                          Server::OnTrouble on_trouble) {
  if (join.etcd) {
    auto server = Server::open(io, as_candidate(join), log, std::move(on_finished),
                               std::move(on_leader), nullptr, std::move(on_trouble));
    if (!server) return server;
    join.endpoint.port = (*server)->port();
    join.seats = {join.endpoint};
    join.seat = 0;
    return server;
  }
  for (const std::size_t seat : join.own_seats) {
    auto server = Server::open(io, at_seat(join, seat), log, on_finished, on_leader);
    if (server) {
      join.seat = seat;
      return server;
    }
    log.debug(server.error().message);
  }
  if (!join.seats.empty()) {
    if (!join.own_seats.empty())
      log.info("this agent joins without a vote: others listen at this host's endpoints of " +
               to_string(join.seats));
    join.is_coordinator = false;
    return std::unique_ptr<Server>();
  }
  auto server = Server::open(io, join, log, std::move(on_finished), {}, lines);
  if (!server && join.may_be_member) {
    join.is_coordinator = false;
    log.debug(server.error().message + "; joining the program that listens there");
    return std::unique_ptr<Server>();
  }
  if (!server) return server;
  join.endpoint.port = (*server)->port();
  if (join.master_port == 0) join.master_port = (*server)->port();
  return server;
}

std::string meeting_place(const JoinSpec& join) {
  return join.etcd ? to_string(join.etcd->endpoints) : to_string(join.endpoint);
}

namespace {

constexpr int kMostSlots = 1024;

// FNV-1a: names have a hundred bytes, run ids may have more.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

bool bind_name(int fd, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), size);  // a first byte of 0: abstract, unix(7)
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), bytes) == 0;
}

}  // namespace

HostSlot HostSlot::take(const std::string& job) {
  const std::string place =
      "drun-slot/" + std::to_string(getuid()) + "/" + std::to_string(hash_of(job)) + "/";
  UniqueFd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (int number = 0; fd && number < kMostSlots; ++number) {
    if (bind_name(fd.get(), place + std::to_string(number))) return {std::move(fd), number};
    if (errno != EADDRINUSE) break;
  }
  return {UniqueFd(), static_cast<int>(getpid())};
}

}  // namespace drun::agent
