// Helpers with which schema.cc writes its rows. Internal to the schema.
// Tested by: tests/job/spec/schema_test.cc
#pragma once

#include <type_traits>
#include <utility>

#include "job/spec/field.h"

namespace dsj::jobspec::rows {

template <typename T>
inline constexpr bool kIsStruct =
    std::is_class_v<T> && !std::is_same_v<T, std::string> && !std::is_same_v<T, nlohmann::json>;

/// The kind of a member: a value, or an optional or a vector of structs.
template <typename T>
struct Holds {
  static constexpr bool kOptional = false, kStruct = kIsStruct<T>, kMaybeStruct = false,
                        kStructs = false;
};
template <typename T>
struct Holds<std::optional<T>> {
  static constexpr bool kOptional = true, kStruct = false, kMaybeStruct = kIsStruct<T>,
                        kStructs = false;
};
template <typename T>
struct Holds<std::vector<T>> {
  static constexpr bool kOptional = false, kStruct = false, kMaybeStruct = false,
                        kStructs = kIsStruct<T>;
};

template <typename Owner, typename Value>
auto& follow(Owner& owner, Value Owner::*member) {
  return owner.*member;
}
template <typename Owner, typename Value, typename... Rest>
auto& follow(Owner& owner, Value Owner::*member, Rest... rest) {
  return follow(owner.*member, rest...);
}

/// The index of the word among the choices is the value of an enumerator or a flag.
template <typename Value>
void assign(Value& member, const nlohmann::json& value, const std::vector<std::string>& choices) {
  if constexpr (Holds<Value>::kOptional) {
    assign(member.emplace(), value, choices);
  } else if constexpr (std::is_enum_v<Value> || std::is_same_v<Value, bool>) {
    size_t index = 0;
    while (index < choices.size() && value != choices[index]) ++index;
    member = choices.empty() ? static_cast<Value>(value.get<bool>()) : static_cast<Value>(index);
  } else {
    member = value.get<Value>();
  }
}

template <typename Value>
nlohmann::json written(const Value& member, const std::vector<std::string>& choices) {
  if constexpr (Holds<Value>::kOptional)
    return member ? written(*member, choices) : nlohmann::json();
  else if constexpr (std::is_enum_v<Value> || std::is_same_v<Value, bool>)
    return choices.empty() ? nlohmann::json(member)
                           : nlohmann::json(choices[static_cast<size_t>(member)]);
  else
    return member;
}

/// The member that `path` leads to, from the struct of the enclosing object.
template <typename Owner, typename First, typename... Rest>
Target to(First Owner::*first, Rest... rest) {
  auto at = [=](void* owner) -> auto& {
    return follow(*static_cast<Owner*>(owner), first, rest...);
  };
  using Value = std::remove_cvref_t<decltype(at(nullptr))>;
  Target target;
  if constexpr (Holds<Value>::kMaybeStruct) {
    target.reach = [=](void* owner) -> void* { return &at(owner).emplace(); };
    target.reset = [=](void* owner) { at(owner).reset(); };
  } else if constexpr (Holds<Value>::kStructs) {
    target.reach = [=](void* owner) -> void* { return &at(owner).emplace_back(); };
  } else if constexpr (Holds<Value>::kStruct) {
    target.reach = [=](void* owner) -> void* { return &at(owner); };
  } else {
    target.set = [=](void* owner, const nlohmann::json& value,
                     const std::vector<std::string>& choices) {
      assign(at(owner), value, choices);
    };
    target.get = [=](void* owner, const std::vector<std::string>& choices) {
      return written(at(owner), choices);
    };
    target.preset = [get = target.get](const std::vector<std::string>& choices) {
      Owner fresh;
      return get(&fresh, choices);
    };
  }
  return target;
}

/// A row under construction.
struct Row : Field {
  Row&& needs(std::string what = {}) && {
    required = required_in_cluster = true;
    hint = std::move(what);
    return std::move(*this);
  }
  Row&& needs_in_cluster() && {
    required_in_cluster = true;
    return std::move(*this);
  }
  Row&& hints(std::string what) && {
    hint = std::move(what);
    return std::move(*this);
  }
  Row&& refuses(std::string why, std::string what) && {
    refusal = std::move(why);
    hint = std::move(what);
    return std::move(*this);
  }
  Row&& checked(bool (*check)(const std::string&), std::string what, std::string regex = {}) && {
    valid = check;
    expected = std::move(what);
    pattern = std::move(regex);
    return std::move(*this);
  }
  Row&& rule(std::string cel, std::string message) && {
    rules.push_back({std::move(cel), std::move(message)});
    return std::move(*this);
  }
  /// Makes the field immutable.
  Row&& fixed(std::string message) && {
    return std::move(*this).rule(kNeverChanges, std::move(message));
  }
  /// For a list.
  Row&& sized(int64_t least, int64_t most) && {
    size_least = least;
    size_most = most;
    return std::move(*this);
  }
  Row&& stored() && {
    filled_in = true;
    return std::move(*this);
  }
  Row&& elsewhere() && {
    read_elsewhere = true;
    return std::move(*this);
  }
  Row&& with(nlohmann::json more) && {
    extra = std::move(more);
    return std::move(*this);
  }
  /// Also sets the actors of inner fields that have none.
  Row&& by(unsigned who) && {
    give(*this, who);
    return std::move(*this);
  }

 private:
  static void give(Field& field, unsigned who) {
    if (field.actors == 0) field.actors = who;
    for (Field& inner : field.fields) give(inner, who);
  }
};

inline Row row(const char* name, Type type, Target target, std::string description) {
  Row made;
  made.name = name;
  made.type = type;
  made.target = std::move(target);
  made.description = std::move(description);
  return made;
}
inline Row object(const char* name, Target target, std::string description,
                  std::vector<Row> fields) {
  Row made = row(name, Type::Object, std::move(target), std::move(description));
  made.fields.assign(std::make_move_iterator(fields.begin()),
                     std::make_move_iterator(fields.end()));
  return made;
}
inline Row list(const char* name, Target target, std::string description, int64_t most,
                std::vector<Row> fields) {
  Row made = object(name, std::move(target), std::move(description), std::move(fields));
  made.type = Type::List;
  if (most > 0) made.size_most = most;
  return made;
}
inline Row number(Type type, const char* name, Target target, NumberRange range,
                  std::string description) {
  Row made = row(name, type, std::move(target), std::move(description));
  made.range = range;
  return made;
}
inline Row whole(const char* name, Target target, NumberRange range, std::string description) {
  return number(Type::Whole, name, std::move(target), range, std::move(description));
}
inline Row text(const char* name, Target target, NumberRange length, std::string description) {
  return number(Type::Text, name, std::move(target), length, std::move(description));
}
inline Row flag(const char* name, Target target, std::string description) {
  return row(name, Type::Flag, std::move(target), std::move(description));
}
inline Row choice(const char* name, Target target, std::vector<std::string> choices,
                  std::string description) {
  Row made = row(name, Type::Choice, std::move(target), std::move(description));
  made.choices = std::move(choices);
  return made;
}

Row status_row();  // schema_status.cc

}  // namespace dsj::jobspec::rows
