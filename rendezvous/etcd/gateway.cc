#include "rendezvous/etcd/gateway.h"

#include <cassert>
#include <utility>

#include "rendezvous/etcd/gateway_text.h"

namespace drun::rendezvous::etcd {

Gateway::Gateway(asio::io_context& io, std::vector<Endpoint> endpoints, Keys keys,
                 std::shared_ptr<HttpTls> tls)
    : endpoints_(std::move(endpoints)),
      keys_(std::move(keys)),
      client_(io, std::move(tls), kMostAnswerBytes) {
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
}

// What etcd refuses here it refuses everywhere; all else may be this endpoint's own trouble.
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
