#include "agent/status/status_socket.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <list>
#include <utility>

#include "rendezvous/base/random_instance.h"
#include "rendezvous/coordinator/node_queries.h"

namespace drun::agent {
namespace {

using Protocol = asio::local::stream_protocol;

constexpr std::size_t kMostAtOnce = 16;
constexpr std::chrono::seconds kTimeForOne{2};

std::string own_name(const std::string& word) {
  char text[64];
  std::snprintf(text, sizeof(text), "%s/%u/%d/%016" PRIx64, word.c_str(), geteuid(), getpid(),
                rendezvous::random_instance());
  return std::string(1, '\0') + text;
}

bool may_ask(Protocol::socket& socket) {
  ucred asking{};
  socklen_t size = sizeof(asking);
  if (getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &asking, &size) != 0)
    return false;
  return asking.uid == geteuid() || asking.uid == 0;
}

}  // namespace

class StatusSocket::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, Ask ask, Requests requests)
      : acceptor_(io), later_(io), ask_(std::move(ask)), requests_(requests) {}

  void open(const Log& log, const std::string& word) {
    try {
      acceptor_.open(Protocol());
      close_on_exec(acceptor_);
      acceptor_.bind(Protocol::endpoint(own_name(word)));
      acceptor_.listen(static_cast<int>(kMostAtOnce));
      accept();
    } catch (const boost::system::system_error& error) {
      log.debug("no " + word + " socket for this agent: " + error.what());
      stop();
    }
  }

  void stop() {
    error_code ignored;
    acceptor_.close(ignored);
    later_.cancel();
    while (!answers_.empty()) end(answers_.begin());
  }

 private:
  struct Answer {
    Protocol::socket socket;
    asio::steady_timer timer;
    std::string text;  // the request, then the answer
  };
  using Place = std::list<std::shared_ptr<Answer>>::iterator;

  void accept() {
    acceptor_.async_accept([self = shared_from_this()](const error_code& ec, Protocol::socket who) {
      if (ec == asio::error::operation_aborted || !self->acceptor_.is_open()) return;
      if (ec) return self->accept_later();
      close_on_exec(who);
      self->answer(std::move(who));
      self->accept();
    });
  }

  // At once it would fail again, for example without free descriptors.
  void accept_later() {
    later_.expires_after(kTimeForOne);
    later_.async_wait([self = shared_from_this()](const error_code& ec) {
      if (!ec && self->acceptor_.is_open()) self->accept();
    });
  }

  void answer(Protocol::socket socket) {
    if (answers_.size() >= kMostAtOnce || !may_ask(socket)) return;  // closes it
    const auto answer = std::make_shared<Answer>(
        Answer{std::move(socket), asio::steady_timer(acceptor_.get_executor()), ""});
    const Place place = answers_.insert(answers_.end(), answer);
    if (requests_ == Requests::None) return ask(place, answer);
    end_later(place, answer);
    read_request(place, answer);
  }

  void read_request(Place place, const std::shared_ptr<Answer>& answer) {
    std::string& request = answer->text;
    const std::size_t have = request.size();
    request.resize(kMostRequestBytes);
    answer->socket.async_read_some(
        asio::buffer(request.data() + have, request.size() - have),
        [self = shared_from_this(), place, answer, have](const error_code& ec, std::size_t size) {
          if (!answer->socket.is_open()) return;
          answer->text.resize(have + size);
          const std::size_t end = answer->text.find('\n');
          const bool is_too_long = end == std::string::npos && have + size == kMostRequestBytes;
          if (ec || is_too_long) return self->end(place);
          if (end == std::string::npos) return self->read_request(place, answer);
          answer->text.resize(end + 1);
          answer->timer.cancel();
          self->ask(place, answer);
        });
  }

  void ask(Place place, const std::shared_ptr<Answer>& answer) {
    ask_(answer->text, [self = shared_from_this(), place, answer](std::string text) {
      if (answer->socket.is_open()) self->send(place, answer, std::move(text));
    });
  }

  void send(Place place, const std::shared_ptr<Answer>& answer, std::string text) {
    answer->text = std::move(text);
    asio::async_write(answer->socket, asio::buffer(answer->text),
                      [self = shared_from_this(), place, answer](const error_code&, std::size_t) {
                        if (answer->socket.is_open()) self->end(place);
                      });
    end_later(place, answer);
  }

  void end_later(Place place, const std::shared_ptr<Answer>& answer) {
    answer->timer.expires_after(kTimeForOne);
    answer->timer.async_wait([self = shared_from_this(), place, answer](const error_code& ec) {
      if (!ec && answer->socket.is_open()) self->end(place);
    });
  }

  void end(Place place) {
    const std::shared_ptr<Answer> answer = *place;
    answers_.erase(place);
    error_code ignored;
    answer->socket.close(ignored);
    answer->timer.cancel();
  }

  Protocol::acceptor acceptor_;
  asio::steady_timer later_;
  Ask ask_;
  const Requests requests_;
  std::list<std::shared_ptr<Answer>> answers_;
};

StatusSocket::StatusSocket(asio::io_context& io, const Log& log, const std::string& word, Ask ask,
                           Requests requests)
    : impl_(std::make_shared<Impl>(io, std::move(ask), requests)) {
  impl_->open(log, word);
}

StatusSocket::~StatusSocket() { stop(); }

void StatusSocket::stop() { impl_->stop(); }

using rendezvous::Query;
using rendezvous::QueryResult;

void ForwardedQueries::serve(const std::string& word, StatusSocket::Requests requests, Read read,
                             Show show) {
  sockets_.emplace_back(
      io_, log_, word,
      [this, read = std::move(read), show = std::move(show)](const std::string& request,
                                                             StatusSocket::Reply reply) {
        std::optional<Query> query = read(request);
        if (!query) return reply(show({.note = "malformed request"}));
        forward(*std::move(query), show, std::move(reply));
      },
      requests);
}

void ForwardedQueries::forward(Query query, const Show& show, StatusSocket::Reply reply) {
  query.number = ++last_number_;
  // The coordinator itself waits for the nodes.
  const std::chrono::seconds nodes_limit = rendezvous::rules_of(query.kind).limit;
  const auto limit = nodes_limit + std::max(std::chrono::seconds(1), nodes_limit / 4);
  auto timer = std::make_unique<asio::steady_timer>(io_, limit);
  timer->async_wait([this, alive = std::weak_ptr<char>(alive_), limit,
                     number = query.number](const error_code& ec) {
    if (ec || alive.expired()) return;
    answer({.number = number,
            .note = "the coordinator has not answered in " + std::to_string(limit.count()) + " s"});
  });
  waiting_.emplace(query.number, Waiting{show, std::move(reply), std::move(timer)});
  send_(query);
}

void ForwardedQueries::answer(const QueryResult& result) {
  const auto found = waiting_.find(result.number);
  if (found == waiting_.end()) return;
  const Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  waiting.reply(waiting.show(result));
}

}  // namespace drun::agent
