#include "rendezvous/store/row_reader.h"

#include <sys/socket.h>

#include <array>

namespace drun::rendezvous {

RowReader::RowReader(asio::ip::tcp::socket& socket)
    : socket_(&socket), timer_(socket.get_executor()) {
  error_code ignored;
  socket_->set_option(asio::socket_base::receive_low_watermark(kMostBytes), ignored);
}

std::string_view RowReader::read(std::vector<char>& buffer) {
  const std::size_t known = is_byte_left_ ? 1 : 0;
  error_code ec;
  const std::size_t count =
      socket_->receive(asio::buffer(buffer), asio::socket_base::message_peek, ec);
  if (ec || count <= known) return {};
  is_byte_left_ = true;
  // Dropped without being copied again (tcp(7), MSG_TRUNC).
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

}  // namespace drun::rendezvous
