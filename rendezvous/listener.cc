#include "rendezvous/listener.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "rendezvous/listen_sockets.h"
#include "rendezvous/log_limit.h"
#include "rendezvous/peer_address.h"
#include "rendezvous/pending_connections.h"
#include "rendezvous/store/wire.h"

namespace drun::rendezvous {
namespace {

using asio::ip::tcp;

constexpr std::size_t kAcceptsPerTurn = 512;
constexpr std::size_t kFirstReadBytes = 4096;
// The system may have descriptors again by then; nothing tells us when.
constexpr std::chrono::milliseconds kPause{100};

enum class Protocol { Store, Control, Unknown };

Protocol protocol_of(char first_byte) {
  constexpr char kTls = 0x16;
  if (first_byte == 'd' || first_byte == kTls) return Protocol::Control;
  return may_be_store(static_cast<std::uint8_t>(first_byte)) ? Protocol::Store : Protocol::Unknown;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes.substr(0, 8)) {
    std::array<char, 4> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned char>(byte));
    text += digits.data();
  }
  return text;
}

bool is_again(error_code ec) {
  return ec == asio::error::would_block || ec == asio::error::try_again;
}

}  // namespace

class Listener::Impl : public std::enable_shared_from_this<Listener::Impl> {
 public:
  Impl(asio::io_context& io, const ListenSpec& spec, Handlers handlers, Log log)
      : io_(io),
        spec_(spec),
        handlers_(std::move(handlers)),
        log_(std::move(log)),
        pending_(std::min(spec.most_silent, descriptor_limit() / 2), spec.first_byte_timeout),
        silence_timer_(io),
        pause_timer_(io) {}

  Result<void> open();
  std::uint16_t port() const { return port_; }
  std::size_t silent_count() const { return silent_.size(); }
  void accept_waiting();
  void close_silent();
  void stop();

 private:
  using Time = std::chrono::steady_clock::time_point;
  // Its handler may be on its way already when it leaves the list, so the handler keeps it.
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

  void wait_acceptable(std::size_t at);
  bool accept_some(tcp::acceptor& acceptor, std::size_t most);
  void pause(int error_number);
  void welcome(tcp::socket socket);
  void keep_waiting(tcp::socket socket);
  void wait_readable(const std::shared_ptr<Silent>& silent);
  void try_read(const std::shared_ptr<Silent>& silent);
  void unlist(Silent& silent);
  void arm_silence_timer();
  void on_silence(std::optional<PendingConnections::Id> id);
  void hand_over(tcp::socket socket, std::string first_bytes);
  void complain(std::string_view what);

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
  asio::steady_timer silence_timer_;
  asio::steady_timer pause_timer_;
  std::array<char, kFirstReadBytes> buffer_{};
  bool is_paused_ = false;
  bool is_stopped_ = false;
};

Result<void> Listener::Impl::open() {
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

void Listener::Impl::stop() {
  if (std::exchange(is_stopped_, true)) return;
  error_code ignored;
  for (Port& port : ports_) port.acceptor.close(ignored);
  silence_timer_.cancel();
  pause_timer_.cancel();
  close_silent();
}

void Listener::Impl::close_silent() {
  const SilentList silent = std::exchange(silent_, {});
  for (const auto& [id, one] : silent) {
    one->is_listed = false;
    error_code ignored;
    one->socket.close(ignored);
    pending_.remove(id);
  }
}

void Listener::Impl::accept_waiting() {
  for (Port& port : ports_) {
    while (!is_stopped_ && accept_some(port.acceptor, kAcceptsPerTurn)) {
    }
  }
  const SilentList silent = silent_;
  for (const auto& [id, one] : silent) {
    if (one->is_listed) try_read(one);
  }
}

void Listener::Impl::wait_acceptable(std::size_t at) {
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
bool Listener::Impl::accept_some(tcp::acceptor& acceptor, std::size_t most) {
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
    // Anything else is that one connection's trouble: accept(2), "Error handling".
  }
  return true;
}

void Listener::Impl::pause(int error_number) {
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

void Listener::Impl::welcome(tcp::socket socket) {
  error_code ignored;
  socket.non_blocking(true, ignored);
  error_code ec;
  const std::size_t count = socket.read_some(asio::buffer(buffer_), ec);
  if (is_again(ec)) return keep_waiting(std::move(socket));
  if (!ec) hand_over(std::move(socket), std::string(buffer_.data(), count));
}

void Listener::Impl::keep_waiting(tcp::socket socket) {
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

void Listener::Impl::wait_readable(const std::shared_ptr<Silent>& silent) {
  silent->socket.async_wait(tcp::socket::wait_read,
                            [self = shared_from_this(), silent](error_code ec) {
                              if (ec || !silent->is_listed) return;
                              self->try_read(silent);
                              if (silent->is_listed) self->wait_readable(silent);
                            });
}

void Listener::Impl::try_read(const std::shared_ptr<Silent>& silent) {
  error_code ec;
  const std::size_t count = silent->socket.read_some(asio::buffer(buffer_), ec);
  if (is_again(ec)) return;
  unlist(*silent);
  if (!ec) hand_over(std::move(silent->socket), std::string(buffer_.data(), count));
}

void Listener::Impl::unlist(Silent& silent) {
  silent.is_listed = false;
  error_code ignored;
  silent.socket.cancel(ignored);  // whoever gets it must find no wait of ours on it
  pending_.remove(silent.id);
  silent_.erase(silent.id);
}

void Listener::Impl::arm_silence_timer() {
  const std::optional<Time> wanted = pending_.next_expiry();
  if (!wanted || is_stopped_) return;
  silence_timer_.expires_at(*wanted);
  silence_timer_.async_wait([self = shared_from_this()](error_code ec) {
    if (ec || self->is_stopped_) return;
    const Time now = std::chrono::steady_clock::now();
    while (const std::optional<PendingConnections::Id> id = self->pending_.take_expired(now)) {
      self->on_silence(id);
      if (self->is_stopped_) return;
    }
    self->arm_silence_timer();
  });
}

void Listener::Impl::on_silence(std::optional<PendingConnections::Id> id) {
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

void Listener::Impl::hand_over(tcp::socket socket, std::string first_bytes) {
  const Protocol protocol = protocol_of(first_bytes.front());
  if (protocol == Protocol::Store && handlers_.on_store) {
    return handlers_.on_store(std::move(socket), std::move(first_bytes));
  }
  if (protocol == Protocol::Control && handlers_.on_control) {
    return handlers_.on_control(std::move(socket), std::move(first_bytes));
  }
  error_code ignored;
  std::ostringstream peer;
  peer << socket.remote_endpoint(ignored);
  complain("connection closed, it speaks no protocol of this port: peer=" + peer.str() +
           " bytes=" + hex(first_bytes));
}

void Listener::Impl::complain(std::string_view what) {
  if (!log_limit_.allows(std::chrono::steady_clock::now())) return;
  log_.warning("port " + std::to_string(port_) + ": " + std::string(what) + log_limit_.left_out());
}

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

}  // namespace drun::rendezvous
