#include "rendezvous/net/connector.h"

#include <strings.h>

#include <algorithm>
#include <list>
#include <optional>
#include <utility>
#include <vector>

namespace drun::rendezvous {
namespace {

using asio::ip::tcp;

constexpr std::chrono::milliseconds kNextAddressAfter{250};
constexpr std::chrono::seconds kLimit{10};
constexpr std::size_t kMostAddresses = 16;
using Clock = asio::steady_timer::clock_type;

// Addresses for a host that needs no lookup; empty: a name.
std::vector<tcp::endpoint> known_addresses(const Endpoint& endpoint) {
  error_code ec;
  const asio::ip::address address = asio::ip::make_address(endpoint.host, ec);
  if (!ec) return {{address, endpoint.port}};
  if (strcasecmp(endpoint.host.c_str(), "localhost") != 0) return {};
  return {{asio::ip::address_v4::loopback(), endpoint.port},
          {asio::ip::address_v6::loopback(), endpoint.port}};
}

// The start of an attempt: addresses, and names that are looked up while the addresses are tried.
struct Targets {
  std::vector<tcp::endpoint> addresses;
  std::vector<std::string> names;
  bool takes_loopback = true;
};

Targets targets_of(const Endpoint& endpoint, const KnownAddresses* known) {
  Targets targets;
  if (known == nullptr) {
    targets.addresses = known_addresses(endpoint);
    if (targets.addresses.empty()) targets.names = {endpoint.host};
    return targets;
  }
  targets.takes_loopback = known->has_loopback;
  for (const std::string& text : known->addresses) {
    const auto addresses = known_addresses({text, endpoint.port});
    targets.addresses.insert(targets.addresses.end(), addresses.begin(), addresses.end());
    if (addresses.empty()) targets.names.push_back(text);
  }
  return targets;
}

}  // namespace

class Connector::Attempt : public std::enable_shared_from_this<Connector::Attempt> {
 public:
  Attempt(asio::io_context& io, std::shared_ptr<LookupThreads> threads, OwnAddresses own,
          std::vector<Rejected> rejected, Done on_done)
      : io_(io),
        own_(own),
        threads_(std::move(threads)),
        rejected_(std::move(rejected)),
        next_timer_(io),
        limit_timer_(io),
        on_done_(std::move(on_done)) {}

  // `known`: the last address of the name, tried while the name is looked up again.
  void start(const Targets& targets, std::uint16_t port,
             const std::optional<tcp::endpoint>& known) {
    port_ = port;
    takes_loopback_ = targets.takes_loopback;
    arm_limit();
    if (known) add(*known);
    for (const tcp::endpoint& address : targets.addresses) add(address);
    for (const std::string& name : targets.names) look_up(name);
    if (!addresses_.empty()) return begin();
    if (lookup_count_ > 0) return;
    asio::post(io_, [self = shared_from_this()] {
      if (!self->is_over_) self->fail();
    });
  }

  void cancel() {
    is_over_ = true;
    on_done_ = nullptr;
    for (Resolver& resolver : resolvers_) resolver.cancel();
    next_timer_.cancel();
    limit_timer_.cancel();
    error_code ignored;  // the sockets are only being closed
    for (tcp::socket& socket : sockets_) socket.close(ignored);
  }

 private:
  void arm_limit() {
    limit_timer_.expires_after(kLimit);
    limit_timer_.async_wait([self = shared_from_this()](const error_code& ec) {
      const bool is_late = !ec && self->limit_timer_.expiry() <= Clock::now();
      if (!is_late || self->is_over_) return;
      self->note(self->addresses_.empty() ? "its name was not resolved in time"
                                          : "no answer within 10 s");
      self->fail();
    });
  }

  void look_up(const std::string& name) {
    ++lookup_count_;
    Resolver& resolver = resolvers_.emplace_back(io_, threads_);
    resolver.start(name, [self = shared_from_this()](const Addresses& found) {
      if (!self->is_over_) self->resolved(found);
    });
  }

  void add(const tcp::endpoint& address) {
    if (!takes_loopback_ && address.address().is_loopback()) return;
    if (std::find(addresses_.begin(), addresses_.end(), address) != addresses_.end()) return;
    const auto rejected = std::find_if(rejected_.begin(), rejected_.end(),
                                       [&](const auto& each) { return each.address == address; });
    if (rejected == rejected_.end()) {
      if (addresses_.size() < kMostAddresses) addresses_.push_back(address);
      return;
    }
    is_refused_ = false;
    note(rejected->reason + " (" + address.address().to_string() + ")");
    rejected_.erase(rejected);  // reported once
  }

  void resolved(const Addresses& found) {
    --lookup_count_;
    const bool is_first = addresses_.empty();
    if (!found) {
      if (is_first || waiting_count_ == 0)
        note("its name cannot be resolved (" + found.error().message + ")");
      if (waiting_count_ == 0 && lookup_count_ == 0) fail();
      return;
    }
    for (const asio::ip::address& address : *found) add({address, port_});
    if (addresses_.empty()) {
      if (lookup_count_ == 0) fail();
      return;
    }
    if (is_first) {
      arm_limit();  // the time for a connection does not include the lookup
      return begin();
    }
    if (waiting_count_ > 0) return arm_next();
    if (next_ < addresses_.size()) return try_next();
    if (lookup_count_ == 0) fail();
  }

  void begin() {
    const bool is_own = own_ == OwnAddresses::Refuse &&
                        std::any_of(addresses_.begin(), addresses_.end(),
                                    [this](const tcp::endpoint& each) { return is_ours(each); });
    if (!is_own) return try_next();
    asio::post(io_, [self = shared_from_this()] {
      if (!self->is_over_) self->finish(Error{ErrorCode::Closed, "it is this host"});
    });
  }

  // Only addresses of this host can be bound.
  bool is_ours(const tcp::endpoint& address) {
    tcp::socket socket(io_);
    error_code ec;
    socket.open(address.protocol(), ec);
    if (!ec) socket.bind({address.address(), 0}, ec);
    return !ec;
  }

  void try_next() {
    if (next_ == addresses_.size()) return;
    const tcp::endpoint address = addresses_[next_++];
    ++waiting_count_;
    tcp::socket& socket = sockets_.emplace_back(io_);
    error_code ec;
    socket.open(address.protocol(), ec);
    if (ec) {  // no IPv6, or no descriptors left
      asio::post(io_, [self = shared_from_this(), address, ec] { self->failed(address, ec); });
      return;
    }
    close_on_exec(socket);
    socket.async_connect(
        address, [self = shared_from_this(), address, &socket](const error_code& connect_ec) {
          if (self->is_over_) return;
          if (connect_ec) return self->failed(address, connect_ec);
          if (is_own_echo(socket)) {
            error_code ignored;
            socket.close(ignored);
            return self->failed(address, asio::error::connection_refused);
          }
          self->finish(std::move(socket));
        });
    arm_next();
  }

  void arm_next() {
    if (next_ == addresses_.size()) return;
    next_timer_.expires_after(kNextAddressAfter);
    next_timer_.async_wait([self = shared_from_this()](const error_code& timer_ec) {
      if (!timer_ec && !self->is_over_) self->try_next();
    });
  }

  void failed(const tcp::endpoint& address, const error_code& ec) {
    if (is_over_) return;
    --waiting_count_;
    is_refused_ = is_refused_ && ec == asio::error::connection_refused;
    note(system_message(ec.value()) + " (" + address.address().to_string() + ")");
    if (next_ < addresses_.size()) return try_next();
    if (waiting_count_ == 0 && lookup_count_ == 0) fail();
  }

  // Without a listener, TCP may connect a loopback socket to itself if the port is an ephemeral
  // one. That counts as refused.
  static bool is_own_echo(const tcp::socket& socket) {
    error_code ec;
    const tcp::endpoint local = socket.local_endpoint(ec);
    return !ec && local == socket.remote_endpoint(ec);
  }

  void fail() {
    const bool is_refused = is_refused_ && waiting_count_ == 0 && !addresses_.empty();
    finish(Error{is_refused ? ErrorCode::Refused : ErrorCode::Unreachable, trouble_});
  }

  void finish(Result<tcp::socket> result) {
    Done on_done = std::exchange(on_done_, nullptr);
    cancel();
    if (on_done) on_done(std::move(result));
  }

  void note(const std::string& trouble) {
    if (!trouble_.empty()) trouble_ += ", ";
    trouble_ += trouble;
  }

  asio::io_context& io_;
  const OwnAddresses own_;
  const std::shared_ptr<LookupThreads> threads_;
  std::vector<Rejected> rejected_;
  std::list<Resolver> resolvers_;
  asio::steady_timer next_timer_;
  asio::steady_timer limit_timer_;
  Done on_done_;
  std::uint16_t port_ = 0;
  bool takes_loopback_ = true;
  std::size_t lookup_count_ = 0;  // in progress
  std::vector<tcp::endpoint> addresses_;
  std::list<tcp::socket> sockets_;  // handlers refer to theirs
  std::size_t next_ = 0;
  std::size_t waiting_count_ = 0;
  std::string trouble_;
  bool is_refused_ = true;  // all addresses so far have refused
  bool is_over_ = false;
};

Connector::Connector(asio::io_context& io, std::shared_ptr<LookupThreads> threads, AddressBook book)
    : io_(io),
      threads_(threads ? std::move(threads) : LookupThreads::of_process()),
      book_(std::move(book)) {}
Connector::~Connector() { cancel(); }

void Connector::start(const Endpoint& endpoint, OwnAddresses own, Done on_done) {
  cancel();
  if (known_for_ != endpoint) {
    forget_address();
    rejected_.clear();
    avoided_.reset();
  }
  known_for_ = endpoint;
  const auto done = [this, on_done = std::move(on_done)](Result<tcp::socket> socket) {
    error_code ec;
    if (socket) known_ = socket->remote_endpoint(ec);
    if (!socket || ec) known_.reset();
    on_done(std::move(socket));  // may destroy this
  };
  attempt_ = std::make_shared<Attempt>(io_, threads_, own, rejected_, done);
  Targets targets = targets_of(endpoint, find_addresses(book_, endpoint));
  std::stable_partition(targets.addresses.begin(), targets.addresses.end(),
                        [this](const tcp::endpoint& each) { return each != avoided_; });
  attempt_->start(targets, endpoint.port, own == OwnAddresses::Connect ? known_ : std::nullopt);
}

void Connector::avoid_address() {
  avoided_ = known_;
  forget_address();
}

void Connector::reject_address(const std::string& reason) {
  if (known_ && rejected_.size() < kMostAddresses) rejected_.push_back({*known_, reason});
  forget_address();
}

void Connector::cancel() {
  if (attempt_) attempt_->cancel();
  attempt_.reset();
}

}  // namespace drun::rendezvous
