// The members of an operation of the device port, whatever the operation: for ports that look at all
// memory that a call reads or writes. A new member is seen without a word here.
#pragma once

#include <type_traits>

#include "engine/kernels/port.h"

namespace dsj::testing_support {

/// Bytes of a number.
inline int64_t size_of(kernels::Type type) {
  return type == kernels::Type::F32 ? 4 : 2;
}

struct AnyMember {
  template <typename T>
  operator T() const;
};

template <typename Op, typename... Found>
constexpr int member_count() {
  if constexpr (requires { Op{Found{}..., AnyMember{}}; })
    return member_count<Op, Found..., AnyMember>();
  else
    return sizeof...(Found);
}

/// Calls f(member) for each member of an operation, in their order.
template <typename Op, typename F>
void for_members(Op& op, F&& f) {
  const auto all = [&](auto&... members) { (f(members), ...); };
  constexpr int n = member_count<std::remove_const_t<Op>>();
  static_assert(n >= 2 && n <= 10);
  if constexpr (n == 2) {
    auto& [a, b] = op;
    all(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = op;
    all(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = op;
    all(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = op;
    all(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, g] = op;
    all(a, b, c, d, e, g);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, g, h] = op;
    all(a, b, c, d, e, g, h);
  } else if constexpr (n == 8) {
    auto& [a, b, c, d, e, g, h, i] = op;
    all(a, b, c, d, e, g, h, i);
  } else if constexpr (n == 9) {
    auto& [a, b, c, d, e, g, h, i, j] = op;
    all(a, b, c, d, e, g, h, i, j);
  } else {
    auto& [a, b, c, d, e, g, h, i, j, k] = op;
    all(a, b, c, d, e, g, h, i, j, k);
  }
}

}  // namespace dsj::testing_support
