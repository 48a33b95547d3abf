#include "rendezvous/store/session.h"

#include <sys/socket.h>

#include <array>
#include <utility>

namespace drun::rendezvous {

RowReader::RowReader(asio::ip::tcp::socket& socket)
    : socket_(&socket), timer_(socket.get_executor()) {
  error_code ignored;
  socket_->set_option(asio::socket_base::receive_low_watermark(kMostBytes), ignored);
}

std::string_view RowReader::read(std::span<char> buffer) {
  const std::size_t known = is_byte_left_ ? 1 : 0;
  error_code ec;
  const std::size_t count = socket_->receive(asio::buffer(buffer.data(), buffer.size()),
                                             asio::socket_base::message_peek, ec);
  if (ec || count <= known) return {};
  is_byte_left_ = true;
  // Discards the bytes without a copy (tcp(7), MSG_TRUNC).
  if (count > 1) socket_->receive(asio::buffer(buffer.data(), count - 1), MSG_TRUNC, ec);
  return {buffer.data() + known, count - known};
}

void RowReader::end() {
  error_code ignored;
  std::array<char, 1> last{};
  if (is_byte_left_) socket_->receive(asio::buffer(last), 0, ignored);
  is_byte_left_ = false;
  socket_->set_option(asio::socket_base::receive_low_watermark(1), ignored);
}

namespace {

// If a peer has more unsent answers than this, the session reads no more requests.
constexpr std::size_t kMostUnsentBytes = 1u << 20;
// The approximate limit of bytes written to one peer in one turn.
constexpr std::size_t kTurnBytes = 4u << 20;
constexpr std::size_t kMostPieces = 64;
// This number of small pieces without an answer is a row.
constexpr std::size_t kRowPieces = 32;
constexpr std::size_t kSmallBytes = 16 * 1024;

}  // namespace

StoreSession::StoreSession(asio::ip::tcp::socket socket, ConnectionId id, const StoreLimits& limits,
                           StoreSessionHost& host)
    : socket_(std::move(socket)), id_(id), host_(&host), decoder_(limits) {
  error_code ignored;
  if (!socket_.non_blocking()) socket_.non_blocking(true, ignored);
}

const asio::ip::tcp::endpoint& StoreSession::peer() {
  error_code ignored;
  if (!peer_) peer_ = socket_.remote_endpoint(ignored);
  return *peer_;
}

void StoreSession::start(std::string first_bytes) { take_turn(first_bytes); }

// Called even if this session has ended, because the request may have woken other clients.
void StoreSession::take_turn(std::string_view bytes) {
  StoreSessionHost& host = *host_;
  take(bytes);
  count("a request");
  host.on_turn_end();
  wait_readable();
}

void StoreSession::flush() {
  if (!is_open()) return;
  if (is_waiting_writable_) return count("answers that it does not read");
  std::vector<std::string_view> pieces;
  std::vector<asio::const_buffer> buffers;
  std::size_t written_bytes = 0;
  while (!unsent_.empty() && written_bytes < kTurnBytes) {
    unsent_.front(kMostPieces, pieces);
    buffers.clear();
    for (const std::string_view piece : pieces) buffers.emplace_back(piece.data(), piece.size());
    error_code ec;
    const std::size_t count = socket_.write_some(buffers, ec);
    if (is_again(ec)) break;
    if (ec) return end("");  // the peer closed before it read its answers
    unsent_.consume(count);
    written_bytes += count;
  }
  count("answers that it does not read");
  if (is_open() && !unsent_.empty()) wait_writable();
}

// The client that exceeds the memory limit is closed.
void StoreSession::count(const char* action) {
  if (!is_open()) return;
  StoreMemory& memory = host_->memory();
  const std::size_t held = decoder_.held_bytes() + undecoded_.size() + unsent_.own_bytes();
  const bool has_grown = held > counted_bytes_;
  memory.change(counted_bytes_, held);
  if (has_grown && memory.is_over()) end(too_much_memory(action, memory));
}

void StoreSession::end(std::string_view reason) {
  if (!is_open()) return;
  StoreSessionHost& host = *host_;
  if (!reason.empty()) peer();  // for the log, while the system still knows it
  close();
  host.on_end(*this, reason);
}

void StoreSession::close() {
  if (is_open()) host_->memory().change(counted_bytes_, 0);
  host_ = nullptr;
  error_code ignored;
  socket_.close(ignored);
}

void StoreSession::wait_readable() {
  if (!is_open() || is_waiting_readable_ || !undecoded_.empty()) return;
  is_waiting_readable_ = true;
  if (unanswered_pieces_ >= kRowPieces) return wait_in_row();
  end_row();
  socket_.async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this()](error_code ec) {
    self->is_waiting_readable_ = false;
    if (ec || !self->is_open()) return;
    self->read_piece();
  });
}

void StoreSession::wait_in_row() {
  if (row_ == nullptr) row_ = std::make_unique<RowReader>(socket_);
  row_->wait([self = shared_from_this()](error_code ec) {
    self->is_waiting_readable_ = false;
    if (ec || !self->is_open()) return;
    self->read_row();
  });
}

void StoreSession::end_row() {
  if (row_ == nullptr) return;
  row_->end();
  row_.reset();
}

void StoreSession::wait_writable() {
  is_waiting_writable_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_write, [self = shared_from_this()](error_code ec) {
    self->is_waiting_writable_ = false;
    if (ec || !self->is_open()) return;
    self->flush();
    self->resume();
  });
}

void StoreSession::read_piece() {
  const std::span<char> buffer = host_->read_buffer();
  error_code ec;
  const std::size_t count = socket_.read_some(asio::buffer(buffer.data(), buffer.size()), ec);
  if (is_again(ec)) {
    unanswered_pieces_ = 0;
    return wait_readable();
  }
  if (ec) return end("");
  unanswered_pieces_ = count < kSmallBytes ? unanswered_pieces_ + 1 : 0;
  take_turn({buffer.data(), count});
}

void StoreSession::read_row() {
  const std::string_view bytes = row_->read(host_->read_buffer());
  if (bytes.empty() || bytes.size() > RowReader::kMostBytes) unanswered_pieces_ = 0;
  if (bytes.empty()) return wait_readable();
  take_turn(bytes);
}

void StoreSession::take(std::string_view bytes) {
  while (is_open()) {
    if (unsent_.size_bytes() > kMostUnsentBytes) {
      flush();
      if (!is_open()) return;
      if (unsent_.size_bytes() > kMostUnsentBytes) {
        undecoded_.assign(bytes);
        return;
      }
    }
    Decoded decoded = decoder_.next(bytes);
    if (std::holds_alternative<NeedMore>(decoded)) return;
    if (const Malformed* malformed = std::get_if<Malformed>(&decoded)) {
      return end(malformed->reason);
    }
    // Bytes of complete requests are not held here anymore, but answers to earlier ones may be.
    count("a request");
    if (!is_open()) return;
    const Result<void> result =
        host_->on_request(*this, std::get<store::Request>(std::move(decoded)));
    if (!result) return end(result.error().message);
  }
}

// Called after answers were sent: decodes the rest of the input, then reads again.
void StoreSession::resume() {
  if (!is_open() || undecoded_.empty() || unsent_.size_bytes() > kMostUnsentBytes) return;
  const std::string bytes = std::exchange(undecoded_, {});
  take_turn(bytes);
}

}  // namespace drun::rendezvous
