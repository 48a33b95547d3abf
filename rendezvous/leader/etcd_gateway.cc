#include "rendezvous/leader/etcd_gateway.h"

#include <cassert>
#include <utility>

#include "rendezvous/leader/etcd_json.h"

namespace drun::rendezvous::etcd {
namespace {

// The time limit until etcd confirms a watch. After that it sends nothing until a change.
constexpr std::chrono::seconds kWatchAnswer{5};

}  // namespace

Gateway::Gateway(asio::io_context& io, std::vector<Endpoint> endpoints, Keys keys,
                 const std::shared_ptr<HttpTls>& tls)
    : endpoints_(std::move(endpoints)),
      keys_(std::move(keys)),
      client_(io, tls, kMostAnswerBytes),
      watch_client_(io, tls, kMostAnswerBytes) {
  assert(!endpoints_.empty());
}

void Gateway::ask(const Call& call, std::chrono::milliseconds limit, Done on_done) {
  if (std::exchange(is_asking_, true)) client_.close();
  Request request = request_of(call, keys_);
  client_.post({endpoints_[next_], std::move(request.path), std::move(request.body)}, limit,
               [this, call, on_done = std::move(on_done)](const Result<HttpAnswer>& answer) {
                 is_asking_ = false;
                 on_done(judge(call, answer));
               });
}

void Gateway::close() {
  is_asking_ = false;
  client_.close();
  stop_watching();
}

void Gateway::watch(Revision from, OnMessage on_message) {
  stop_watching();
  on_message_ = std::move(on_message);
  Request request = watch_request(from, keys_);
  watch_client_.stream(
      {endpoints_[watch_next_], std::move(request.path), std::move(request.body)}, kWatchAnswer,
      [this](std::string_view bytes) { on_watch_data(bytes); },
      [this](const Result<HttpAnswer>& ended) {
        end_watch(ended ? "HTTP status " + std::to_string(ended->status) : ended.error().message);
      });
}

void Gateway::stop_watching() {
  on_message_ = nullptr;
  watch_line_.clear();
  watch_client_.close();
}

// Each line is a message. A handler may stop the watch or begin another one.
void Gateway::on_watch_data(std::string_view bytes) {
  watch_line_ += bytes;
  for (;;) {
    const std::size_t end = watch_line_.find('\n');
    if (end == watch_line_.npos) break;
    const std::string line = watch_line_.substr(0, end);
    watch_line_.erase(0, end + 1);
    const std::variant<WatchMessage, Failed> message = watch_message(keys_, line);
    if (const auto* failed = std::get_if<Failed>(&message)) return end_watch(failed->reason);
    const OnMessage on_message = on_message_;
    on_message(message);
    if (!on_message_) return;
  }
  if (watch_line_.size() > kMostAnswerBytes) end_watch("a message of over 1 MiB");
}

void Gateway::end_watch(const std::string& reason) {
  const OnMessage on_message = std::exchange(on_message_, nullptr);
  const std::string text = to_string(endpoints_[watch_next_]) + ": " + reason;
  watch_next_ = (watch_next_ + 1) % endpoints_.size();
  stop_watching();
  if (on_message) on_message(Failed{text});
}

// A refusal of etcd applies to all endpoints. All other errors may be specific to this endpoint.
std::variant<Answer, Failed> Gateway::judge(const Call& call, const Result<HttpAnswer>& answer) {
  std::variant<Answer, Failed> result =
      answer ? answer_of(call, keys_, answer->status, answer->body)
             : std::variant<Answer, Failed>(Failed{answer.error().message});
  Failed* const failed = std::get_if<Failed>(&result);
  if (failed == nullptr || failed->is_refused) return result;
  if (answer) failed->reason = to_string(endpoints_[next_]) + ": " + failed->reason;
  next_ = (next_ + 1) % endpoints_.size();
  return result;
}

}  // namespace drun::rendezvous::etcd
