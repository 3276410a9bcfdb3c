#include "job/spec/field_reader.h"

#include <algorithm>

#include "common/json.h"
#include "common/text.h"
#include "job/spec/fields.h"

namespace dsj::jobspec {

using nlohmann::json;

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

void FieldReader::fields(const json& object, const std::string& path, const std::string& table) {
  const auto& known = manifest_fields().at(table.empty() ? path : table);
  for (const auto& [name, value] : object.items())
    if (std::find(known.begin(), known.end(), name) == known.end())
      report(Severity::Error, join(path, name), "\"" + name + "\" is not a field",
             text::did_you_mean(name, known));
}

const json* FieldReader::object(const json& parent, const char* name, const std::string& path) {
  const auto found = parent.find(name);
  if (found == parent.end() || found->is_null()) return nullptr;
  if (found->is_object()) return &*found;
  report(Severity::Error, path, "found " + shown(*found) + ", expected an object");
  return nullptr;
}

bool FieldReader::whole(const json& object, const std::string& path, const char* name,
                        int64_t least, int64_t most, int64_t& field) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return false;
  if (!found->is_number_integer() || found->get<int64_t>() < least ||
      found->get<int64_t>() > most) {
    report(Severity::Error, join(path, name),
           "found " + shown(*found) + ", expected a whole number from " + std::to_string(least) +
               " to " + std::to_string(most));
    return false;
  }
  field = found->get<int64_t>();
  return true;
}

void FieldReader::flag(const json& object, const std::string& path, const char* name, bool& field) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return;
  if (found->is_boolean())
    field = *found;
  else
    report(Severity::Error, join(path, name),
           "found " + shown(*found) + ", expected true or false");
}

void FieldReader::words(const json& object, const std::string& path, const char* name,
                        std::vector<std::string>& field) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return;
  const bool good = found->is_array() && std::all_of(found->begin(), found->end(),
                                                     [](const json& w) { return w.is_string(); });
  if (good)
    field = found->get<std::vector<std::string>>();
  else
    report(Severity::Error, join(path, name), "found " + shown(*found) + ", expected words");
}

void FieldReader::choice(const json& object, const std::string& path, const char* name,
                         const std::vector<std::string>& choices, std::string& field) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return;
  const std::string word = found->is_string() ? found->get<std::string>() : "";
  if (std::find(choices.begin(), choices.end(), word) != choices.end()) {
    field = word;
    return;
  }
  std::string expected;
  for (const std::string& one : choices) expected += (expected.empty() ? "" : " or ") + one;
  report(Severity::Error, join(path, name), "found " + shown(*found) + ", expected " + expected,
         text::did_you_mean(word, choices));
}

}  // namespace dsj::jobspec
