// core. One visitor made of lambdas, so that std::visit names every case and a forgotten one does
// not compile.
#pragma once

namespace drun {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

}  // namespace drun
