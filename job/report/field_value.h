// Reads single fields of a status that any program may have written. A field is named by its member
// in the tables of status.h. Pure.
//
//   field_value<&Training::stop_step>(training)     field_value<&Checkpoint::step>(last_saved)
#pragma once

#include "common/json.h"
#include "job/report/status.h"
#include "job/report/wire.h"

namespace dsj::report {

template <typename T>
struct MemberOf;
template <typename Owner_, typename Value_>
struct MemberOf<Value_ Owner_::*> {
  using Owner = Owner_;
  using Value = Value_;
};

/// The table line of a member.
template <auto kMember>
consteval auto field_of() {
  using Owner = MemberOf<decltype(kMember)>::Owner;
  std::optional<Field<Owner, typename MemberOf<decltype(kMember)>::Value>> found;
  for_each_entry<Owner>([&](const auto& entry) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(entry.member)>, decltype(kMember)>) {
      if (entry.member == kMember) found = entry;
    }
  });
  return *found;
}

/// The name of a member in its report and in metrics.jsonl.
template <auto kMember>
consteval const char* name_of() {
  return field_of<kMember>().name;
}

/// The name of a member in the status. Does not compile if the status lacks the member.
template <auto kMember>
consteval const char* status_name() {
  constexpr auto field = field_of<kMember>();
  constexpr bool is_report = requires {
    MemberOf<decltype(kMember)>::Owner::kKind;
  };
  static_assert(!is_report || field.status != nullptr, "the member does not stand in the status");
  return is_report ? field.status : field.name;
}

/// The value of a member in a status object; nullopt if it is missing or has another type.
template <auto kMember>
auto field_value(const nlohmann::json& object) {
  using Value = MemberOf<decltype(kMember)>::Value;
  std::conditional_t<IsOptional<Value>::value, Value, std::optional<Value>> read;
  const nlohmann::json& found = json_child(object, status_name<kMember>());
  if constexpr (std::is_same_v<decltype(read), std::optional<double>>) {
    if (found.is_string()) {
      const auto& words = found.get_ref<const std::string&>();
      read = number_of_word(words);
      if (!read) read = text::parse_double(words);
    }
  } else {
    value_from_json(found, read);
  }
  return read;
}

}  // namespace dsj::report
