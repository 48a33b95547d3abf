#include "launcher/remote/agent_protocol.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "launcher/cli/option_values.h"
#include "launcher/remote/message_fields.h"

namespace drun::hosts {
namespace {

using Json = nlohmann::ordered_json;

// --- Texts

std::string to_characters(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += static_cast<char>(0xc0 | (byte >> 6));
      text += static_cast<char>(0x80 | (byte & 0x3f));
    }
  }
  return text;
}

// Characters above U+00FF become '?'.
std::string to_bytes(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      bytes += text[i];
    } else if ((lead == 0xc2 || lead == 0xc3) && i + 1 < text.size()) {
      bytes +=
          static_cast<char>((lead & 0x03) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3f));
    } else if (lead >= 0xc0) {
      bytes += '?';
    }
  }
  return bytes;
}

// --- Values of any type
//
// number, boolean, string; enumeration and duration: number; optional: null or the value; struct
// and pair: array of the fields; vector, array and map: array of the elements.

// More would overflow clock arithmetic.
constexpr std::chrono::hours kMostTime{24 * 366 * 1000};

template <typename T>
Json encode(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return to_characters(value);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<int>(value);
  } else if constexpr (std::is_same_v<T, WallTime>) {
    return value.time_since_epoch().count();
  } else if constexpr (requires { value.count(); }) {
    return value.count();
  } else if constexpr (requires { value.has_value(); }) {
    return value ? encode(*value) : Json(nullptr);
  } else if constexpr (requires { fields(value); }) {
    Json array = Json::array();
    std::apply([&array](const auto&... each) { (array.push_back(encode(each)), ...); },
               fields(value));
    return array;
  } else {
    Json array = Json::array();
    for (const auto& each : value) array.push_back(encode(each));
    return array;
  }
}

class Decoder {
 public:
  // False if `json` is not such a value.
  template <typename T>
  bool read(const Json& json, T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) return false;
      value = to_bytes(json.get_ref<const std::string&>());
      return true;
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) return false;
      value = json.get<bool>();
      return true;
    } else if constexpr (std::is_integral_v<T>) {
      return read_number(json, value);
    } else if constexpr (std::is_enum_v<T>) {
      int number = 0;
      const bool fits =
          read_number(json, number) && number >= 0 && number <= static_cast<int>(last(T()));
      if (fits) value = static_cast<T>(number);
      return fits;
    } else if constexpr (requires { value.count(); }) {
      std::int64_t count = 0;
      const std::int64_t most = std::chrono::duration_cast<T>(kMostTime).count();
      const bool fits = read_number(json, count) && count >= -most && count <= most;
      if (fits) value = T(count);
      return fits;
    } else if constexpr (std::is_same_v<T, WallTime>) {
      WallTime::duration since_epoch{};
      const bool fits = read(json, since_epoch);
      value = WallTime(since_epoch);
      return fits;
    } else if constexpr (std::is_same_v<T, std::optional<Secret>>) {
      std::pair<std::string, std::string> parts;
      if (json.is_null()) return true;
      if (!read(json, parts)) return false;
      Result<Secret> secret = Secret::make(std::move(parts.first), std::move(parts.second));
      if (secret) value = *std::move(secret);
      return value.has_value();
    } else if constexpr (requires { value.has_value(); }) {
      return json.is_null() || read(json, value.emplace());
    } else if constexpr (requires { fields(value); }) {
      return read_fields(json, fields(value));
    } else {
      return read_elements(json, value);
    }
  }

  // The positions of the value that did not fit: "/3/0".
  const std::string& where() const { return where_; }

 private:
  template <typename T>
  static bool read_number(const Json& json, T& value) {
    if (!json.is_number_integer()) return false;
    const bool fits = json.is_number_unsigned() ? std::in_range<T>(json.get<std::uint64_t>())
                                                : std::in_range<T>(json.get<std::int64_t>());
    if (fits) value = json.get<T>();
    return fits;
  }

  template <typename T>
  bool read_at(const Json& json, std::size_t index, T& value) {
    if (read(json[index], value)) return true;
    where_ = "/" + std::to_string(index) + where_;
    return false;
  }

  template <typename... T>
  bool read_fields(const Json& json, std::tuple<T&...> values) {
    if (!json.is_array() || json.size() != sizeof...(T)) return false;
    std::size_t index = 0;
    return std::apply([&](auto&... each) { return (read_at(json, index++, each) && ...); }, values);
  }

  template <typename T>
  bool read_elements(const Json& json, T& values) {
    constexpr bool kIsMap = requires { typename T::mapped_type; };
    constexpr bool kGrows = kIsMap || requires { values.emplace_back(); };  // else an array
    if (!json.is_array() || (!kGrows && json.size() != values.size())) return false;
    for (std::size_t index = 0; index < json.size(); ++index) {
      if constexpr (kIsMap) {
        std::pair<typename T::key_type, typename T::mapped_type> entry;
        if (!read_at(json, index, entry)) return false;
        values.insert(std::move(entry));
      } else if constexpr (kGrows) {
        if (!read_at(json, index, values.emplace_back())) return false;
      } else {
        if (!read_at(json, index, values[index])) return false;
      }
    }
    return true;
  }

  std::string where_;
};

// --- Messages

// In the order of the alternatives of Message.
constexpr std::array<std::string_view, std::variant_size_v<Message>> kWords{
    "start 7 ", "facts ", "look ", "found ", "spec ", "hello ", "go ", "end "};
static_assert(kProtocol == 7, "change the first word as well");

constexpr std::size_t kMostShownBytes = 10;  // of an unknown word

template <std::size_t... kIndex>
Message blank_message(std::size_t index, std::index_sequence<kIndex...>) {
  Message message;
  ((index == kIndex ? void(message.emplace<kIndex>()) : void()), ...);
  return message;
}

// --- Checks of what the receiver relies on: the reason, or null

template <typename T>
const char* defect_of(const T&) {
  return nullptr;
}

bool is_within(int number, int least, int most) { return number >= least && number <= most; }

template <>
const char* defect_of(const HostReport& report) {
  // Linux limits a variable to 128 KiB.
  constexpr std::size_t kMostVariableBytes = std::size_t{128} << 10;
  const HostFacts& facts = report.facts;
  if (!is_within(facts.usable_cpus, 1, kMostWorkers)) return "its number of CPUs is impossible";
  if (!is_within(facts.gpus, 0, kMostWorkers)) return "its number of GPUs is impossible";
  for (const auto& [name, value] : facts.environment)
    if (name.size() + value.size() > kMostVariableBytes) return "a variable is too long";
  return nullptr;
}

template <typename Shares>
bool has_all(const Shares& shares, int workers) {
  std::int64_t sum = 0;
  for (const auto& share : shares) {
    if (share.workers < 1) return false;
    sum += share.workers;
  }
  return shares.empty() || sum == workers;
}

const char* defect_of(const WorkerSpec& worker, int workers) {
  const auto has_command = [](const auto& argv, std::size_t arguments_at) {
    return !argv.empty() && arguments_at <= argv.size();
  };
  const bool has_commands =
      has_command(worker.argv, worker.program_arguments_at) &&
      std::all_of(worker.programs.begin(), worker.programs.end(), [&](const ProgramSpec& program) {
        return has_command(program.argv, program.arguments_at);
      });
  if (!has_commands) return "a command is empty";
  if (!has_all(worker.programs, workers)) return "the programs have other workers";
  const std::size_t places = worker.placements.size();
  if (places != 0 && places != static_cast<std::size_t>(workers))
    return "the placements have other workers";
  return nullptr;
}

const char* defect_of(const JoinSpec& join) {
  if (!is_within(join.node_count, 1, kMostNodes) ||
      !is_within(join.node_rank, 0, join.node_count - 1))
    return "its node rank is impossible";
  if (join.elastic && !is_within(join.elastic->min_nodes, 1, join.node_count))
    return "its least number of nodes is impossible";
  if (join.roles.size() > kMostRoleShares || !has_all(join.roles, join.local_world_size))
    return "the roles have other workers";
  const auto is_seat = [&join](std::size_t seat) { return seat < join.seats.size(); };
  if (!std::all_of(join.own_seats.begin(), join.own_seats.end(), is_seat) ||
      (join.seat && !is_seat(*join.seat)))
    return "an endpoint is missing";
  return nullptr;
}

template <>
const char* defect_of(const NodeSpec& spec) {
  const AgentSpec& agent = spec.plan.agent;
  const int workers = agent.join.local_world_size;
  if (!is_within(workers, 1, kMostWorkers)) return "its number of workers is impossible";
  if (agent.output.streams.size() != static_cast<std::size_t>(workers))
    return "the output has other workers";
  constexpr int kMostSignal = 64;
  for (const int signal : agent.termination_signals)
    if (!is_within(signal, 1, kMostSignal)) return "a signal is impossible";
  const char* const defect = defect_of(agent.join);
  return defect == nullptr ? defect_of(agent.worker, workers) : defect;
}

bool has_ports(const Place& place) {
  return is_within(place.port, 0, 65535) && is_within(place.master_port, 0, 65535);
}

template <>
const char* defect_of(const Go& go) {
  const bool fits =
      go.places.size() <= kMostPlaces && std::all_of(go.places.begin(), go.places.end(), has_ports);
  return fits ? nullptr : "its endpoints are impossible";
}

}  // namespace

std::string to_text(const Message& message) {
  return std::string(kWords[message.index()]) +
         std::visit([](const auto& each) { return encode(each); }, message).dump();
}

Result<Message> parse(std::string_view text) {
  const std::string word(text.substr(0, std::min(text.find(' '), kMostShownBytes)));
  const auto refuse = [&word](const std::string& defect) {
    return Error{ErrorCode::Refused, "the message \"" + word + "\" " + defect +
                                         "; install the same version of drun on all hosts"};
  };
  const auto found = std::find_if(kWords.begin(), kWords.end(),
                                  [text](std::string_view each) { return text.starts_with(each); });
  if (found == kWords.end()) return refuse("is unknown");
  if (text.size() > kMostLineBytes) return refuse("has over 4 MiB");
  text.remove_prefix(found->size());
  Message message = blank_message(static_cast<std::size_t>(found - kWords.begin()),
                                  std::make_index_sequence<kWords.size()>());
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  Decoder decoder;
  if (!std::visit([&](auto& each) { return decoder.read(json, each); }, message))
    return refuse("is malformed at " + decoder.where() + "/");
  const char* const defect = std::visit([](const auto& each) { return defect_of(each); }, message);
  if (defect != nullptr) return refuse(std::string("is wrong: ") + defect);
  return message;
}

void remove_own_variables(NodeSpec& spec, const std::vector<EnvironmentEntry>& own) {
  std::map<std::string_view, std::string_view> missing(own.begin(), own.end());
  auto& planned = spec.plan.agent.worker.environment;
  std::vector<EnvironmentEntry> changed;
  for (EnvironmentEntry& entry : planned) {
    const auto found = missing.find(entry.first);
    const bool is_own = found != missing.end() && found->second == entry.second;
    if (found != missing.end()) missing.erase(found);
    if (!is_own) changed.push_back(std::move(entry));
  }
  for (const auto& [name, value] : missing) spec.removed_variables.emplace_back(name);
  planned = std::move(changed);
}

void add_own_variables(NodeSpec& spec, const std::vector<EnvironmentEntry>& own) {
  auto& changed = spec.plan.agent.worker.environment;
  std::set<std::string_view> replaced(spec.removed_variables.begin(), spec.removed_variables.end());
  for (const EnvironmentEntry& entry : changed) replaced.insert(entry.first);
  std::vector<EnvironmentEntry> whole;
  for (const EnvironmentEntry& entry : own)
    if (!replaced.contains(entry.first)) whole.push_back(entry);
  whole.insert(whole.end(), changed.begin(), changed.end());
  changed = std::move(whole);
}

}  // namespace drun::hosts
