#include "rendezvous/store/client.h"

#include <utility>

#include "rendezvous/store/connection.h"

namespace drun {
namespace {

using Milliseconds = StoreClient::Milliseconds;

// A larger answer is invalid.
constexpr std::uint64_t kMostKeys = std::uint64_t{1} << 26;

std::string shown(std::string_view key) {
  return "\"" + std::string(key.substr(0, 100)) + (key.size() > 100 ? "...\"" : "\"");
}

std::string shown(std::span<const std::string> keys) {
  if (keys.empty()) return "nothing";
  return shown(keys.front()) +
         (keys.size() > 1 ? " and " + std::to_string(keys.size() - 1) + " more" : "");
}

}  // namespace

Result<StoreClient> StoreClient::connect(const Options& options) {
  Result<StoreHandshake> handshake =
      shake_hands(options.endpoint, options.dialect, after(options.timeout));
  if (!handshake) return handshake.error();
  return StoreClient(std::make_unique<StoreExchange>(options.endpoint, *std::move(handshake)),
                     options.timeout);
}

StoreClient::StoreClient(std::unique_ptr<StoreExchange> exchange, Milliseconds timeout)
    : exchange_(std::move(exchange)), timeout_(timeout) {}
StoreClient::StoreClient(StoreClient&&) noexcept = default;
StoreClient& StoreClient::operator=(StoreClient&&) noexcept = default;
StoreClient::~StoreClient() = default;

const Endpoint& StoreClient::endpoint() const { return exchange_->endpoint(); }
Dialect StoreClient::dialect() const { return exchange_->dialect(); }
Milliseconds StoreClient::timeout() const { return timeout_; }
void StoreClient::set_timeout(Milliseconds timeout) { timeout_ = timeout; }

Result<std::int64_t> StoreClient::announce() {
  return exchange_->begin(Opcode::Add, "init/", timeout()).text("init/").number(1).ask_number();
}

Result<void> StoreClient::set(std::string_view key, std::string_view value) {
  return exchange_->begin(Opcode::Set, shown(key), timeout()).key(key).text(value).send();
}

Result<std::string> StoreClient::get(std::string_view key) { return get(key, timeout()); }

Result<std::string> StoreClient::get(std::string_view key, Milliseconds timeout) {
  const std::string name(key);
  const Result<void> waited = wait({&name, 1}, timeout);
  if (!waited) return waited.error();
  const Result<void> sent =
      exchange_->begin(Opcode::Get, shown(key), this->timeout()).key(key).send();
  if (!sent) return sent.error();
  return exchange_->read_text();
}

Result<std::int64_t> StoreClient::add(std::string_view key, std::int64_t delta) {
  return exchange_->begin(Opcode::Add, shown(key), timeout()).key(key).number(delta).ask_number();
}

Result<std::string> StoreClient::compare_set(std::string_view key, std::string_view expected,
                                             std::string_view desired) {
  const Result<void> sent = exchange_->begin(Opcode::CompareSet, shown(key), timeout())
                                .key(key)
                                .text(expected)
                                .text(desired)
                                .send();
  if (!sent) return sent.error();
  return exchange_->read_text();
}

Result<void> StoreClient::wait(std::span<const std::string> keys) { return wait(keys, timeout()); }

Result<void> StoreClient::wait(std::span<const std::string> keys, Milliseconds timeout) {
  if (dialect() == Dialect::Legacy && timeout <= Milliseconds(0)) {
    // Its WAIT cannot be canceled, but a single check does not wait.
    const Result<bool> is_there = check(keys);
    if (!is_there) return is_there.error();
    return *is_there ? Result<void>() : Result<void>(exchange_->timed_out());
  }
  return exchange_->begin(Opcode::Wait, shown(keys), timeout).keys(keys).send_and_wait();
}

Result<bool> StoreClient::check(std::span<const std::string> keys) {
  const Result<void> sent =
      exchange_->begin(Opcode::Check, shown(keys), timeout()).keys(keys).send();
  if (!sent) return sent.error();
  const Result<std::uint8_t> answer = exchange_->read_byte();
  if (!answer) return answer.error();
  if (*answer > 1) return exchange_->nonsense("neither ready nor not ready");
  return *answer == 0;
}

Result<bool> StoreClient::delete_key(std::string_view key) {
  const Result<std::int64_t> count =
      exchange_->begin(Opcode::DeleteKey, shown(key), timeout()).key(key).ask_number();
  if (!count) return count.error();
  return *count > 0;
}

Result<std::int64_t> StoreClient::num_keys() {
  return exchange_->begin(Opcode::NumKeys, "of all", timeout()).ask_number();
}

Result<void> StoreClient::append(std::string_view key, std::string_view bytes) {
  return exchange_->begin(Opcode::Append, shown(key), timeout()).key(key).text(bytes).send();
}

Result<std::vector<std::string>> StoreClient::multi_get(std::span<const std::string> keys) {
  return multi_get(keys, timeout());
}

Result<std::vector<std::string>> StoreClient::multi_get(std::span<const std::string> keys,
                                                        Milliseconds timeout) {
  const Result<void> waited = wait(keys, timeout);
  if (!waited) return waited.error();
  const bool is_legacy = dialect() == Dialect::Legacy;
  if (!is_legacy) {
    const Result<void> sent =
        exchange_->begin(Opcode::MultiGet, shown(keys), this->timeout()).keys(keys).send();
    if (!sent) return sent.error();
  }
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) {
    if (is_legacy) {
      const Result<void> sent =
          exchange_->begin(Opcode::Get, shown(key), this->timeout()).key(key).send();
      if (!sent) return sent.error();
    }
    Result<std::string> value = exchange_->read_text();
    if (!value) return value.error();
    values.push_back(*std::move(value));
  }
  return values;
}

Result<void> StoreClient::multi_set(std::span<const KeyValue> entries) {
  if (entries.empty()) return {};
  if (dialect() == Dialect::Legacy) {
    for (const auto& [key, value] : entries) {
      if (const Result<void> done = set(key, value); !done) return done;
    }
    return {};
  }
  exchange_->begin(Opcode::MultiSet, shown(entries.front().first), timeout());
  exchange_->number(static_cast<std::int64_t>(entries.size()));
  for (const auto& [key, value] : entries) exchange_->key(key).text(value);
  return exchange_->send();
}

Result<void> StoreClient::queue_push(std::string_view queue, std::string_view value) {
  return exchange_->begin(Opcode::QueuePush, shown(queue), timeout()).key(queue).text(value).send();
}

Result<std::optional<std::string>> StoreClient::queue_pop(std::string_view queue,
                                                          Milliseconds timeout) {
  const std::string name(queue);
  const StoreStream::Time deadline = after(timeout);
  while (true) {
    const Result<std::int64_t> length =
        exchange_->begin(Opcode::QueuePop, shown(queue), this->timeout()).key(queue).ask_number();
    if (!length) return length.error();
    if (*length > 0) {
      Result<std::string> front = exchange_->read_text();
      if (!front) return front.error();
      return std::optional<std::string>(*std::move(front));
    }
    if (timeout <= Milliseconds(0)) return std::optional<std::string>();
    // Another client may have popped the value before this one woke up: wait for the next one.
    const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left <= Milliseconds(0)) return exchange_->timed_out();
    const Result<void> waited = wait({&name, 1}, left);
    if (!waited) return waited.error();
  }
}

Result<std::int64_t> StoreClient::queue_len(std::string_view queue) {
  return exchange_->begin(Opcode::QueueLen, shown(queue), timeout()).key(queue).ask_number();
}

Result<std::vector<std::string>> StoreClient::list_keys() {
  const Result<std::int64_t> count =
      exchange_->begin(Opcode::ListKeys, "of all", timeout()).ask_number();
  if (!count) return count.error();
  if (static_cast<std::uint64_t>(*count) > kMostKeys) {
    return exchange_->nonsense(std::to_string(*count) + " keys");
  }
  std::vector<std::string> keys;
  for (std::int64_t i = 0; i < *count; ++i) {
    Result<std::string> key = exchange_->read_text();
    if (!key) return key.error();
    if (key->starts_with('/')) keys.push_back(key->substr(1));
  }
  return keys;
}

Result<void> StoreClient::barrier(std::string_view key, std::int64_t world_size) {
  return barrier(key, world_size, timeout());
}

Result<void> StoreClient::barrier(std::string_view key, std::int64_t world_size,
                                  Milliseconds timeout) {
  return exchange_->begin(Opcode::Barrier, shown(key), timeout)
      .key(key)
      .number(world_size)
      .send_and_wait();
}

}  // namespace drun
