// edge. Connects to a host name and port: looks the name up and tries every address.
//
// Order:   addresses as the resolver sorted them; the next one is tried when one fails, or when it
//          has not answered for 250 ms (RFC 8305's happy eyeballs); the first that connects wins.
//          The address that won last time is tried immediately, while the name is looked up again.
//          Addresses that the endpoint's host reported (AddressBook) are tried instead of the name.
// Limits:  10 s for the lookup and 10 s for the connection, 16 addresses. Then it fails, and the
//          caller may start again: a lookup in progress continues (resolver.h).
// Owner:   the caller; destruction cancels silently.
// Lookup:  numeric addresses and "localhost" need none.
// Errors:  on_done with Unreachable: the addresses and why each one failed. Refused: nothing
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
  // How to handle an address of this host.
  enum class OwnAddresses { Connect, Refuse };
  using Done = std::function<void(Result<asio::ip::tcp::socket>)>;

  // `threads`: null for the threads of the process.
  explicit Connector(asio::io_context& io, std::shared_ptr<LookupThreads> threads = nullptr,
                     AddressBook book = {});
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  // Calls `on_done` once, from the loop, unless `cancel` is called first. A second start cancels
  // the first.
  void start(const Endpoint& endpoint, OwnAddresses own, Done on_done);
  void cancel();
  // The program at the last address is not the expected one: does not try that address first again.
  void forget_address() { known_.reset(); }
  // The same, but never tries the address again for this endpoint. Only for addresses from the
  // book, which may belong to another machine from here.
  void reject_address(const std::string& reason);
  // The same, but tries the address after the others.
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
  std::optional<asio::ip::tcp::endpoint> known_;  // the address of the last connection
  const AddressBook book_;
  std::vector<Rejected> rejected_;  // rejected_ and avoided_ belong to known_for_
  std::optional<asio::ip::tcp::endpoint> avoided_;
  std::shared_ptr<Attempt> attempt_;  // kept by its handlers until they have ended
};

}  // namespace drun::rendezvous
