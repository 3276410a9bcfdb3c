#include "job/spec/field_reader.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "common/json.h"
#include "common/text.h"
#include "job/spec/schema.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;

/// "Running or All or None".
std::string alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " or ") + word;
  return text;
}

std::string bounds(const NumberRange& range) {
  std::string text;
  if (range.least) text += (range.least_open ? " above " : " from ") + text::number(*range.least);
  if (range.most)
    text += (range.most_open ? " below "
             : range.least   ? " to "
                             : " up to ") +
            text::number(*range.most);
  return text;
}

bool is_in(const NumberRange& range, double value) {
  return (!range.least || value >= *range.least) && (!range.most || value <= *range.most);
}

bool is_whole(const json& value, const NumberRange& range) {
  return value.is_number_integer() && is_in(range, value.get<double>());
}

bool is_text(const json& value, const NumberRange& length) {
  return value.is_string() &&
         is_in(length, static_cast<double>(value.get_ref<const std::string&>().size()));
}

bool is_list(const Field& row, const json& value) {
  return value.is_array() && static_cast<int64_t>(value.size()) >= row.size_least &&
         static_cast<int64_t>(value.size()) <= row.size_most.value_or(INT64_MAX);
}

bool all_of(const json& list, auto&& good) {
  return std::all_of(list.begin(), list.end(), good);
}

bool fits(const Field& row, const json& value) {
  const std::string* text = value.is_string() ? &value.get_ref<const std::string&>() : nullptr;
  switch (row.type) {
    case Type::Object:
    case Type::AnyObject:
    case Type::PodTemplate:
      return value.is_object();
    case Type::List:
      return is_list(row, value);
    case Type::Text:
      return is_text(value, row.range) && (!row.valid || row.valid(*text));
    case Type::Choice:
      return text && std::ranges::find(row.choices, *text) != row.choices.end();
    case Type::Whole:
      return is_whole(value, row.range);
    case Type::Number:
      return value.is_number() && is_in(row.range, value.get<double>());
    case Type::Flag:
      return value.is_boolean();
    case Type::Time:
      return value.is_string();
    case Type::Wholes:
      return is_list(row, value) &&
             all_of(value, [&](const json& one) { return is_whole(one, row.range); });
    case Type::Texts:
      return is_list(row, value) &&
             all_of(value, [&](const json& one) { return is_text(one, row.range); });
    case Type::Quantities:
      return value.is_object() && all_of(value, [](const json& one) {
               return one.is_string() || one.is_number_integer();
             });
    case Type::Counts:
      return value.is_object() &&
             all_of(value, [](const json& one) { return one.is_number_integer(); });
    case Type::Any:
      return true;
  }
  return false;
}

}  // namespace

std::string expected_of(const Field& row) {
  if (!row.expected.empty()) return row.expected;
  const std::string at_most =
      row.size_most ? " of at most " + std::to_string(*row.size_most) : std::string();
  switch (row.type) {
    case Type::Object:
    case Type::AnyObject:
    case Type::PodTemplate:
      return "an object";
    case Type::List:
      return "a list" + at_most;
    case Type::Text:
      return "a text" + (row.range.most ? " of at most " + text::number(*row.range.most) + " bytes"
                                        : std::string());
    case Type::Choice:
      return alternatives(row.choices);
    case Type::Whole:
      return "a whole number" + bounds(row.range);
    case Type::Number:
      return "a number" + bounds(row.range);
    case Type::Flag:
      return "true or false";
    case Type::Time:
      return "a time";
    case Type::Wholes:
      return "a list" + at_most + " whole numbers" + bounds(row.range);
    case Type::Texts:
      return "a list" + at_most + " words";
    case Type::Quantities:
      return "an object of quantities";
    case Type::Counts:
      return "an object of whole numbers";
    case Type::Any:
      break;
  }
  return "a value";
}

namespace {

/// Fields of a container and of a pod that users of other jobs write beside replicas.
constexpr std::string_view kOfContainers[] = {
    "image",      "imagePullPolicy", "command",         "args",
    "env",        "envFrom",         "resources",       "volumeMounts",
    "workingDir", "ports",           "securityContext", "livenessProbe"};
constexpr std::string_view kOfPods[] = {
    "containers",        "initContainers",     "volumes",          "nodeSelector", "tolerations",
    "affinity",          "serviceAccountName", "imagePullSecrets", "hostNetwork",  "hostIPC",
    "priorityClassName", "runtimeClassName",   "schedulerName",    "dnsPolicy"};
/// Names of fields in other kinds of jobs.
constexpr std::pair<std::string_view, const char*> kElsewhere[] = {
    {"parallelism", "spec.workers.replicas"},
    {"completions", "spec.workers.replicas"},
    {"numNodes", "spec.workers.replicas"},
    {"nprocPerNode", "spec.workers.slotsPerWorker"},
    {"numProcPerNode", "spec.workers.slotsPerWorker"}};

/// The path of the shallowest field below `row` with this name; empty if there is none.
std::string path_in(const Field& row, std::string_view name, const std::string& path) {
  for (const Field& field : row.fields)
    if (field.name == name && field.refusal.empty()) return FieldReader::join(path, field.name);
  std::string best;
  for (const Field& field : row.fields) {
    if (field.type != Type::Object) continue;
    const std::string found = path_in(field, name, FieldReader::join(path, field.name));
    if (!found.empty() &&
        (best.empty() || std::ranges::count(found, '.') < std::ranges::count(best, '.')))
      best = found;
  }
  return best;
}

/// Where a misplaced field belongs; empty if no field has its name.
std::string elsewhere(const std::string& name) {
  for (const auto& [other, path] : kElsewhere)
    if (name == other) return std::string("write ") + path;
  if (std::ranges::find(kOfContainers, name) != std::end(kOfContainers))
    return "write it into the container \"worker\" of spec.workers.template.spec.containers";
  if (std::ranges::find(kOfPods, name) != std::end(kOfPods))
    return "write it into spec.workers.template.spec";
  const auto spec = std::ranges::find(job_schema().fields, "spec", &Field::name);
  const std::string path = path_in(*spec, name, "spec");
  return path.empty() ? path : "did you mean " + path + "?";
}

}  // namespace

std::string FieldReader::join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

std::string FieldReader::shown(const json& value) {
  return json_brief(value);
}

void FieldReader::report(Severity severity, const std::string& path, std::string message,
                         std::string hint) {
  findings_.push_back({severity, path, std::move(message), std::move(hint)});
}

bool FieldReader::is_wrong(const std::string& path) const {
  return std::ranges::any_of(findings_, [&](const dsconfig::Finding& finding) {
    return finding.severity == Severity::Error && finding.path.starts_with(path) &&
           (finding.path.size() == path.size() ||
            std::string_view(".[").contains(finding.path[path.size()]));
  });
}

const json* FieldReader::object(const json& parent, const char* name, const std::string& path) {
  const auto found = parent.find(name);
  if (found == parent.end() || found->is_null()) return nullptr;
  if (found->is_object()) return &*found;
  report(Severity::Error, path, "found " + shown(*found) + ", expected an object");
  return nullptr;
}

void FieldReader::read(const Field& row, const json& object, const std::string& path, void* owner) {
  std::vector<std::string> names;
  for (const Field& field : row.fields) names.push_back(field.name);
  for (const auto& [name, value] : object.items()) {
    if (std::ranges::find(names, name) != names.end()) continue;
    std::string hint = text::did_you_mean(name, names);
    if (hint.empty()) hint = row.hint.empty() ? elsewhere(name) : row.hint;
    report(Severity::Error, join(path, name), "\"" + name + "\" is not a field", hint);
  }
  for (const Field& field : row.fields) {
    const json& value = json_child(object, field.name.c_str());
    const std::string at = join(path, field.name);
    if (!value.is_null())
      read_field(field, value, at, owner);
    else if (field.required)
      report(Severity::Error, at, "a field is missing",
             field.hint.empty() ? alternatives(field.choices) : field.hint);
  }
}

void FieldReader::read_field(const Field& row, const json& value, const std::string& path,
                             void* owner) {
  const bool good = fits(row, value);
  if (!row.refusal.empty()) {
    const bool one_allowed = row.range.least && row.range.least == row.range.most;
    if (one_allowed ? good : row.type == Type::AnyObject && value.empty()) return;
    return report(Severity::Unsupported, path,
                  (one_allowed ? shown(value) + ": " : "") + row.refusal, row.hint);
  }
  if (!good) {
    const std::string near =
        value.is_string() ? text::did_you_mean(value.get<std::string>(), row.choices) : "";
    return report(Severity::Error, path, "found " + shown(value) + ", expected " + expected_of(row),
                  near.empty() ? row.hint : near);
  }
  if (row.read_elsewhere) return;
  if (row.target.set) row.target.set(owner, value, row.choices);
  if (row.type == Type::List) return read_elements(row, value, path, owner);
  if (row.type != Type::Object) return;
  read(row, value, path, row.target.reach ? row.target.reach(owner) : owner);
  if (row.target.reset && is_wrong(path)) row.target.reset(owner);
}

void FieldReader::read_elements(const Field& row, const json& list, const std::string& path,
                                void* owner) {
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string at = path + "[" + std::to_string(i) + "]";
    if (list[i].is_object())
      read(row, list[i], at, row.target.reach ? row.target.reach(owner) : owner);
    else
      report(Severity::Error, at, "found " + shown(list[i]) + ", expected an object", row.hint);
  }
}

}  // namespace dsj::jobspec
