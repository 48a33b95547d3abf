#include "agent/http/request.h"

#include <boost/beast/core/string.hpp>
#include <boost/beast/http.hpp>
#include <cstdint>
#include <sstream>

#include "rendezvous/net/asio.h"

namespace drun::agent::web {
namespace {

namespace http = boost::beast::http;

std::string_view plain(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

class RequestReader::Impl {
 public:
  Impl() {
    parser_.header_limit(static_cast<std::uint32_t>(kMostRequestBytes));
    parser_.body_limit(0);
  }

  State take(std::string_view bytes) {
    if (state_ != State::Incomplete) return state_;
    unread_.append(bytes);
    while (state_ == State::Incomplete && !unread_.empty()) {
      error_code ec;
      const std::size_t used = parser_.put(asio::buffer(unread_), ec);
      unread_.erase(0, used);
      if (ec && ec != http::error::need_more)
        state_ = State::Malformed;
      else if (parser_.is_header_done())
        state_ = has_body() ? State::Malformed : State::Complete;
      else if (used == 0)
        break;
    }
    if (state_ == State::Incomplete && unread_.size() > kMostRequestBytes)
      state_ = State::Malformed;
    return state_;
  }

  const http::request<http::empty_body>& request() const { return parser_.get(); }

 private:
  // Whether it is complete must not depend on how much of a body has arrived.
  bool has_body() const { return parser_.chunked() || parser_.content_length().value_or(0) > 0; }

  http::request_parser<http::empty_body> parser_;
  std::string unread_;
  State state_ = State::Incomplete;
};

RequestReader::RequestReader() : impl_(std::make_unique<Impl>()) {}
RequestReader::~RequestReader() = default;

RequestReader::State RequestReader::take(std::string_view bytes) { return impl_->take(bytes); }

std::string_view RequestReader::method() const { return plain(impl_->request().method_string()); }

std::string_view RequestReader::target() const { return plain(impl_->request().target()); }

std::string RequestReader::response(const Answer& answer) const {
  const auto& request = impl_->request();
  http::response<http::string_body> response;
  response.version(request.version());
  response.result(answer.code);
  response.set(http::field::content_type, answer.type);
  response.set(http::field::cache_control, "no-store");
  response.keep_alive(false);
  response.content_length(answer.body.size());
  if (request.method() != http::verb::head) response.body() = answer.body;
  std::ostringstream bytes;
  bytes << response;
  return bytes.str();
}

}  // namespace drun::agent::web
