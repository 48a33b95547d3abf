#include "agent/nccl_ras/ras_service.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <utility>
#include <vector>

#include "agent/process/descendants.h"
#include "agent/spawn/command.h"

namespace drun::agent::ras {

RasSettings settings_of(const WorkerSpec& spec) {
  RasSettings settings;
  const std::string* enabled = users_value(spec, kEnableVariable);
  settings.is_off = enabled != nullptr && *enabled == "0";
  const std::string* address = users_value(spec, kAddressVariable);
  settings.names_place = address != nullptr;
  if (address == nullptr) return settings;
  const Result<Endpoint> place = parse_endpoint(*address, 0);
  if (place && place->port != 0) settings.place = *place;
  return settings;
}

bool gives_place(const AgentSpec& spec) {
  const RasSettings settings = settings_of(spec.worker);
  return spec.hang_timeout.count() > 0 && !settings.is_off && !settings.names_place;
}

namespace {

using tcp = asio::ip::tcp;

constexpr std::chrono::seconds kSilence{1};  // until the first byte
constexpr int kMostTries = 4;                // of processes that say nothing

std::vector<tcp::endpoint> places_of(const std::string& host, std::uint16_t port) {
  std::vector<tcp::endpoint> places;
  const std::vector<std::string> names =
      host == "localhost" ? std::vector<std::string>{"127.0.0.1", "::1"} : std::vector{host};
  for (const std::string& name : names) {
    error_code ec;
    const auto address = asio::ip::make_address(name, ec);
    if (!ec) places.emplace_back(address, port);
  }
  return places;
}

}  // namespace

class Client::Question : public std::enable_shared_from_this<Question> {
 public:
  Question(asio::io_context& io, const std::string& host, std::uint16_t port)
      : io_(io),
        name_(to_string(Endpoint{host, port})),
        places_(places_of(host, port)),
        limit_(io),
        silence_(io),
        socket_(io) {}

  void add(OnAnswer on_answer) { waiting_.push_back(std::move(on_answer)); }
  bool is_open() const { return !waiting_.empty(); }

  void start(std::chrono::milliseconds limit) {
    limit_.expires_after(limit);
    limit_.async_wait([self = shared_from_this()](const error_code& ec) {
      if (!ec) self->end(Error{ErrorCode::Timeout, self->name_ + ": no whole answer in time"});
    });
    if (!places_.empty()) return connect();
    asio::post(io_, [self = shared_from_this()] {
      self->end(Error{ErrorCode::Unreachable, self->name_ + ": not a numeric address"});
    });
  }

  void stop() {
    waiting_.clear();
    close();
    limit_.cancel();
  }

 private:
  void connect() {
    close();
    const int attempt = ++attempt_;
    socket_ = tcp::socket(io_);
    answer_.emplace();
    is_heard_ = false;
    silence_.expires_after(kSilence);
    silence_.async_wait([self = shared_from_this(), attempt](const error_code& ec) {
      if (!ec && self->is_current(attempt)) self->on_silence();
    });
    socket_.async_connect(places_[place_], [self = shared_from_this(), attempt](error_code ec) {
      if (self->is_current(attempt)) self->on_connected(ec);
    });
    if (socket_.is_open()) close_on_exec(socket_);
  }

  bool is_current(int attempt) const { return is_open() && attempt == attempt_; }

  void on_silence() {
    if (is_heard_) return;
    if (++silent_ < kMostTries) return connect();
    end(Error{ErrorCode::Timeout, name_ + ": no answer"});
  }

  void on_connected(const error_code& ec) {
    if (!ec) return send();
    if (++place_ < places_.size()) return connect();
    end(Error{ErrorCode::Unreachable, name_ + ": " + ec.message()});
  }

  void send() {
    asio::async_write(
        socket_, asio::buffer(kQuestion),
        [self = shared_from_this(), attempt = attempt_](const error_code& ec, std::size_t) {
          if (!self->is_current(attempt)) return;
          if (ec) return self->end(Error{ErrorCode::Refused, self->name_ + ": " + ec.message()});
          self->read();
        });
  }

  void read() {
    socket_.async_read_some(asio::buffer(buffer_), [self = shared_from_this(), attempt = attempt_](
                                                       const error_code& ec, std::size_t bytes) {
      if (self->is_current(attempt)) self->on_read(ec, bytes);
    });
  }

  void on_read(const error_code& ec, std::size_t bytes) {
    is_heard_ = true;
    const bool is_answer = answer_->take({buffer_.data(), bytes});
    if (!ec && is_answer) return read();
    std::optional<Report> report = answer_->finish();
    if (report) return end(*std::move(report));
    end(Error{ErrorCode::Refused, name_ + ": what came is no whole answer of NCCL's RAS service"});
  }

  void close() {
    error_code ignored;
    socket_.close(ignored);
    silence_.cancel();
  }

  void end(const Result<Report>& result) {
    const auto waiting = std::exchange(waiting_, {});
    close();
    limit_.cancel();
    for (const OnAnswer& on_answer : waiting) on_answer(result);
  }

  asio::io_context& io_;
  const std::string name_;
  const std::vector<tcp::endpoint> places_;
  std::size_t place_ = 0;
  int attempt_ = 0;
  int silent_ = 0;
  bool is_heard_ = false;
  asio::steady_timer limit_;
  asio::steady_timer silence_;
  tcp::socket socket_;
  std::optional<Answer> answer_;
  std::array<char, std::size_t{32} << 10> buffer_{};
  std::vector<OnAnswer> waiting_;
};

void Client::ask(const std::string& host, std::uint16_t port, OnAnswer on_answer) {
  if (question_ && question_->is_open()) return question_->add(std::move(on_answer));
  question_ = std::make_shared<Question>(io_, host, port);
  question_->add(std::move(on_answer));
  question_->start(limit_);
}

void Client::stop() {
  if (question_) question_->stop();
  question_.reset();
}

namespace {

constexpr std::size_t kMostProcesses = 256;  // of a worker

std::set<std::string> addresses_here() {
  std::set<std::string> addresses;
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return addresses;
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr) continue;
    const int family = each->ifa_addr->sa_family;
    const void* address = nullptr;
    if (family == AF_INET)
      address = &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr;
    else if (family == AF_INET6)
      address = &reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (address != nullptr && ::inet_ntop(family, address, text.data(), text.size()) != nullptr)
      addresses.insert(text.data());
  }
  ::freeifaddrs(found);
  return addresses;
}

Own own_of(const std::vector<int>& pids) {
  Own own{.addresses = addresses_here(), .pids = {}};
  const Descendants found;
  for (const std::vector<ProcessStat>& tree : trees_below(pids, found.all(), kMostProcesses)) {
    std::vector<int>& all = own.pids.emplace_back();
    for (const ProcessStat& process : tree) all.push_back(process.pid);
  }
  return own;
}

}  // namespace

Service::Service(asio::io_context& io, const Log& log, const AgentSpec& spec)
    : io_(io), log_(log), client_(io) {
  const RasSettings settings = settings_of(spec.worker);
  if (!settings.is_off) place_ = settings.place;
  if (gives_place(spec)) hold_port();
}

void Service::hold_port() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0 ||
      ::bind(fd.get(), where, size) != 0 || ::getsockname(fd.get(), where, &size) != 0)
    return log_.debug("no port for NCCL's RAS service: " + system_message(errno));
  held_ = std::move(fd);
  place_ = Endpoint{"127.0.0.1", ntohs(address.sin_port)};
  variable_ = to_string(*place_);
}

void Service::ask(const Workers& workers, OnFindings on_findings) {
  if (!place_) return asio::post(io_, [on_findings = std::move(on_findings)] { on_findings({}); });
  client_.ask(place_->host, place_->port,
              [this, workers, on_findings = std::move(on_findings)](const Result<Report>& answer) {
                log_change(answer ? "NCCL's RAS service at " + to_string(*place_) + " answers"
                                  : "NCCL's RAS service is not heard: " + answer.error().message);
                if (!answer) return on_findings({});
                on_findings(find(*answer, own_of(workers.pids), workers.base_rank));
              });
}

// Once, not with every query.
void Service::log_change(const std::string& text) {
  if (std::exchange(last_logged_, text) != text) log_.debug(text);
}

}  // namespace drun::agent::ras
