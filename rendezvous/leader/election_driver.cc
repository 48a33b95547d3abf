#include "rendezvous/leader/election_driver.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/random_instance.h"
#include "rendezvous/protocol/control_wire.h"

namespace drun::rendezvous {
namespace {

constexpr std::chrono::seconds kOpenLimit{5};

}  // namespace

SeatLink::SeatLink(asio::io_context& io, int seat, Endpoint endpoint,
                   std::shared_ptr<const TlsContext> tls, Log log, Listener& listener,
                   std::shared_ptr<LookupThreads> threads, const AddressBook& book)
    : seat_(seat),
      endpoint_(std::move(endpoint)),
      tls_(std::move(tls)),
      log_(std::move(log)),
      listener_(listener),
      connector_(io, std::move(threads), book),
      is_reported_(find_addresses(book, endpoint_) != nullptr),
      open_timer_(io) {}

void SeatLink::ask(const Ballot& ballot) {
  if (is_open_) return send(ballot);
  waiting_ = ballot;
  if (connection_ || std::exchange(is_dialling_, true)) return;
  connector_.start(endpoint_, Connector::OwnAddresses::Connect,
                   [this](Result<asio::ip::tcp::socket> socket) { connected(std::move(socket)); });
}

void SeatLink::send(const Ballot& ballot) { connection_->send(encode(MemberMessage(ballot))); }

void SeatLink::hang_up() {
  waiting_.reset();
  is_dialling_ = false;
  connector_.cancel();
  open_timer_.cancel();
  if (connection_) connection_->close();
  connection_.reset();
  is_open_ = false;
}

void SeatLink::connected(Result<asio::ip::tcp::socket> socket) {
  is_dialling_ = false;
  if (!socket) return fail(socket.error().message);
  has_voted_ = false;
  connection_ = std::make_shared<ControlConnection>(
      *std::move(socket), ControlConnection::Side::Connecting, kHelloFrameLimitBytes, 0,
      static_cast<ControlLink::Listener&>(*this), tls_);
  open_timer_.set(std::chrono::steady_clock::now() + kOpenLimit,
                  [this] { fail("it does not answer the connection"); });
  connection_->start({});
}

void SeatLink::on_open(ControlLink&) {
  open_timer_.cancel();
  listener_.on_seat_linked(seat_);
  if (!connection_) return;  // closed meanwhile
  is_open_ = true;
  if (const auto ballot = std::exchange(waiting_, std::nullopt)) send(*ballot);
}

void SeatLink::on_frame(ControlLink&, std::string_view frame) {
  const Result<CoordinatorMessage> message = decode_coordinator_message(frame);
  if (const Vote* vote = message ? std::get_if<Vote>(&*message) : nullptr)
    return has_voted_ = true, listener_.on_vote(seat_, *vote);
  const Refused* refused = message ? std::get_if<Refused>(&*message) : nullptr;
  if (refused != nullptr)
    warn("takes no part in the election of this job's coordinator: " + refused->error.message);
  fail("it does not answer ballots");
}

void SeatLink::on_end(ControlLink&, const ConnectionEnd& end) {
  if (end.is_wrong_peer) warn(end.reason);
  if (end.is_wrong_peer && is_reported_) connector_.reject_address(end.reason);
  fail(end.reason);
}

void SeatLink::warn(const std::string& reason) {
  if (refusals_.allows(reason, std::chrono::steady_clock::now()))
    log_.warning(to_string(endpoint_) + " " + reason);
}

void SeatLink::fail(const std::string& reason) {
  log_.debug("no answer from " + to_string(endpoint_) + ": " + reason);
  // The name may resolve to another address by now.
  if (!has_voted_) connector_.forget_address();
  hang_up();
  listener_.on_seat_failed(seat_);
}

namespace {

// How long a vote lasts: a third of the heartbeat timeout, 200 ms to 5 s.
std::chrono::milliseconds lease_of(const JoinSpec& spec) {
  return std::clamp<std::chrono::milliseconds>(
      spec.heartbeat_timeout / 3, std::chrono::milliseconds(200), std::chrono::seconds(5));
}

ElectionSpec election_spec(const JoinSpec& spec) {
  return {.run_id = spec.run_id,
          .seats = to_string(spec.seats),
          .seat = static_cast<int>(*spec.seat),
          .seat_count = static_cast<int>(spec.seats.size()),
          .instance = random_instance(),
          .lease = lease_of(spec)};
}

}  // namespace

ElectionDriver::ElectionDriver(asio::io_context& io, const JoinSpec& spec,
                               const std::shared_ptr<const TlsContext>& tls, const Log& log,
                               Listener& listener)
    : timer_(io),
      seats_(spec.seats),
      listener_(&listener),
      state_(open_election(election_spec(spec))) {
  for (std::size_t seat = 0; seat < seats_.size(); ++seat) {
    if (seat == *spec.seat)
      links_.emplace_back();
    else
      links_.push_back(std::make_unique<SeatLink>(io, static_cast<int>(seat), seats_[seat], tls,
                                                  log, static_cast<SeatLink::Listener&>(*this),
                                                  nullptr, spec.book));
  }
}

void ElectionDriver::stop() {
  listener_ = nullptr;
  timer_.cancel();
  for (const auto& link : links_) {
    if (link) link->hang_up();
  }
}

bool ElectionDriver::leads() {
  const Time now = LeaseClock::now();
  if (timer_.is_overdue(now)) handle(ElectionTick{});
  return is_leading(state_, now);
}

void ElectionDriver::handle(const ElectionEvent& event) {
  if (listener_ == nullptr) return;
  for (const ElectionAction& action : step(state_, event, LeaseClock::now())) {
    if (listener_ == nullptr) return;
    std::visit([this](const auto& each) { apply(each); }, action);
  }
  if (listener_ == nullptr) return;
  timer_.set(deadline(state_), [self = shared_from_this()] { self->handle(ElectionTick{}); });
}

}  // namespace drun::rendezvous
