#include "rendezvous/net/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/bytes.h"
#include "rendezvous/base/log.h"
#include "rendezvous/net/deadline_timer.h"
#include "rendezvous/net/peer_address.h"
#include "rendezvous/net/pending_connections.h"

namespace drun::rendezvous {
namespace {

using asio::ip::tcp;

constexpr std::size_t kAcceptsPerTurn = 512;
constexpr std::size_t kFirstReadBytes = 4096;
// The pause without free descriptors: the system does not notify when there are some again.
constexpr std::chrono::milliseconds kPause{100};

enum class Protocol { Store, Control, Unknown };

Protocol protocol_of(char first_byte) {
  constexpr char kTls = 0x16;
  if (first_byte == 'd' || first_byte == kTls) return Protocol::Control;
  return may_be_store(static_cast<std::uint8_t>(first_byte)) ? Protocol::Store : Protocol::Unknown;
}

std::string hex_preview(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes.substr(0, 8)) {
    std::array<char, 4> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(byte));
    text += digits.data();
  }
  return text;
}

// The number of attempts if a free port of one address family is in use in the other.
constexpr int kPortTries = 16;

std::uint16_t port_of(int fd) {
  tcp::endpoint own;
  auto size = static_cast<socklen_t>(own.capacity());
  getsockname(fd, own.data(), &size);
  return own.port();
}

// Adds a listening socket with the port of the others to `sockets`. Returns 0, or errno. The
// unspecified address of IPv6 also stands for that of IPv4.
int listen_on(const asio::ip::address& address, std::uint16_t port, ListenSockets& sockets) {
  const tcp::endpoint at(address, port);
  UniqueFd owned(
      socket(at.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  const int fd = owned.get();
  // Accepted sockets inherit these options, which saves system calls for each connection. The
  // kernel closes the connections of a host that has been silent for about 20 minutes, so that a
  // store which runs for weeks does not keep those of machines that lost power.
  const auto set = [fd](int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof(value)) == 0;
  };
  const bool is_good =
      fd >= 0 && set(SOL_SOCKET, SO_REUSEADDR, 1) && set(IPPROTO_TCP, TCP_NODELAY, 1) &&
      set(SOL_SOCKET, SO_KEEPALIVE, 1) && set(IPPROTO_TCP, TCP_KEEPIDLE, 600) &&
      set(IPPROTO_TCP, TCP_KEEPINTVL, 60) && set(IPPROTO_TCP, TCP_KEEPCNT, 10) &&
      (address.is_v4() || set(IPPROTO_IPV6, IPV6_V6ONLY, address.is_unspecified() ? 0 : 1)) &&
      bind(fd, at.data(), static_cast<socklen_t>(at.size())) == 0 &&
      // The kernel limits it to somaxconn.
      listen(fd, 1 << 20) == 0;
  if (!is_good) return errno;
  sockets.port = port_of(fd);
  sockets.sockets.push_back({.fd = std::move(owned), .is_v6 = address.is_v6()});
  return 0;
}

Error cannot_listen(std::uint16_t port, const std::string& option, int error_number) {
  const std::string which = port == 0 ? "any port" : "port " + std::to_string(port);
  std::string remedy;
  if (error_number == EADDRINUSE)
    remedy = "; another run on this machine? choose another " + option;
  if (error_number == EACCES)
    remedy = "; ports below 1024 need privileges, choose another " + option;
  if (error_number == EADDRNOTAVAIL)
    remedy = "; 127.0.0.1 is missing, and ::1 alone is not enough: ip addr add 127.0.0.1/8 dev lo";
  return Error{ErrorCode::System,
               "cannot listen on " + which + ": " + system_message(error_number) + remedy};
}

bool is_missing_family(int error_number) {
  return error_number == EAFNOSUPPORT || error_number == EADDRNOTAVAIL ||
         error_number == EPROTONOSUPPORT;
}

Result<ListenSockets> listen_everywhere(std::uint16_t port, const std::string& option) {
  ListenSockets sockets;
  int error_number = listen_on(asio::ip::address_v6::any(), port, sockets);
  if (is_missing_family(error_number))
    error_number = listen_on(asio::ip::address_v4::any(), port, sockets);
  if (error_number != 0) return cannot_listen(port, option, error_number);
  return sockets;
}

// A loopback address other than 127.0.0.1 and ::1.
Result<std::optional<asio::ip::address>> extra_loopback(const std::string& literal) {
  std::optional<asio::ip::address> extra;
  if (literal.empty() || literal == "::1") return extra;
  error_code ec;
  const auto address = asio::ip::make_address_v4(literal, ec);
  if (ec || !address.is_loopback())
    return Error{ErrorCode::Usage, "\"" + literal + "\" is not a loopback address; use 127.0.0.1"};
  if (address != asio::ip::address_v4::loopback()) extra = address;
  return extra;
}

// An Error with the port would not help: the next step depends on which address failed.
int listen_on_loopback(std::uint16_t port, const std::optional<asio::ip::address>& extra,
                       ListenSockets& sockets) {
  int error_number = listen_on(asio::ip::address_v4::loopback(), port, sockets);
  if (error_number != 0) return error_number;
  error_number = listen_on(asio::ip::address_v6::loopback(), sockets.port, sockets);
  if (error_number != 0 && !is_missing_family(error_number)) return error_number;
  return extra ? listen_on(*extra, sockets.port, sockets) : 0;
}

}  // namespace

class Listener::Impl : public std::enable_shared_from_this<Listener::Impl> {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Its handler may already be queued when it leaves the list, so the handler keeps it.
  struct Silent {
    explicit Silent(tcp::socket its_socket) : socket(std::move(its_socket)) {}

    tcp::socket socket;
    PendingConnections::Id id = 0;
    bool is_listed = true;
  };
  struct Port {
    tcp::acceptor acceptor;
    bool is_waiting = false;  // for a connection to accept; at most one wait at a time
  };
  using SilentList = std::map<PendingConnections::Id, std::shared_ptr<Silent>>;

  Impl(asio::io_context& io, const ListenSpec& spec, Handlers handlers, Log log)
      : io_(io),
        spec_(spec),
        handlers_(std::move(handlers)),
        log_(std::move(log)),
        pending_(std::min(spec.most_silent, descriptor_limit() / 2), spec.first_byte_timeout),
        silence_timer_(io),
        pause_timer_(io) {}

  Result<void> open() {
    Result<ListenSockets> sockets = open_listen_sockets(spec_);
    if (!sockets) return sockets.error();
    port_ = sockets->port;
    for (ListenSocket& socket : sockets->sockets) {
      ports_.push_back(
          {tcp::acceptor(io_, socket.is_v6 ? tcp::v6() : tcp::v4(), socket.fd.release())});
    }
    for (std::size_t i = 0; i < ports_.size(); ++i) wait_acceptable(i);
    return {};
  }

  void stop() {
    if (std::exchange(is_stopped_, true)) return;
    error_code ignored;
    for (Port& port : ports_) port.acceptor.close(ignored);
    silence_timer_.cancel();
    pause_timer_.cancel();
    close_silent();
  }

  void close_silent() {
    const SilentList silent = std::exchange(silent_, {});
    for (const auto& [id, one] : silent) {
      one->is_listed = false;
      error_code ignored;
      one->socket.close(ignored);
      pending_.remove(id);
    }
  }

  void accept_waiting() {
    for (Port& port : ports_) {
      while (!is_stopped_ && accept_some(port.acceptor, kAcceptsPerTurn)) {
      }
    }
    const SilentList silent = silent_;
    for (const auto& [id, one] : silent) {
      if (one->is_listed) try_read(one);
    }
  }

  void wait_acceptable(std::size_t at) {
    if (std::exchange(ports_[at].is_waiting, true)) return;
    ports_[at].acceptor.async_wait(tcp::acceptor::wait_read,
                                   [self = shared_from_this(), at](error_code ec) {
                                     self->ports_[at].is_waiting = false;
                                     if (ec || self->is_stopped_) return;
                                     self->accept_some(self->ports_[at].acceptor, kAcceptsPerTurn);
                                     if (!self->is_stopped_ && !self->is_paused_)
                                       self->wait_acceptable(at);
                                   });
  }

  // True: there may be more.
  bool accept_some(tcp::acceptor& acceptor, std::size_t most) {
    for (std::size_t i = 0; i < most; ++i) {
      sockaddr_storage address{};
      socklen_t size = sizeof(address);
      const int fd = accept4(acceptor.native_handle(), reinterpret_cast<sockaddr*>(&address), &size,
                             SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd >= 0) {
        welcome(tcp::socket(io_, address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), fd));
        if (is_stopped_) return false;
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        pause(errno);
        return false;
      }
      // All other errors belong to that one connection: accept(2), "Error handling".
    }
    return true;
  }

  void pause(int error_number) {
    complain("cannot accept a connection: " + system_message(error_number) +
             "; trying again, raise the limit of open files (ulimit -n)");
    on_silence(pending_.evict());
    if (std::exchange(is_paused_, true)) return;
    pause_timer_.expires_after(kPause);
    pause_timer_.async_wait([self = shared_from_this()](error_code ec) {
      if (ec || self->is_stopped_) return;
      self->is_paused_ = false;
      for (std::size_t i = 0; i < self->ports_.size(); ++i) self->wait_acceptable(i);
    });
  }

  void welcome(tcp::socket socket) {
    error_code ignored;
    socket.non_blocking(true, ignored);
    error_code ec;
    const std::size_t count = socket.read_some(asio::buffer(buffer_), ec);
    if (is_again(ec)) return keep_waiting(std::move(socket));
    if (!ec) hand_over(std::move(socket), std::string(buffer_.data(), count));
  }

  void keep_waiting(tcp::socket socket) {
    error_code ignored;
    const auto peer = socket.remote_endpoint(ignored).address();
    const auto silent = std::make_shared<Silent>(std::move(socket));
    silent->id = ++last_id_;
    silent_.emplace(silent->id, silent);
    on_silence(pending_.add(silent->id, origin_of(peer), std::chrono::steady_clock::now()));
    if (is_stopped_) return;
    wait_readable(silent);
    if (silent_.size() == 1) arm_silence_timer();
  }

  void wait_readable(const std::shared_ptr<Silent>& silent) {
    silent->socket.async_wait(tcp::socket::wait_read,
                              [self = shared_from_this(), silent](error_code ec) {
                                if (ec || !silent->is_listed) return;
                                self->try_read(silent);
                                if (silent->is_listed) self->wait_readable(silent);
                              });
  }

  void try_read(const std::shared_ptr<Silent>& silent) {
    error_code ec;
    const std::size_t count = silent->socket.read_some(asio::buffer(buffer_), ec);
    if (is_again(ec)) return;
    unlist(*silent);
    if (!ec) hand_over(std::move(silent->socket), std::string(buffer_.data(), count));
  }

  void unlist(Silent& silent) {
    silent.is_listed = false;
    error_code ignored;
    silent.socket.cancel(ignored);  // the new owner requires that no wait is pending
    pending_.remove(silent.id);
    silent_.erase(silent.id);
  }

  void arm_silence_timer() {
    silence_timer_.set(pending_.next_expiry(), [self = shared_from_this()] {
      const Time now = std::chrono::steady_clock::now();
      while (const std::optional<PendingConnections::Id> id = self->pending_.take_expired(now)) {
        self->on_silence(id);
        if (self->is_stopped_) return;
      }
      self->arm_silence_timer();
    });
  }

  void on_silence(std::optional<PendingConnections::Id> id) {
    const auto found = id ? silent_.find(*id) : silent_.end();
    if (found == silent_.end()) return;
    const std::shared_ptr<Silent> silent = found->second;
    unlist(*silent);
    error_code ec;
    const tcp::endpoint peer = silent->socket.remote_endpoint(ec);
    if (!ec && handlers_.keep_silent && handlers_.keep_silent(peer.address())) {
      if (handlers_.on_store) return handlers_.on_store(std::move(silent->socket), {});
    }
    silent->socket.close(ec);
  }

  void hand_over(tcp::socket socket, std::string first_bytes) {
    const Protocol protocol = protocol_of(first_bytes.front());
    if (protocol == Protocol::Store && handlers_.on_store) {
      return handlers_.on_store(std::move(socket), std::move(first_bytes));
    }
    if (protocol == Protocol::Control && handlers_.on_control) {
      return handlers_.on_control(std::move(socket), std::move(first_bytes));
    }
    error_code ignored;
    complain("connection closed, it speaks no protocol of this port: peer=" +
             peer_text(socket.remote_endpoint(ignored)) + " bytes=" + hex_preview(first_bytes));
  }

  void complain(std::string_view what) {
    if (!log_limit_.allows(std::chrono::steady_clock::now())) return;
    log_.warning("port " + std::to_string(port_) + ": " + std::string(what) +
                 log_limit_.left_out());
  }

  std::uint16_t port() const { return port_; }
  std::size_t silent_count() const { return silent_.size(); }

 private:
  asio::io_context& io_;
  const ListenSpec spec_;
  const Handlers handlers_;
  const Log log_;
  LogLimit log_limit_;
  std::vector<Port> ports_;
  std::uint16_t port_ = 0;
  SilentList silent_;
  PendingConnections pending_;  // those in silent_
  PendingConnections::Id last_id_ = 0;
  DeadlineTimer silence_timer_;
  asio::steady_timer pause_timer_;
  std::array<char, kFirstReadBytes> buffer_{};
  bool is_paused_ = false;
  bool is_stopped_ = false;
};

Result<std::unique_ptr<Listener>> Listener::open(asio::io_context& io, const ListenSpec& spec,
                                                 Handlers handlers, Log log) {
  auto impl = std::make_shared<Impl>(io, spec, std::move(handlers), std::move(log));
  const Result<void> opened = impl->open();
  if (!opened) return opened.error();
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

Listener::Listener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Listener::~Listener() { impl_->stop(); }
std::uint16_t Listener::port() const { return impl_->port(); }
std::size_t Listener::silent_count() const { return impl_->silent_count(); }
void Listener::accept_waiting() { impl_->accept_waiting(); }
void Listener::close_silent() { impl_->close_silent(); }
void Listener::stop() { impl_->stop(); }

Result<ListenSockets> open_listen_sockets(const ListenSpec& spec) {
  if (!spec.listening.empty()) {
    ListenSockets sockets;
    for (const ListeningFd& each : spec.listening)
      sockets.sockets.push_back({.fd = UniqueFd(each.fd), .is_v6 = each.is_v6});
    sockets.port = port_of(spec.listening.front().fd);
    return sockets;
  }
  if (!spec.loopback_only) return listen_everywhere(spec.port, spec.port_option);
  const auto extra = extra_loopback(spec.loopback_host);
  if (!extra) return extra.error();
  const int tries = spec.port == 0 ? kPortTries : 1;
  int error_number = 0;
  for (int i = 0; i < tries; ++i) {
    ListenSockets sockets;
    error_number = listen_on_loopback(spec.port, *extra, sockets);
    if (error_number == 0) return sockets;
    if (error_number != EADDRINUSE) break;
  }
  return cannot_listen(spec.port, spec.port_option, error_number);
}

}  // namespace drun::rendezvous
