#include "job/spec/resource.h"

#include <algorithm>
#include <cmath>

#include "common/text.h"
#include "job/spec/field_reader.h"
#include "job/spec/schema.h"

namespace dsj::jobspec {
namespace {

using ordered = nlohmann::ordered_json;

constexpr char kRules[] = "x-kubernetes-validations";
constexpr char kTop[] = "openAPIV3Schema:";
constexpr char kPodPlace[] = "# pod template\n";
constexpr char kPodBegin[] = "# pod template: made by";
constexpr char kPodEnd[] = "# pod template: end\n";

/// 1 instead of 1.0, as people write it.
ordered bound(double value) {
  return value == std::floor(value) ? ordered(static_cast<int64_t>(value)) : ordered(value);
}

ordered text_schema(const NumberRange& length) {
  ordered schema = {{"type", "string"}};
  if (length.least.value_or(0) > 0) schema["minLength"] = bound(*length.least);
  if (length.most) schema["maxLength"] = bound(*length.most);
  return schema;
}

ordered number_schema(const char* type, const NumberRange& range) {
  ordered schema = {{"type", type}};
  if (std::string_view(type) == "integer") schema["format"] = "int64";
  if (range.least) schema["minimum"] = bound(*range.least);
  if (range.least_open) schema["exclusiveMinimum"] = true;
  if (range.most) schema["maximum"] = bound(*range.most);
  if (range.most_open) schema["exclusiveMaximum"] = true;
  return schema;
}

ordered list_schema(const Field& field) {
  ordered schema = {{"type", "array"}};
  if (field.size_least > 0) schema["minItems"] = field.size_least;
  if (field.size_most) schema["maxItems"] = *field.size_most;
  return schema;
}

ordered map_of(ordered value) {
  return {{"type", "object"}, {"additionalProperties", std::move(value)}};
}

/// The schema of the type, without the fields in it.
ordered type_schema(const Field& field) {
  ordered schema;
  switch (field.type) {
    case Type::Object:
    case Type::PodTemplate:
      return {{"type", "object"}};
    case Type::List:
      return list_schema(field);
    case Type::Text:
      schema = text_schema(field.range);
      if (!field.pattern.empty()) schema["pattern"] = field.pattern;
      return schema;
    case Type::Choice:
      return {{"type", "string"}, {"enum", field.choices}};
    case Type::Whole:
      return number_schema("integer", field.range);
    case Type::Number:
      return number_schema("number", field.range);
    case Type::Flag:
      return {{"type", "boolean"}};
    case Type::Time:
      return {{"type", "string"}, {"format", "date-time"}};
    case Type::Wholes:
      schema = list_schema(field);
      schema["items"] = number_schema("integer", field.range);
      return schema;
    case Type::Texts:
      schema = list_schema(field);
      schema["items"] = text_schema(field.range);
      return schema;
    case Type::Quantities:
      return map_of({{"x-kubernetes-int-or-string", true}});
    case Type::Counts:
      return map_of(number_schema("integer", {}));
    case Type::AnyObject:
      return {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}};
    case Type::Any:
      break;
  }
  return {{"x-kubernetes-preserve-unknown-fields", true}};
}

/// The value of a missing field, for documentation; null if there is nothing to say.
nlohmann::json default_of(const Field& field) {
  const nlohmann::json preset = field.target.preset ? field.target.preset(field.choices) : nullptr;
  const bool is_shown = !field.required && !preset.empty() && preset != "" && preset != false;
  return is_shown ? preset : nlohmann::json();
}

std::string plain(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string description_of(const Field& field) {
  const nlohmann::json preset = default_of(field);
  if (preset.is_null() || field.filled_in) return field.description;
  return field.description + " Default: " + plain(preset) + ".";
}

/// Writes YAML whose flow parts are JSON, with one line per field without subfields.
class SchemaWriter {
 public:
  /// Writes the schema of `field`, under its name.
  void write(const Field& field, const std::string& indent) {
    const std::string name = field.name.empty() ? "" : field.name + ":";
    ordered schema = type_schema(field);
    if (!field.description.empty()) schema["description"] = description_of(field);
    if (field.filled_in) schema["default"] = field.target.preset(field.choices);
    schema.update(ordered(field.extra));
    ordered rules = ordered::array();
    for (const CelRule& rule : field.rules)
      rules.push_back({{"rule", rule.rule}, {"message", rule.message}});
    const bool of_element = field.type == Type::List;
    if (!rules.empty() && !of_element) schema[kRules] = rules;
    if (field.fields.empty() && field.type != Type::PodTemplate) {
      if (field.type == Type::List)
        schema["items"] = {{"type", "object"}, {"x-kubernetes-preserve-unknown-fields", true}};
      text_ += indent + name + " " + schema.dump() + "\n";
      return;
    }
    text_ += indent + name + "\n";
    block(schema, indent + "  ");
    if (of_element) {
      text_ += indent + "  items:\n";
      ordered element = {{"type", "object"}};
      if (!rules.empty()) element[kRules] = rules;
      block(element, indent + "    ");
      members(field, indent + "    ");
    } else {
      members(field, indent + "  ");
    }
  }

  std::string text() && { return std::move(text_); }

 private:
  void block(const ordered& schema, const std::string& indent) {
    for (const auto& [key, value] : schema.items())
      text_ += indent + key + ": " + value.dump() + "\n";
  }

  void members(const Field& field, const std::string& indent) {
    std::vector<std::string> required;
    for (const Field& inner : field.fields)
      if (inner.required_in_cluster && (!field.name.empty() || inner.name == "spec"))
        required.push_back(inner.name);
    if (!required.empty()) text_ += indent + "required: " + ordered(required).dump() + "\n";
    text_ += indent + "properties:\n";
    if (field.type == Type::PodTemplate) text_ += indent + "  " + kPodPlace;
    for (const Field& inner : field.fields) {
      const bool of_server = field.name.empty() && inner.description.empty();
      if (of_server)
        text_ += indent + "  " + inner.name + ": {\"type\":\"" +
                 (inner.type == Type::Object ? "object" : "string") + "\"}\n";
      else if (inner.actors != kLocal)
        write(inner, indent + "  ");
    }
  }

  std::string text_;
};

/// Inserts the pod template of `committed`, the lines between its marks.
std::string with_pod(std::string text, const std::string& committed) {
  const size_t place = text.find(kPodPlace);
  const size_t begin = committed.find(kPodBegin);
  const size_t end = committed.find(kPodEnd);
  if (place == std::string::npos || begin == std::string::npos || end == std::string::npos)
    return text;
  return text.replace(place, sizeof(kPodPlace) - 1, committed.substr(begin, end - begin) + kPodEnd);
}

std::string actors_text(const Field& field) {
  std::string text;
  for (const auto& [actor, name] : {std::pair{kOperator, "operator"},
                                    {kAgent, "agent"},
                                    {kEngine, "engine"},
                                    {kLocal, "`dsj run`"},
                                    {kPod, "agent (the next pod)"}})
    if (field.actors & actor) text += (text.empty() ? "" : ", ") + std::string(name);
  return text.empty() ? "refused" : text;
}

bool is_fixed(const Field& field) {
  return std::ranges::any_of(field.rules,
                             [](const CelRule& one) { return one.rule == kNeverChanges; });
}

void add_lines(const Field& object, const std::string& path, std::string& page) {
  for (const Field& field : object.fields) {
    const std::string at = path + field.name + (field.type == Type::List ? "[]" : "");
    std::string preset = plain(default_of(field));
    if (preset == "null") preset = field.required ? "(required)" : "";
    page += "| `" + at + "` | " + expected_of(field) + " | " + preset + " | " + actors_text(field) +
            " | " + (is_fixed(field) ? "Fixed. " : "") + field.description + " |\n";
    add_lines(field, at + ".", page);
  }
}

const Field& spec_of(const Field& schema) {
  for (const Field& field : schema.fields)
    if (field.name == "spec") return field;
  return schema;
}

}  // namespace

Result<std::string> resource_text(const std::string& committed) {
  const size_t top = committed.find(kTop);
  const bool job = committed.find("name: deepspeedjobs.") != std::string::npos;
  const bool pods = committed.find("name: deepspeedjobtemplates.") != std::string::npos;
  if (top == std::string::npos || job == pods)
    return bad_input("expected a resource of crds/, with " + std::string(kTop));
  const size_t line = committed.rfind('\n', top) + 1;
  SchemaWriter writer;
  writer.write(job ? job_schema() : template_schema(), std::string(top - line, ' '));
  std::string schema = std::move(writer).text();
  schema.erase(0, schema.find('\n') + 1);  // the root has no name
  return with_pod(committed.substr(0, top) + kTop + "\n" + schema, committed);
}

std::string fields_markdown() {
  std::string page =
      "# Fields of a DeepSpeedJob\n\n"
      "`make docs` makes this page from `job/spec/schema.cc` and `job/training_schema.cc`. Edit "
      "those files, not this page. `kubectl explain dsj.spec.workers` prints the same. \"Fixed\" "
      "marks an immutable value. If \"who acts\" does not name `dsj run`, a field has an effect "
      "only on a cluster. More about each group: [cluster.md](cluster.md#write-a-job).\n";
  for (const Field& field : spec_of(job_schema()).fields) {
    Field alone = spec_of(job_schema());
    alone.fields = {field};
    page += "\n## " + field.name +
            "\n\n| field | value | default | who acts | meaning |\n|---|---|---|---|---|\n";
    add_lines(alone, "", page);
  }
  return page;
}

}  // namespace dsj::jobspec
