// A row of the schema (schema.h): the description of a field of a manifest.
// Tested by: tests/job/spec/schema_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "job/training_schema.h"

namespace dsj::jobspec {

/// Which programs act on a field. A field without an actor is known and refused.
enum Actor : unsigned {
  kOperator = 1,
  kAgent =
      2,  ///< reads it in job.json or in the status: an edit acts at once or makes a new revision
  kEngine = 4,
  kLocal = 8,  ///< `dsj run`
  kPod = 16,   ///< an agent, from its pod's creation on (pod_policies.h)
};

enum class Type {
  Object,       ///< fields: its members
  List,         ///< fields: those of an element
  Text,         ///< range: of its length
  Choice,       ///< one of `choices`
  Whole,        ///< a whole number
  Number,       ///< whole or fractional
  Flag,         ///< true or false
  Time,         ///< RFC 3339
  Wholes,       ///< a list of whole numbers, each in `range`
  Texts,        ///< a list of texts, each of at most range.most bytes
  Quantities,   ///< an object of resource quantities
  Counts,       ///< an object of whole numbers
  Any,          ///< any value
  AnyObject,    ///< any object
  PodTemplate,  ///< checked by pod_template.cc; scripts/pod_template_schema.py has its schema
};

/// Where the reader stores a value: a member of the struct of the enclosing object.
struct Target {
  /// For a value: sets the member. The value has passed the checks of the row.
  std::function<void(void* owner, const nlohmann::json& value,
                     const std::vector<std::string>& choices)>
      set;
  /// The value as a manifest writes it; null if an optional member has no value.
  std::function<nlohmann::json(void* owner, const std::vector<std::string>& choices)> get;
  std::function<void*(void* owner)> reach;  ///< of an object: its struct; of a list: a new element
  std::function<void(void* owner)> reset;   ///< for an optional object: removes it
  /// The member's initial value.
  std::function<nlohmann::json(const std::vector<std::string>& choices)> preset;
};

/// A CEL rule that an API server checks, and its message.
struct CelRule {
  std::string rule, message;
};

/// The rule of an immutable field.
inline constexpr char kNeverChanges[] = "self == oldSelf";

struct Field {
  std::string name;
  Type type = Type::Any;
  std::string description;  ///< sentences
  NumberRange range;        ///< of a number, or of a text's length in bytes
  int64_t size_least = 0;
  std::optional<int64_t> size_most;  ///< for a list
  std::vector<std::string> choices;
  std::vector<Field> fields;
  Target target;
  unsigned actors = 0;    ///< a set of Actor; default: those of the enclosing object
  bool required = false;  ///< by the reader, too
  bool required_in_cluster = false;
  bool filled_in = false;       ///< an API server stores the default
  bool read_elsewhere = false;  ///< the reader checks only its type; another reader reads it
  std::string hint;             ///< what to do if it is missing or wrong
  std::string refusal;          ///< why values are refused, except the one value of `range`, if any
  std::string expected;         ///< for a text with a check: "the name of an object"
  bool (*valid)(const std::string& text) = nullptr;
  std::string pattern;                              ///< the same check as a regular expression
  std::vector<CelRule> rules;                       ///< for a list: of an element
  nlohmann::json extra = nlohmann::json::object();  ///< further properties in the resource's schema
};

}  // namespace dsj::jobspec
