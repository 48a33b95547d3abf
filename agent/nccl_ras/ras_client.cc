#include "agent/nccl_ras/ras_client.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/nccl_ras/ras_report.h"
#include "rendezvous/net/endpoint.h"

namespace drun::agent::ras {
namespace {

using tcp = asio::ip::tcp;

constexpr std::chrono::seconds kSilence{1};  // until the first byte
constexpr int kMostTries = 4;                // of processes that say nothing

std::vector<tcp::endpoint> places_of(const std::string& host, std::uint16_t port) {
  std::vector<tcp::endpoint> places;
  const std::vector<std::string> names =
      host == "localhost" ? std::vector<std::string>{"127.0.0.1", "::1"} : std::vector{host};
  for (const std::string& name : names) {
    error_code ec;
    const auto address = asio::ip::make_address(name, ec);
    if (!ec) places.emplace_back(address, port);
  }
  return places;
}

}  // namespace

class Client::Question : public std::enable_shared_from_this<Question> {
 public:
  Question(asio::io_context& io, const std::string& host, std::uint16_t port)
      : io_(io),
        name_(to_string(Endpoint{host, port})),
        places_(places_of(host, port)),
        limit_(io),
        silence_(io),
        socket_(io) {}

  void add(OnAnswer on_answer) { waiting_.push_back(std::move(on_answer)); }
  bool is_open() const { return !waiting_.empty(); }

  void start(std::chrono::milliseconds limit) {
    limit_.expires_after(limit);
    limit_.async_wait([self = shared_from_this()](const error_code& ec) {
      if (!ec) self->end(Error{ErrorCode::Timeout, self->name_ + ": no whole answer in time"});
    });
    if (!places_.empty()) return connect();
    asio::post(io_, [self = shared_from_this()] {
      self->end(Error{ErrorCode::Unreachable, self->name_ + ": not a numeric address"});
    });
  }

  void stop() {
    waiting_.clear();
    close();
    limit_.cancel();
  }

 private:
  void connect() {
    close();
    const int attempt = ++attempt_;
    socket_ = tcp::socket(io_);
    answer_.emplace();
    is_heard_ = false;
    silence_.expires_after(kSilence);
    silence_.async_wait([self = shared_from_this(), attempt](const error_code& ec) {
      if (!ec && self->is_current(attempt)) self->on_silence();
    });
    socket_.async_connect(places_[place_], [self = shared_from_this(), attempt](error_code ec) {
      if (self->is_current(attempt)) self->on_connected(ec);
    });
    if (socket_.is_open()) close_on_exec(socket_);
  }

  bool is_current(int attempt) const { return is_open() && attempt == attempt_; }

  void on_silence() {
    if (is_heard_) return;
    if (++silent_ < kMostTries) return connect();
    end(Error{ErrorCode::Timeout, name_ + ": no answer"});
  }

  void on_connected(const error_code& ec) {
    if (!ec) return send();
    if (++place_ < places_.size()) return connect();
    end(Error{ErrorCode::Unreachable, name_ + ": " + ec.message()});
  }

  void send() {
    asio::async_write(
        socket_, asio::buffer(kQuestion),
        [self = shared_from_this(), attempt = attempt_](const error_code& ec, std::size_t) {
          if (!self->is_current(attempt)) return;
          if (ec) return self->end(Error{ErrorCode::Refused, self->name_ + ": " + ec.message()});
          self->read();
        });
  }

  void read() {
    socket_.async_read_some(asio::buffer(buffer_), [self = shared_from_this(), attempt = attempt_](
                                                       const error_code& ec, std::size_t bytes) {
      if (self->is_current(attempt)) self->on_read(ec, bytes);
    });
  }

  void on_read(const error_code& ec, std::size_t bytes) {
    is_heard_ = true;
    const bool is_answer = answer_->take({buffer_.data(), bytes});
    if (!ec && is_answer) return read();
    std::optional<Report> report = answer_->finish();
    if (report) return end(*std::move(report));
    end(Error{ErrorCode::Refused, name_ + ": what came is no whole answer of NCCL's RAS service"});
  }

  void close() {
    error_code ignored;
    socket_.close(ignored);
    silence_.cancel();
  }

  void end(const Result<Report>& result) {
    const auto waiting = std::exchange(waiting_, {});
    close();
    limit_.cancel();
    for (const OnAnswer& on_answer : waiting) on_answer(result);
  }

  asio::io_context& io_;
  const std::string name_;
  const std::vector<tcp::endpoint> places_;
  std::size_t place_ = 0;
  int attempt_ = 0;
  int silent_ = 0;
  bool is_heard_ = false;
  asio::steady_timer limit_;
  asio::steady_timer silence_;
  tcp::socket socket_;
  std::optional<Answer> answer_;
  std::array<char, std::size_t{32} << 10> buffer_{};
  std::vector<OnAnswer> waiting_;
};

void Client::ask(const std::string& host, std::uint16_t port, OnAnswer on_answer) {
  if (question_ && question_->is_open()) return question_->add(std::move(on_answer));
  question_ = std::make_shared<Question>(io_, host, port);
  question_->add(std::move(on_answer));
  question_->start(limit_);
}

void Client::stop() {
  if (question_) question_->stop();
  question_.reset();
}

}  // namespace drun::agent::ras
