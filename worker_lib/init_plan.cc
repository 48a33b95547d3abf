#include "worker_lib/init_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rendezvous/endpoint.h"

namespace drun::worker {
namespace {

using Overlay = std::map<std::string, std::string, std::less<>>;

Error usage(std::string message) { return Error{ErrorCode::Usage, std::move(message)}; }

Result<void> read_query(std::string_view query, std::string_view whole, Overlay& variables) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view entry = query.substr(0, end);
    query.remove_prefix(std::min(end + 1, query.size()));
    const std::size_t equals = entry.find('=');
    const std::string_view key = entry.substr(0, equals);
    if (equals == std::string_view::npos || (key != "rank" && key != "world_size")) {
      return usage("init_method \"" + std::string(whole) + "\": \"" + std::string(entry) +
                   "\" is neither rank=R nor world_size=N");
    }
    variables[key == "rank" ? "RANK" : "WORLD_SIZE"] = entry.substr(equals + 1);
  }
  return {};
}

// "tcp://host:port?rank=1&world_size=4" as the variables that env:// would have.
Result<void> read_tcp(std::string_view method, Overlay& variables) {
  const std::string_view whole = method;
  method.remove_prefix(std::string_view("tcp://").size());
  const std::size_t question = std::min(method.find('?'), method.size());
  const std::string_view address = method.substr(0, question);
  const Result<Endpoint> endpoint = parse_endpoint(address, 0);
  if (!endpoint)
    return with_context(endpoint.error(), "init_method \"" + std::string(whole) + "\"");
  if (endpoint->port == 0 || endpoint->host.empty()) {
    return usage("init_method \"" + std::string(whole) +
                 "\" needs a host and a port: tcp://host:port");
  }
  variables["MASTER_ADDR"] = endpoint->host;
  variables["MASTER_PORT"] = std::to_string(endpoint->port);
  return read_query(method.substr(std::min(question + 1, method.size())), whole, variables);
}

Result<void> need(const Overlay& variables, const char* what) {
  if (variables.count("RANK") > 0 && variables.count("WORLD_SIZE") > 0) return {};
  return usage(std::string(what) + " needs rank and world_size in InitOptions");
}

Result<void> read_options(const InitOptions& options, Overlay& variables) {
  if (options.rank) variables["RANK"] = std::to_string(*options.rank);
  if (options.world_size) variables["WORLD_SIZE"] = std::to_string(*options.world_size);
  if (options.store) {
    variables["MASTER_ADDR"] = "127.0.0.1";
    variables["MASTER_PORT"] = "1";  // never used
    return need(variables, "a store of your own");
  }
  const std::string& method = options.init_method;
  if (method.rfind("tcp://", 0) == 0) {
    if (const Result<void> read = read_tcp(method, variables); !read) return read;
    return need(variables, "tcp:// without ?rank=R&world_size=N");
  }
  if (method == "env://" || method.empty()) return {};
  return usage("init_method \"" + method + "\" is neither env:// nor tcp://host:port");
}

}  // namespace

Result<InitPlan> plan_init(const InitOptions& options, const Lookup& environment) {
  Overlay variables;
  if (const Result<void> read = read_options(options, variables); !read) return read.error();
  if (options.timeout.count() <= 0) {
    return usage("InitOptions::timeout of " + std::to_string(options.timeout.count()) +
                 " ms leaves no time; give at least 1 ms");
  }
  const Lookup lookup = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second : environment(name);
  };
  Result<WorkerIdentity> self = from_environment(lookup);
  if (!self) return self.error();
  const World& world = self->world;
  const bool is_agents = world.use_agent_store &&
                         environment("MASTER_ADDR") == lookup("MASTER_ADDR") &&
                         environment("MASTER_PORT") == lookup("MASTER_PORT");
  const bool hosts_store = !options.store && !is_agents && self->rank == 0 && world.world_size > 1;
  return InitPlan{.self = *std::move(self), .hosts_store = hosts_store};
}

}  // namespace drun::worker
