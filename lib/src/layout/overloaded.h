// A visitor made of lambdas. Private to the library.
#pragma once

namespace shardcheck {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <class... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace shardcheck
