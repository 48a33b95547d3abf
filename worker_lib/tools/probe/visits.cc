#include "worker_lib/tools/probe/visits.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "rendezvous/base/bytes.h"
#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"

namespace drun::probe {
namespace {

using asio::ip::tcp;
using Steady = std::chrono::steady_clock;
using Wall = std::chrono::system_clock;

constexpr int kSmallMessages = 8;
// One full packet of the usual size, and many: virtual networks may carry these and drop the one.
constexpr std::uint32_t kPacketBytes = 1400;
constexpr std::uint32_t kLargeBytes = kMostPayloadBytes;

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// Kept by its handlers; `visit` outlives the loop.
class Traveler : public std::enable_shared_from_this<Traveler> {
 public:
  Traveler(asio::io_context& io, const Destination& to, const std::string& token, Visit& visit)
      : socket_(io), timer_(io), to_(to), token_(token), visit_(visit) {
    visit_.to = to.node;
    visit_.reason = "no answer in " + std::to_string(kVisitAtMost.count()) + " s";
  }

  void start() {
    error_code ec;
    const asio::ip::address address = asio::ip::make_address(to_.address, ec);
    if (ec) {
      visit_.reason = "\"" + to_.address + "\" is no address";
      return;
    }
    timer_.expires_after(kVisitAtMost);
    timer_.async_wait([self = shared_from_this()](const error_code& over) {
      if (!over) self->close();
    });
    socket_.async_connect(tcp::endpoint(address, to_.port),
                          [self = shared_from_this()](const error_code& failed) {
                            if (failed) return self->fail(failed);
                            error_code ignored;
                            self->socket_.set_option(tcp::no_delay(true), ignored);
                            self->ask(0);
                          });
  }

 private:
  void ask(std::uint32_t payload_bytes) {
    message_ = token_;
    ByteWriter(message_).u32(payload_bytes);
    message_.append(payload_bytes, 'x');
    answer_.resize(kAnswerBytes + payload_bytes);
    asked_ = Steady::now();
    asked_at_ = Wall::now();
    asio::async_write(socket_, asio::buffer(message_),
                      [self = shared_from_this()](const error_code& ec, std::size_t) {
                        if (ec) self->fail(ec);
                      });
    asio::async_read(socket_, asio::buffer(answer_),
                     [self = shared_from_this()](const error_code& ec, std::size_t) {
                       if (ec) return self->fail(ec);
                       self->answered();
                     });
  }

  void answered() {
    if (visit_.has_arrived && !std::exchange(has_carried_packet_, true)) return ask(kLargeBytes);
    if (visit_.has_arrived) {
      visit_.large_ones_too = true;
      visit_.reason.clear();
      return close();
    }
    const auto round_trip = Steady::now() - asked_;
    if (round_trip < shortest_) {
      shortest_ = round_trip;
      ByteReader reader(std::string_view(answer_.data(), kAnswerBytes));
      const auto theirs = std::chrono::nanoseconds(static_cast<std::int64_t>(reader.u64()));
      const auto middle = asked_at_.time_since_epoch() + round_trip / 2;
      visit_.clock_ahead_s = seconds(middle) - seconds(theirs);
      visit_.clock_bound_s = seconds(round_trip) / 2;
      visit_.round_trip_s = seconds(round_trip);
    }
    if (++answers_ < kSmallMessages) return ask(0);
    visit_.has_arrived = true;
    visit_.reason = "small messages arrive, large ones do not";
    ask(kPacketBytes);
  }

  void fail(const error_code& ec) {
    if (ec == asio::error::operation_aborted) return;
    if (!visit_.has_arrived) visit_.reason = system_message(ec.value());
    if (ec == asio::error::eof) visit_.reason = "it closed the connection";
    close();
  }
  void close() {
    error_code ec;
    socket_.close(ec);
    timer_.cancel();
  }

  tcp::socket socket_;
  asio::steady_timer timer_;
  const Destination& to_;
  const std::string& token_;
  Visit& visit_;
  std::string message_;
  std::vector<char> answer_;
  Steady::time_point asked_;
  Wall::time_point asked_at_;
  std::chrono::nanoseconds shortest_ = std::chrono::nanoseconds::max();
  int answers_ = 0;
  bool has_carried_packet_ = false;
};

}  // namespace

std::vector<Visit> visit_all(const std::vector<Destination>& destinations,
                             const std::string& token) {
  constexpr std::size_t kAtOnce = 256;  // descriptors
  std::vector<Visit> visits(destinations.size());
  for (std::size_t begin = 0; begin < destinations.size(); begin += kAtOnce) {
    asio::io_context io(1);
    for (std::size_t i = begin; i < std::min(begin + kAtOnce, destinations.size()); ++i)
      std::make_shared<Traveler>(io, destinations[i], token, visits[i])->start();
    io.run();
  }
  return visits;
}

}  // namespace drun::probe
