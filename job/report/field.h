// How a report is described: a struct lists its members in a table, `fields()`, with their names on
// the wire, their units, and their places in the job's status and in `dsj describe`. Readers and
// writers (wire.h), the schema check and `dsj describe` walk the table. So a new quantity needs
// only a member and its line in the table.
//
//   struct Resumed {
//     static constexpr char kKind[] = "resumed";
//     int64_t step = 0;
//     std::string path;
//     static constexpr auto fields() {
//       return std::tuple{field(&Resumed::step, "step").required(),
//                         field(&Resumed::path, "path").in_status("path").described(": ")};
//     }
//   };
//   static_assert(is_described<Resumed>);
//
// A value that is missing or null on the wire is nullopt. An optional member is therefore a
// std::optional; the others keep their default.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace dsj::report {

/// The unit of a value. A wire name that ends in a unit ("sizeBytes", "step_seconds") has it.
enum class Unit {
  None,
  Seconds,
  Milliseconds,
  Bytes,
  Tokens,
  TokensPerSecond,
  Ranks,
  Percent,
  Time
};

/// The text after a value of this unit, for people: " s", " bytes". A Time, RFC 3339 on the wire,
/// is shown as its age: " ago".
constexpr const char* suffix(Unit unit) {
  switch (unit) {
    case Unit::Seconds:
      return " s";
    case Unit::Milliseconds:
      return " ms";
    case Unit::Bytes:
      return " bytes";
    case Unit::Tokens:
      return " tokens";
    case Unit::TokensPerSecond:
      return " tokens/s";
    case Unit::Ranks:
      return " ranks";
    case Unit::Percent:
      return " %";
    case Unit::Time:
      return " ago";
    case Unit::None:
      break;
  }
  return "";
}

/// One line of a table.
template <typename Owner_, typename Value_>
struct Field {
  using Owner = Owner_;
  using Value = Value_;

  Value Owner::*member;
  const char* name;  ///< on the wire
  Unit unit = Unit::None;
  bool must = false;
  bool rare = false;
  const char* status = nullptr;  ///< its name in the job's status; null if the status lacks it
  const char* before = nullptr;  ///< text before it in `dsj describe`; null: not shown
  const char* after = "";

  constexpr Field in(Unit its_unit) const {
    Field changed = *this;
    changed.unit = its_unit;
    return changed;
  }
  /// A number of at least 0. An object without it is not such a report.
  constexpr Field required() const {
    Field changed = *this;
    changed.must = true;
    return changed;
  }
  /// Only some runs have it: a line of metrics.jsonl omits it where it is unknown.
  constexpr Field of_some_runs() const {
    Field changed = *this;
    changed.rare = true;
    return changed;
  }
  constexpr Field in_status(const char* its_name) const {
    Field changed = *this;
    changed.status = its_name;
    return changed;
  }
  /// `dsj describe` shows it, if known: "BEFORE", value and unit, "AFTER".
  constexpr Field described(const char* its_before, const char* its_after = "") const {
    Field changed = *this;
    changed.before = its_before;
    changed.after = its_after;
    return changed;
  }
};

template <typename Owner, typename Value>
constexpr Field<Owner, Value> field(Value Owner::*member, const char* name) {
  return {member, name};
}

/// A member that is itself a report: the owner's object contains its in_status() fields. nullopt if
/// none of them is there.
template <typename Owner_, typename Value_>
struct Part {
  using Owner = Owner_;
  using Value = Value_;
  std::optional<Value> Owner::*member;
};

template <typename Owner, typename Value>
constexpr Part<Owner, Value> part(std::optional<Value> Owner::*member) {
  return {member};
}

template <typename T>
concept Described = requires {
  T::fields();
};

/// Calls visit(entry) for each Field and each Part of T, in the table's order.
template <Described T, typename Visit>
constexpr void for_each_entry(Visit&& visit) {
  std::apply([&](const auto&... entry) { (visit(entry), ...); }, T::fields());
}

template <typename T>
struct IsPart : std::false_type {};
template <typename Owner, typename Value>
struct IsPart<Part<Owner, Value>> : std::true_type {};

/// Calls visit(field, name) for each field of the status object T, including those of its parts.
/// `name` is the field's name in the status.
template <Described T, typename Visit>
constexpr void for_each_status_field(Visit&& visit) {
  for_each_entry<T>([&](const auto& entry) {
    using Entry = std::remove_cvref_t<decltype(entry)>;
    if constexpr (IsPart<Entry>::value) {
      for_each_entry<typename Entry::Value>([&](const auto& field) {
        if (field.status != nullptr) visit(field, field.status);
      });
    } else {
      visit(entry, entry.name);
    }
  });
}

/// True if the table of T has every member once, in the order of declaration. (It sums their sizes;
/// it can miss only a bool that fits into padding.)
template <Described T>
constexpr bool has_every_member() {
  size_t end = 0, alignment = 1;
  for_each_entry<T>([&](const auto& entry) {
    using Value = std::remove_cvref_t<decltype(std::declval<T&>().*entry.member)>;
    end = (end + alignof(Value) - 1) / alignof(Value) * alignof(Value) + sizeof(Value);
    alignment = std::max(alignment, alignof(Value));
  });
  return (end + alignment - 1) / alignment * alignment == sizeof(T);
}
template <Described T>
inline constexpr bool is_described = has_every_member<T>();

/// A visitor of a std::variant: one lambda per alternative.
template <typename... Lambdas>
struct overloaded : Lambdas... {
  using Lambdas::operator()...;
};

}  // namespace dsj::report
