// core. The two numberings of PyTorch's TCPStore protocol, by a connection's first bytes.
// Owner: a value.  Thread: any.  Source: rendezvous/WIRE.md.
#pragma once

#include <cstdint>
#include <string_view>

namespace drun {

enum class Dialect : std::uint8_t {
  Legacy,   // torch 1.13 to 2.0: the connection begins with an operation
  Current,  // torch 2.2 and later: it begins with VALIDATE
};

constexpr std::string_view to_string(Dialect dialect) {
  return dialect == Dialect::Legacy ? "legacy" : "current";
}

}  // namespace drun
