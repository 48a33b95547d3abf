#include "rendezvous/store/session.h"

#include <sys/ioctl.h>

#include <optional>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/raw_socket.h"

namespace drun::rendezvous {
namespace {

// A sender, and the reader's end of its connection.
struct Row {
  Row() {
    const RawSocket listening = RawSocket::listening();
    sender = RawSocket::connect_to(listening.port());
    socket.assign(asio::ip::tcp::v4(), accept4(listening.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    socket.non_blocking(true);
    reader.emplace(socket);
  }
  // On loopback everything that was sent has arrived.
  std::string read() { return std::string(reader->read(buffer)); }
  int bytes_in_socket() {
    int count = 0;
    ioctl(socket.native_handle(), FIONREAD, &count);
    return count;
  }

  asio::io_context io{1};
  RawSocket sender{-1};
  asio::ip::tcp::socket socket{io};
  std::vector<char> buffer = std::vector<char>(16);
  std::optional<RowReader> reader;  // set once the connection exists
};

}  // namespace

TEST_CASE("RowReader returns each byte once, and keeps the last one in the socket until it ends") {
  Row row;
  const bool starts_empty = GENERATE(true, false);
  if (starts_empty) REQUIRE(row.read().empty());
  REQUIRE(row.sender.say("a"));
  CHECK(row.read() == "a");
  CHECK(row.bytes_in_socket() == 1);
  REQUIRE(row.sender.say("bcd"));
  REQUIRE(row.sender.say("ef"));
  CHECK(row.read() == "bcdef");
  CHECK(row.bytes_in_socket() == 1);
  CHECK(row.read().empty());
  REQUIRE(row.sender.say("0123456789abcdefXYZ"));  // more than the buffer holds
  std::string rest = row.read();
  rest += row.read();
  CHECK(rest == "0123456789abcdefXYZ");
  row.reader->end();
  CHECK(row.bytes_in_socket() == 0);
}

TEST_CASE("RowReader reads up to the sender's last byte, then reports the end of the connection") {
  Row row;
  REQUIRE(row.sender.say("abc"));
  CHECK(row.read() == "abc");
  REQUIRE(row.sender.say("d"));
  row.sender = RawSocket(-1);
  CHECK(row.read() == "d");
  CHECK(row.read().empty());
  row.reader->end();
  error_code ec;
  CHECK(row.socket.read_some(asio::buffer(row.buffer), ec) == 0);
  CHECK(ec == asio::error::eof);
}

TEST_CASE(
    "arriving data does not wake the loop while a RowReader is active, and does after its end") {
  Row row;
  bool is_woken = false;
  row.socket.async_wait(asio::ip::tcp::socket::wait_read,
                        [&is_woken](error_code) { is_woken = true; });
  REQUIRE(row.sender.say("a"));
  row.io.poll();
  CHECK_FALSE(is_woken);
  row.reader->end();
  row.io.run();
  CHECK(is_woken);
  CHECK(row.read() == "a");
}

}  // namespace drun::rendezvous
