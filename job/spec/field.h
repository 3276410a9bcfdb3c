// A row of the schema (schema.h): what a field of a manifest is.
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

/// Who acts on a field. What nobody acts on is known and refused.
enum Actor : unsigned {
  kOperator = 1,
  kAgent =
      2,  ///< reads it in job.json or in the job's status: an edit holds at once, or is a new revision
  kEngine = 4,
  kLocal = 8,  ///< `dsj run`
  kPod = 16,   ///< an agent, as its pod was made (pod_policies.h)
};

enum class Type {
  Object,       ///< fields: its members
  List,         ///< fields: those of an element
  Text,         ///< range: of its length
  Choice,       ///< a text of `choices`
  Whole,        ///< a whole number
  Number,       ///< whole or not
  Flag,         ///< true or false
  Time,         ///< RFC 3339
  Wholes,       ///< a list of whole numbers, each in `range`
  Texts,        ///< a list of texts, each of at most range.most bytes
  Quantities,   ///< an object of resource quantities
  Counts,       ///< an object of whole numbers
  Any,          ///< as it is
  AnyObject,    ///< an object as it is
  PodTemplate,  ///< checked by pod_template.cc; scripts/pod_template_schema.py knows its schema
};

/// Where the reader puts a value: into the struct of the object that holds the field.
struct Target {
  /// Of a value: sets the member. It has passed the checks of the row.
  std::function<void(void* owner, const nlohmann::json& value,
                     const std::vector<std::string>& choices)>
      set;
  /// As a manifest writes it; null: an optional member without a value.
  std::function<nlohmann::json(void* owner, const std::vector<std::string>& choices)> get;
  std::function<void*(void* owner)> reach;  ///< of an object: its struct; of a list: a new element
  std::function<void(void* owner)> reset;   ///< of an optional object: takes it away again
  /// What the member holds if nobody sets it.
  std::function<nlohmann::json(const std::vector<std::string>& choices)> preset;
};

/// A rule in CEL that an API server checks, and its message.
struct CelRule {
  std::string rule, message;
};

/// Of a field that does not change in a job's life.
inline constexpr char kNeverChanges[] = "self == oldSelf";

struct Field {
  std::string name;
  Type type = Type::Any;
  std::string description;  ///< sentences
  NumberRange range;        ///< of a number, of a text's length in bytes
  int64_t size_least = 0;
  std::optional<int64_t> size_most;  ///< of a list
  std::vector<std::string> choices;
  std::vector<Field> fields;
  Target target;
  unsigned actors = 0;    ///< of Actor; its object's, unless it has its own
  bool required = false;  ///< by the reader, too
  bool required_in_cluster = false;
  bool filled_in = false;       ///< an API server stores the default
  bool read_elsewhere = false;  ///< the reader checks its type only: another reader knows more
  std::string hint;             ///< what to do if it is missing or wrong
  std::string refusal;          ///< why any value is refused, but one that `range` allows alone
  std::string expected;         ///< of a text with a check: "the name of an object"
  bool (*valid)(const std::string& text) = nullptr;
  std::string pattern;                              ///< the same check as a regular expression
  std::vector<CelRule> rules;                       ///< of a list: of an element
  nlohmann::json extra = nlohmann::json::object();  ///< more of the resource's schema
};

}  // namespace dsj::jobspec
