// core. One visitor made of lambdas, so that std::visit names every case and a forgotten one does
// not compile.
#pragma once

namespace drun {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
// clang before 17, which clang-tidy and the fuzz targets may be, does not deduce aggregates.
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

}  // namespace drun
