// edge. From a name and a port to a connected socket: looks the name up, tries every address.
//
// Order:   addresses as the resolver sorted them; the next one is tried when one fails, or when it
//          has not answered for 250 ms (RFC 8305's happy eyeballs); the first that connects wins.
//          The address that won last time is tried at once, while the name is looked up again.
//          Addresses that the endpoint's host reported (AddressBook) are tried instead of the name.
// Limits:  10 s for the lookup and 10 s for the connection, 16 addresses. Then it fails, and the
//          caller may start again: a lookup in progress continues (resolver.h).
// Owner:   Client; destruction cancels silently.
// Thread:  the io_context's only. Numeric addresses and "localhost" are not looked up.
// Errors:  on_done with Unreachable: what was tried, and why each failed. Refused: nothing
//          listens at any of the addresses. Closed: with OwnAddresses::Refuse, one of the addresses
//          is this host's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/net/asio.h"
#include "rendezvous/net/endpoint.h"
#include "rendezvous/net/resolver.h"

namespace drun::rendezvous {

class Connector {
 public:
  // What to do about an address of this very host.
  enum class OwnAddresses { Connect, Refuse };
  using Done = std::function<void(Result<asio::ip::tcp::socket>)>;

  // `threads`: null for those of the process.
  explicit Connector(asio::io_context& io, std::shared_ptr<LookupThreads> threads = nullptr,
                     AddressBook book = {});
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Calls `on_done` once, from the loop, unless `cancel` is called first. A second start cancels
  // the first.
  void start(const Endpoint& endpoint, OwnAddresses own, Done on_done);
  void cancel();
  // What answers at the last address is not what the caller wants.
  void forget_address() { known_.reset(); }
  // The same, and it is not tried again for this endpoint. For addresses from the book only: they
  // may mean another machine from here.
  void reject_address(const std::string& reason);
  // The same, but it is tried after the others.
  void avoid_address();

  struct Rejected {
    asio::ip::tcp::endpoint address;
    std::string reason;
  };

 private:
  class Attempt;
  asio::io_context& io_;
  const std::shared_ptr<LookupThreads> threads_;
  Endpoint known_for_;
  std::optional<asio::ip::tcp::endpoint> known_;  // where it connected last
  const AddressBook book_;
  std::vector<Rejected> rejected_;  // of known_for_, as is the next
  std::optional<asio::ip::tcp::endpoint> avoided_;
  std::shared_ptr<Attempt> attempt_;  // kept by its handlers until they have ended
};

}  // namespace drun::rendezvous
