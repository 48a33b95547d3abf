#include "worker_lib/start/init_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "rendezvous/base/text.h"

namespace drun::worker {
namespace {

Error usage(std::string_view method, const std::string& sentence) {
  return Error{ErrorCode::Usage, "init_method \"" + std::string(method) + "\"" + sentence};
}

Result<void> read_query(std::string_view query, std::string_view whole, InitMethod& method) {
  if (query.size() > 1 && query.ends_with('&')) query.remove_suffix(1);
  if (query.empty()) return {};
  for (const std::string_view entry : split(query, '&')) {
    const std::size_t equals = entry.find('=');
    const std::string_view key = entry.substr(0, equals);
    if (equals == std::string_view::npos || (key != "rank" && key != "world_size")) {
      return usage(whole, ": \"" + std::string(entry) + "\" is neither rank=R nor world_size=N");
    }
    (key == "rank" ? method.rank : method.world_size) = std::string(entry.substr(equals + 1));
  }
  return {};
}

Result<void> read_tcp(std::string_view address, std::string_view whole, InitMethod& method) {
  const Result<Endpoint> endpoint = parse_endpoint(address, 0);
  if (!endpoint) {
    return with_context(endpoint.error(), "init_method \"" + std::string(whole) + "\"");
  }
  if (endpoint->port == 0 || endpoint->host.empty()) {
    return usage(whole, " needs a host and a port: tcp://host:port");
  }
  method.store = *endpoint;
  return {};
}

// file:///path, or file://localhost/path as the standard for such addresses has it.
Result<void> read_file(std::string_view rest, std::string_view whole, InitMethod& method) {
  constexpr std::string_view kHere = "localhost/";
  if (rest.starts_with(kHere)) rest.remove_prefix(kHere.size() - 1);
  if (rest.empty() || rest.front() != '/' || rest.back() == '/') {
    return usage(whole, " needs the whole path of a file: file:///tmp/my-job");
  }
  method.file_path = std::string(rest);
  return {};
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

Result<InitMethod> parse_init_method(std::string_view whole) {
  InitMethod method;
  std::string_view rest = whole;
  const std::size_t question = std::min(rest.find('?'), rest.size());
  const std::string_view query = rest.substr(std::min(question + 1, rest.size()));
  rest = rest.substr(0, question);
  Result<void> read{};
  if (take_prefix(rest, "tcp://")) {
    read = read_tcp(rest, whole, method);
  } else if (take_prefix(rest, "file://")) {
    read = read_file(rest, whole, method);
  } else if (!whole.empty() && (!take_prefix(rest, "env://") || !rest.empty())) {
    return usage(whole, " is none of env://, tcp://host:port and file:///path");
  }
  if (!read) return read.error();
  if (read = read_query(query, whole, method); !read) return read.error();
  return method;
}

namespace {

using Overlay = std::map<std::string, std::string, std::less<>>;

Error unusable_options(std::string message) { return Error{ErrorCode::Usage, std::move(message)}; }

Lookup laid_over(const Overlay& overlay, const Lookup& environment) {
  return [&overlay, &environment](std::string_view name) -> std::optional<std::string> {
    const auto found = overlay.find(name);
    return found != overlay.end() ? found->second : environment(name);
  };
}

// The rank as given by the caller, in the form of the equivalent variables.
Overlay explicit_rank(const InitOptions& options, const InitMethod& method) {
  Overlay overlay;
  if (options.rank) overlay["RANK"] = std::to_string(*options.rank);
  if (options.world_size) overlay["WORLD_SIZE"] = std::to_string(*options.world_size);
  if (method.rank) overlay["RANK"] = *method.rank;
  if (method.world_size) overlay["WORLD_SIZE"] = *method.world_size;
  return overlay;
}

// Where the store is, in the same way. File and store of the caller's: an address to be reached at
// is all that is needed.
Overlay explicit_store(const InitOptions& options, const InitMethod& method,
                       const Lookup& environment) {
  Overlay overlay;
  if (method.store) {
    overlay["MASTER_ADDR"] = method.store->host;
    overlay["MASTER_PORT"] = std::to_string(method.store->port);
  } else if (method.file_path || options.store) {
    const std::string given = text_of(environment, "MASTER_ADDR");
    overlay["MASTER_ADDR"] = given.empty() || options.store ? "127.0.0.1" : given;
    overlay["MASTER_PORT"] = "1";  // never used
  }
  return overlay;
}

// The rank that the caller names. What else the environment tells belongs to it only if it tells
// the same rank.
Result<WorkerIdentity> named_by_caller(const Overlay& rank, const Overlay& store,
                                       const Lookup& environment, const AncestorLookup& ancestor) {
  Overlay all = store;
  all.insert(rank.begin(), rank.end());
  for (const char* others : {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
                             "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE"}) {
    all[others] = "";
  }
  all["ROLE_NAME"] = "default";
  Result<WorkerIdentity> self = from_environment(laid_over(all, environment));
  if (!self) return self;
  Result<WorkerIdentity> told = identify(laid_over(store, environment), ancestor);
  const bool is_same =
      told && told->rank == self->rank && told->world.world_size == self->world.world_size;
  return is_same ? told : self;
}

Result<WorkerIdentity> find_identity(const InitOptions& options, const InitMethod& method,
                                     const Lookup& environment, const AncestorLookup& ancestor) {
  const Overlay rank = explicit_rank(options, method);
  const Overlay store = explicit_store(options, method, environment);
  if (rank.size() == 2) return named_by_caller(rank, store, environment, ancestor);
  if (rank.size() == 1) {
    return unusable_options(
        "rank and world_size belong together: init_process_group was given only " +
        std::string(rank.count("RANK") > 0 ? "rank" : "world_size"));
  }
  if (options.store)
    return unusable_options("a store that you pass needs rank and world_size in InitOptions");
  Result<WorkerIdentity> told = identify(laid_over(store, environment), ancestor);
  if (told || store.empty()) return told;
  return with_context(told.error(), "init_method \"" + options.init_method +
                                        "\" needs ?rank=R&world_size=N, or an environment that "
                                        "tells them, or InitOptions that do");
}

}  // namespace

Result<InitPlan> plan_init(const InitOptions& options, const Lookup& environment,
                           const AncestorLookup& ancestor) {
  const std::string method_text = options.store ? "env://" : options.init_method;
  const Result<InitMethod> method = parse_init_method(method_text);
  if (!method) return method.error();
  if (options.timeout.count() <= 0) {
    return unusable_options("InitOptions::timeout of " + std::to_string(options.timeout.count()) +
                            " ms leaves no time; give at least 1 ms");
  }
  const Result<WorkerIdentity> self = find_identity(options, *method, environment, ancestor);
  if (!self) return self.error();
  InitPlan plan{.self = *self};
  const World& world = plan.self.world;
  if (method->file_path) {
    plan.file_path = *method->file_path;
    // What died with the round before has left its file behind.
    if (world.round > 0) plan.file_path += "." + std::to_string(world.round);
    return plan;
  }
  const bool is_agents =
      world.use_agent_store &&
      (!method->store ||
       (text_of(environment, "MASTER_ADDR") == world.master_addr &&
        text_of(environment, "MASTER_PORT") == std::to_string(world.master_port)));
  plan.hosts_store = !options.store && !is_agents && plan.self.rank == 0 && world.world_size > 1;
  return plan;
}

}  // namespace drun::worker
