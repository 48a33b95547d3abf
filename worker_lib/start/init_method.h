// core. What InitOptions::init_method says.
//
// Owner:   a value.   Thread: any.
// Errors:  Usage, with the whole method, the part that is wrong and what would be right.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/endpoint.h"
#include "rendezvous/result.h"

namespace drun::worker {

// At most one of the two; neither: env://.
struct InitMethod {
  std::optional<Endpoint> store = std::nullopt;         // tcp://host:port
  std::optional<std::string> file_path = std::nullopt;  // file:///path
  // ?rank=R&world_size=N: texts, to be checked like the variables they stand for.
  std::optional<std::string> rank = std::nullopt;
  std::optional<std::string> world_size = std::nullopt;
  bool operator==(const InitMethod&) const = default;
};

Result<InitMethod> parse_init_method(std::string_view method);

}  // namespace drun::worker
