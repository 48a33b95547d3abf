#include "rendezvous/turned_away.h"

#include <utility>

#include "rendezvous/control_wire.h"

namespace drun::rendezvous {
namespace {

constexpr std::size_t kMost = 64;

}  // namespace

// A drun with a secret recognises the preamble of one without.
std::string TurnedAway::add(asio::ip::tcp::socket socket, bool is_tls,
                            const std::string& endpoint) {
  const auto connection = std::make_shared<ControlConnection>(
      std::move(socket), ControlConnection::Side::Accepting, kHelloFrameLimitBytes, 0,
      static_cast<ControlConnection::Listener&>(*this));
  const auto say = [&connection](std::string bytes) {
    connection->send(std::make_shared<const std::string>(std::move(bytes)));
  };
  connection->start({});
  say(encode_preamble());
  if (!is_tls) {
    const Error error{ErrorCode::Refused,
                      endpoint +
                          " refused this node: the job there has a secret and this node has "
                          "none; give it the same --secret-file"};
    say(encode(CoordinatorMessage(Refused{error})));
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

void TurnedAway::close() {
  for (const auto& connection : connections_) connection->close();
  connections_.clear();
}

}  // namespace drun::rendezvous
