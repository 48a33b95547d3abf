// edge. From a name and a port to a connected socket: looks the name up, tries every address.
//
// Order:   addresses as the resolver sorted them; the next one is tried when one fails, or when it
//          has not answered for 250 ms (RFC 8305's happy eyeballs); the first that connects wins.
// Limits:  10 s for all of it, 16 addresses; then it fails, and the caller may start again (with a
//          fresh look-up).
// Owner:   Client; destruction cancels silently.
// Thread:  the io_context's only. Names are looked up on Asio's own thread; numeric addresses,
//          "localhost" and loopback are not.
// Errors:  on_done with Unreachable: what was tried, and why each failed. Refused: every address
//          said that nobody listens there. Closed: with OwnAddresses::Refuse, one of the addresses
//          is this host's.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rendezvous/asio.h"
#include "rendezvous/endpoint.h"
#include "rendezvous/result.h"

namespace drun::rendezvous {

class Connector {
 public:
  // What to do about an address of this very host.
  enum class OwnAddresses { Connect, Refuse };
  using Done = std::function<void(Result<asio::ip::tcp::socket>)>;

  explicit Connector(asio::io_context& io);
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // `on_done` is called once, from the loop, unless `cancel` comes first. A second start cancels
  // the first.
  void start(const Endpoint& endpoint, OwnAddresses own, Done on_done);
  void cancel();

 private:
  class Attempt;
  asio::io_context& io_;
  std::shared_ptr<Attempt> attempt_;  // kept by its handlers until they have ended
};

}  // namespace drun::rendezvous
