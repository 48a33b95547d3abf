// edge. A server in place of a TCPStore that answers as a test says.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/store/client.h"
#include "tests/support/raw_socket.h"

namespace drun::test {

// Accepts connections one after another and runs the next function on each.
class Impostor {
 public:
  using Manner = std::function<void(const RawSocket&)>;
  explicit Impostor(std::vector<Manner> manners)
      : listening_(RawSocket::listening()), port_(listening_.port()), thread_([this, manners] {
          for (const Manner& manner : manners) {
            const RawSocket peer = listening_.accept_one();
            manner(peer);
          }
        }) {}
  ~Impostor() {
    shutdown(listening_.fd(), SHUT_RDWR);
    thread_.join();
  }
  std::uint16_t port() const { return port_; }
  StoreClient::Options options(StoreClient::Milliseconds timeout = std::chrono::seconds(20)) const {
    return {.endpoint = {.host = "127.0.0.1", .port = port_}, .timeout = timeout};
  }

 private:
  RawSocket listening_;
  std::uint16_t port_;
  std::thread thread_;
};

inline void close_at_once(const RawSocket& peer) { peer.hear(1); }
inline void until_closed(const RawSocket& peer) {
  while (!peer.hear(1).empty()) {
  }
}
// As a server of the current dialect begins.
inline void greet(const RawSocket& peer) {
  peer.hear(10);
  peer.say(std::string(4, '\xff'));
}

}  // namespace drun::test
