#include "rendezvous/protocol/control_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

#include "rendezvous/net/endpoint.h"
#include "rendezvous/net/peer_address.h"
#include "rendezvous/protocol/control_wire.h"

namespace drun::rendezvous {
namespace {

constexpr std::chrono::seconds kLingerLimit{2};
// Bytes per write, and the most that the kernel may hold unsent (tcp(7) does not
// name TCP_NOTSENT_LOWAT; it is as old as Linux 3.12).
constexpr std::size_t kWriteBytes = std::size_t{128} << 10;
constexpr int kUnsentBytes = 128 << 10;

std::string words(const error_code& ec) {
  if (ec == asio::error::eof) return "its connection closed";
  if (ec == asio::error::connection_reset) return "its connection was reset";
  return "its connection failed: " + ec.message();
}

std::string address_of(const asio::ip::tcp::socket& socket) {
  error_code ec;
  const asio::ip::tcp::endpoint peer = socket.remote_endpoint(ec);
  return ec ? "" : plain_address(peer.address());
}

std::string peer_of(const asio::ip::tcp::socket& socket) {
  error_code ec;
  const asio::ip::tcp::endpoint peer = socket.remote_endpoint(ec);
  return ec ? "an unknown address"
            : to_string(Endpoint{plain_address(peer.address()), peer.port()});
}

std::string version_words(std::uint16_t version) {
  return "speaks drun's control protocol " + std::to_string(version) + ", this drun speaks " +
         std::to_string(kControlVersion) + "; install the same drun on all nodes";
}

}  // namespace

ControlConnection::ControlConnection(asio::ip::tcp::socket socket, Side side,
                                     std::size_t frame_limit_bytes, std::uint64_t id,
                                     Listener& listener, std::shared_ptr<const TlsContext> tls)
    : ControlLink(id, address_of(socket), peer_of(socket)),
      socket_(std::move(socket)),
      linger_(socket_.get_executor()),
      side_(side),
      listener_(&listener),
      reader_(frame_limit_bytes),
      tls_(tls ? std::make_unique<TlsSession>(std::move(tls), side) : nullptr) {
  error_code ignored;  // only latency suffers
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes,
               sizeof(kUnsentBytes));
}

void ControlConnection::start(std::string_view first_bytes) {
  if (side_ == Side::Connecting) {
    if (tls_) {
      if (auto trouble = tls_->start()) return end({true, false, std::move(trouble->reason)});
      handshake_ += tls_->outgoing();
    }
    send(encode_preamble());
  }
  if (!first_bytes.empty()) take(first_bytes);
  if (socket_.is_open()) read();
}

void ControlConnection::send(Bytes frame) {
  if (!has_room(frame->size())) return;
  outgoing_.push_back(std::move(frame));
  write_soon();
}

void ControlConnection::send(Bytes head, Bytes body) {
  if (!has_room(head->size() + body->size())) return;
  outgoing_.push_back(std::move(head));
  outgoing_.push_back(std::move(body));
  write_soon();
}

void ControlConnection::send_bulk(Bytes frame) {
  if (!has_room(frame->size())) return;
  bulk_.push_back(std::move(frame));
  write_soon();
}

// Reported from the loop, because the owner may be sending to many connections now.
bool ControlConnection::has_room(std::size_t bytes) {
  if (is_overfull_ || !socket_.is_open()) return false;
  if (queued_bytes_ + bytes <= kSendLimitBytes) {
    queued_bytes_ += bytes;
    return true;
  }
  is_overfull_ = true;
  outgoing_.clear();
  bulk_.clear();
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->listener_ != nullptr)
      self->end({false, self->has_preamble_,
                 "it does not read: more than " + std::to_string(kSendLimitBytes >> 20) +
                     " MiB of messages wait for it"});
  });
  return false;
}

void ControlConnection::write_soon() {
  const bool can_send = !tls_ || tls_->is_established();
  const bool has_frames = can_send && (!outgoing_.empty() || !bulk_.empty());
  if (!is_writing_ && socket_.is_open() && (has_frames || !handshake_.empty())) write();
}

// Takes frames from a queue, few enough that later frames do not wait long.
void ControlConnection::take_from(std::deque<Bytes>& queue) {
  for (std::size_t bytes = 0; !queue.empty() && bytes < kWriteBytes; queue.pop_front()) {
    bytes += queue.front()->size();
    in_flight_bytes_ += queue.front()->size();
    if (tls_)
      tls_->seal(*queue.front());
    else
      in_flight_.push_back(std::move(queue.front()));
  }
}

void ControlConnection::finish() {
  if (is_finishing_ || !socket_.is_open()) return;
  listener_ = nullptr;
  is_finishing_ = true;
  bulk_.clear();
  linger_.expires_after(kLingerLimit);
  linger_.async_wait([self = shared_from_this()](const error_code& ec) {
    if (!ec) self->close();
  });
  shut_down_when_sent();
}

void ControlConnection::close() {
  listener_ = nullptr;
  error_code ignored;  // no reaction is possible
  linger_.cancel();
  socket_.close(ignored);
}

void ControlConnection::read() {
  socket_.async_read_some(asio::buffer(incoming_.data(), incoming_.size()),
                          [self = shared_from_this()](const error_code& ec, std::size_t size) {
                            if (!self->socket_.is_open()) return;
                            if (ec) return self->end({false, self->has_preamble_, words(ec)});
                            self->take({self->incoming_.data(), size});
                            self->incoming_.adapt(size);
                            if (self->socket_.is_open()) self->read();
                          });
}

void ControlConnection::take(std::string_view bytes) {
  if (is_finishing_) return;
  if (tls_) return take_sealed(bytes);
  take_plain(bytes);
}

void ControlConnection::take_sealed(std::string_view bytes) {
  std::string plain;
  const auto trouble = tls_->take(bytes, plain);
  handshake_ += tls_->outgoing();
  if (!trouble || tls_->is_established()) write_soon();
  if (!plain.empty()) take_plain(plain);
  if (trouble && listener_ != nullptr)
    end({true, has_preamble_, trouble->reason, trouble->is_other_job});
}

void ControlConnection::take_plain(std::string_view bytes) {
  reader_.push(bytes);
  if (has_preamble_ || take_preamble()) take_frames();
}

bool ControlConnection::take_preamble() {
  const auto version = reader_.next_preamble();
  if (!version) {
    end({true, false,
         "is not a drun (its first bytes are " + version.error().message +
             "); does another program use this port?"});
    return false;
  }
  if (!*version) return false;
  has_preamble_ = true;
  if (side_ == Side::Accepting) send(encode_preamble());
  if (**version == kControlVersion) {
    if (listener_ != nullptr) listener_->on_open(*this);
    return listener_ != nullptr;
  }
  end({true, true, version_words(**version)});
  return false;
}

void ControlConnection::take_frames() {
  while (listener_ != nullptr) {
    const auto frame = reader_.next_frame();
    if (!frame) return end({true, true, "broke the control protocol: " + frame.error().message});
    if (!*frame) return;
    listener_->on_frame(*this, **frame);
  }
}

void ControlConnection::write() {
  is_writing_ = true;
  // Sends OpenSSL's own records first, because they were made before the data that is sealed here.
  if (!handshake_.empty())
    in_flight_.push_back(std::make_shared<const std::string>(std::exchange(handshake_, {})));
  if (!tls_ || tls_->is_established()) take_from(outgoing_.empty() ? bulk_ : outgoing_);
  if (tls_) in_flight_.push_back(std::make_shared<const std::string>(tls_->outgoing()));
  std::vector<asio::const_buffer> buffers;
  buffers.reserve(in_flight_.size());
  for (const Bytes& bytes : in_flight_) buffers.emplace_back(asio::buffer(*bytes));
  asio::async_write(
      socket_, buffers,
      [self = shared_from_this()](const error_code& ec, std::size_t) { self->wrote(ec); });
}

void ControlConnection::wrote(const error_code& ec) {
  is_writing_ = false;
  in_flight_.clear();
  queued_bytes_ -= std::exchange(in_flight_bytes_, 0);
  if (!socket_.is_open()) return;
  // Frames that the peer sent before it closed are still unread. The read reports the end.
  if (ec) {
    outgoing_.clear();
    bulk_.clear();
    queued_bytes_ = 0;
    return;
  }
  write_soon();
  if (!is_writing_ && is_finishing_) shut_down_when_sent();
}

void ControlConnection::end(ConnectionEnd ended) {
  Listener* const listener = std::exchange(listener_, nullptr);
  const auto self = shared_from_this();  // the listener may release its reference
  if (tls_ && !tls_->is_established()) say_last_words();
  if (ended.is_wrong_peer && ended.has_spoken)
    finish();  // this side's version has been sent to the peer
  else
    close();
  if (listener != nullptr) listener->on_end(*this, ended);
}

// Sends the alert with the reason. Does not wait, because a peer without the secret may be any
// program. A drun sends nothing more at this point, so closing does not discard the alert.
void ControlConnection::say_last_words() {
  error_code ignored;
  if (is_writing_) return;
  socket_.non_blocking(true, ignored);
  socket_.write_some(asio::buffer(std::exchange(handshake_, {})), ignored);
}

void ControlConnection::shut_down_when_sent() {
  const bool has_frames = !outgoing_.empty() && (!tls_ || tls_->is_established());
  if (is_writing_ || has_frames || !handshake_.empty()) return;
  error_code ignored;  // if it is not connected anymore, the read ends too
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
}

namespace {

constexpr std::size_t kMost = 64;

}  // namespace

// A drun with a secret recognizes the preamble of one without.
std::string RejectedConnections::add(asio::ip::tcp::socket socket, bool is_tls,
                                     const std::string& endpoint) {
  const auto connection = std::make_shared<ControlConnection>(
      std::move(socket), ControlConnection::Side::Accepting, kHelloFrameLimitBytes, 0,
      static_cast<ControlLink::Listener&>(*this));
  connection->start({});
  connection->send(encode_preamble());
  if (!is_tls) {
    const Error error{ErrorCode::Refused,
                      endpoint +
                          " refused this node: the job there has a secret and this node has "
                          "none; give it the same --secret-file"};
    connection->send(encode(CoordinatorMessage(Refused{error})));
  }
  connection->finish();
  connections_.push_back(connection);
  if (connections_.size() > kMost) {
    connections_.front()->close();
    connections_.pop_front();
  }
  return "refused " + connection->peer() +
         (is_tls ? ": it has a secret, or is no drun, and this job has none; give all nodes "
                   "the same --secret-file, or none of them any"
                 : ": it has no secret, and this job has one; give it the same --secret-file");
}

void RejectedConnections::close() {
  for (const auto& connection : connections_) connection->close();
  connections_.clear();
}

}  // namespace drun::rendezvous
