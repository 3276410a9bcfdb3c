#include "job/dsconfig/read/check.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "common/home_path.h"
#include "common/json.h"
#include "common/text.h"
#include "job/dsconfig/config/optimizers.h"
#include "job/dsconfig/keys/keys.h"
#include "job/dsconfig/read/scheduler_classes.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using Severity = Finding::Severity;

constexpr int kUnknownMax = 1000;
constexpr char kUnknownKey[] = "unknown key";

std::string join(const std::string& section, const std::string& name) {
  return section.empty() ? name : section + "." + name;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Whether the key is a remark: "_comment", "__note__", "comment", "//", "#".
bool is_comment(const std::string& name) {
  const std::string lower = text::normalized(name);
  return name.starts_with("_") || name.starts_with("//") || name.starts_with("#") ||
         lower.starts_with("comment");
}

const char* type_name(Type type) {
  switch (type) {
    case Type::Bool:
      return "true or false";
    case Type::Int:
      return "a whole number";
    case Type::Float:
      return "a number";
    case Type::String:
      return "a string";
    case Type::List:
      return "a list";
    case Type::Section:
      return "an object";
    case Type::Any:
      break;
  }
  return "a value";
}

bool any_enabled(const json& object, int depth = 0) {
  if (depth > 16) return true;
  if (object.is_array()) {
    return std::any_of(object.begin(), object.end(),
                       [&](const json& entry) { return any_enabled(entry, depth + 1); });
  }
  if (!object.is_object()) return false;
  for (const auto& [name, value] : object.items()) {
    if (name == "enabled" && (value == true || value == "true")) return true;
    if (any_enabled(value, depth + 1)) return true;
  }
  return false;
}

/// Sections in which every supported version of DeepSpeed refuses an unknown key.
bool forbids_unknown(const std::string& section) {
  static const std::set<std::string> sections = {"zero_optimization",
                                                 "zero_optimization.offload_param",
                                                 "zero_optimization.offload_optimizer",
                                                 "comms_logger",
                                                 "tensorboard",
                                                 "csv_monitor",
                                                 "wandb"};
  return sections.contains(section);
}

/// Known but not built: its parameters are not checked. The same for schedulers.
bool is_refused_optimizer(const std::string& type) {
  const Optimizer* known = find_optimizer(type);
  return known != nullptr && !known->refusal.empty();
}

class Checker {
 public:
  explicit Checker(Checked& out) : out_(out) {}

  void run(const json& ds_config) {
    if (!ds_config.is_object()) {
      report(Severity::Error, "",
             "found " + json_brief(ds_config) + ", expected an object of settings");
      return;
    }
    section("", "", ds_config, out_.config, true);
    home_paths(out_.config, "");
  }

 private:
  void report(Severity severity, const std::string& path, std::string message,
              std::string hint = {}) {
    out_.findings.push_back({severity, path, std::move(message), std::move(hint)});
  }

  /// Reports values that begin with ~/: they can only be paths.
  void home_paths(const json& value, const std::string& path) {
    if (value.is_string()) {
      if (const auto wrong = home_path(value.get_ref<const std::string&>()))
        report(Severity::Error, out_.written_path(path), wrong->message, wrong->hint);
      return;
    }
    if (value.is_object())
      for (const auto& [name, child] : value.items()) home_paths(child, join(path, name));
    if (value.is_array())
      for (size_t i = 0; i < value.size(); ++i)
        home_paths(value[i], path + "[" + std::to_string(i) + "]");
  }

  /// `path` has the table's names, `written` the user's. `on`: report unsupported and inert keys.
  void section(const std::string& path, const std::string& written, const json& object, json& to,
               bool on) {
    std::set<const Key*> seen;
    for (const auto& [name, value] : object.items()) {
      if (is_comment(name)) continue;
      const std::string here = join(written, name);
      const Key* key = find_key(join(path, name));
      if (key == nullptr) {
        unknown(path, here, name);
        continue;
      }
      if (!seen.insert(key).second) {
        report(Severity::Error, here, "given twice: \"" + key->path + "\" is the same setting",
               "keep one of the two");
        continue;
      }
      if (key->path != here) out_.written[key->path] = here;
      one_key(*key, here, value, to[key->path.substr(path.empty() ? 0 : path.size() + 1)], on);
    }
    for (auto entry = to.begin(); entry != to.end();)
      entry = entry->is_null() ? to.erase(entry) : std::next(entry);
  }

  void unknown(const std::string& path, const std::string& here, const std::string& name) {
    if (++unknown_ > kUnknownMax) {  // too many for typing errors: stop the search
      if (unknown_ == kUnknownMax + 1)
        report(Severity::Error, here,
               "another unknown key, after " + std::to_string(kUnknownMax) + " others",
               "is this a ds_config?");
      return;
    }
    std::string hint = text::did_you_mean(name, names_in(path));
    if (!hint.empty()) {
      report(Severity::Error, here, "\"" + name + "\" is not a key of ds_config", hint);
      return;
    }
    if (const auto homes = homes_of(name, path); !homes.empty()) {
      report(Severity::Error, here, "\"" + name + "\" is in the wrong section",
             "it belongs at " + listed(homes));
      return;
    }
    if (path == "optimizer.params" || path == "scheduler.params") {
      report(Severity::Error, here, "\"" + name + "\" is not a parameter of " + path.substr(0, 9),
             "remove it");
      return;
    }
    if (forbids_unknown(path)) {
      report(Severity::Error, here, "\"" + name + "\" is not a key of " + path,
             "DeepSpeed refuses unknown keys in this section: remove it");
      return;
    }
    report(Severity::Warning, here, kUnknownKey, "remove it, or check its spelling");
  }

  void one_key(const Key& key, const std::string& here, const json& value, json& to, bool on) {
    if (value.is_null()) {
      absent_value(key, here);
      return;
    }
    if (key.type == Type::Section) {
      one_section(key, here, value, to, on);
      return;
    }
    if (value == "auto") {
      if (key.auto_rule.empty() && key.type != Type::Any) {
        report(
            Severity::Warning, here,
            "\"auto\" has no rule for this key; the default is used: " + json_brief(key.fallback));
      } else {
        to = value;
      }
      return;
    }
    std::optional<json> read = coerced(key, here, value);
    if (!read || !in_range(key, here, *read)) return;
    to = *read;
    if (key.state == State::Rejected && to != key.fallback) {
      report(Severity::Error, here, json_brief(to) + " is not accepted by DeepSpeed either",
             key.reason);
    } else if (on) {
      judge(key, here, to);
    }
  }

  void absent_value(const Key& key, const std::string& here) {
    if (key.fallback.is_null() || key.type == Type::Section || key.type == Type::Any) return;
    const bool typed = here.starts_with("zero_optimization.") || here.starts_with("fp16.") ||
                       here.starts_with("bf16.");
    report(typed ? Severity::Error : Severity::Warning, here,
           std::string("found null, expected ") + type_name(key.type),
           "remove the key for its default, " + json_brief(key.fallback));
  }

  void one_section(const Key& key, const std::string& here, const json& value, json& to, bool on) {
    if (key.path == "zero_optimization" && value.is_boolean()) {
      report(Severity::Warning, here, "true or false is the old form",
             value.get<bool>() ? "write {\"stage\": 1}" : "write {\"stage\": 0}");
      to = {{"stage", value.get<bool>() ? 1 : 0}};
      return;
    }
    if (!value.is_object()) {
      report(Severity::Error, here, "found " + json_brief(value) + ", expected an object");
      return;
    }
    to = json::object();
    const bool gate_open = is_on(key.gate, value);
    const bool speak = on && gate_open;
    if (key.path == "optimizer.params" && is_refused_optimizer(types_["optimizer"])) return;
    if (key.path == "scheduler.params" && !scheduler_refusal(types_["scheduler"]).empty()) return;
    if (key.path == "optimizer" || key.path == "scheduler") types_[key.path] = type_of(value);
    if (!key.open) section(key.path, here, value, to, speak);
    if (!speak || (key.state != State::Inert && key.state != State::Unsupported)) return;
    if (key.gate == Gate::Always) {  // an inert section: one finding for all its keys
      inert_section(key, here, to);
      return;
    }
    if (key.path == "tensor_parallel" && value.value("autotp_size", json(1)) <= 1) return;
    report(key.state == State::Inert ? Severity::Warning : Severity::Unsupported, here,
           key.state == State::Inert ? "no effect" : "not supported by this engine", key.reason);
  }

  void inert_section(const Key& key, const std::string& here, const json& values) {
    std::vector<std::string> names;
    for (const auto& [name, value] : values.items()) {
      const Key* child = find_key(join(key.path, name));
      if (child != nullptr && value != child->fallback && !value.is_null()) names.push_back(name);
    }
    if (!names.empty()) report(Severity::Warning, here, "no effect: " + listed(names), key.reason);
  }

  static bool is_on(Gate gate, const json& object) {
    switch (gate) {
      case Gate::Always:
        return true;
      case Gate::Presence:
        return !object.empty();
      case Gate::AnyEnabled:
        return any_enabled(object);
      case Gate::Enabled:
        break;
    }
    const auto enabled = object.find("enabled");
    if (enabled == object.end()) return false;
    if (enabled->is_string()) return text::parse_bool(enabled->get<std::string>()) == true;
    return *enabled == true || *enabled == 1;
  }

  static std::string type_of(const json& object) {
    const auto type = object.find("type");
    return type != object.end() && type->is_string() ? type->get<std::string>() : "";
  }

  std::optional<json> coerced(const Key& key, const std::string& here, const json& value) {
    std::optional<json> read;
    const std::string word = value.is_string() ? value.get<std::string>() : "";
    switch (key.type) {
      case Type::Any:
      case Type::Section:
        return value;
      case Type::List:
        if (value.is_array()) return value;
        break;
      case Type::String:
        if (value.is_string()) return value;
        break;
      case Type::Bool:
        if (value.is_boolean()) return value;
        if (value.is_number() && (value == 0 || value == 1)) read = json(value == 1);
        if (value.is_string())
          if (const auto yes = text::parse_bool(word)) read = json(*yes);
        break;
      case Type::Int:
        if (value.is_number_integer()) {
          if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) break;
          return value;
        }
        if (value.is_number_float()) {
          if (const auto whole = text::to_int(value.get<double>())) return json(*whole);
        } else if (value.is_string()) {
          if (const auto whole = text::parse_int(word)) read = json(*whole);
          // Hugging Face's integrations write inf here to silence DeepSpeed.
          if (key.path == "steps_per_print" && text::normalized(word).starts_with("inf"))
            read = json(0);
        }
        break;
      case Type::Float:
        if (value.is_number()) {
          if (std::isfinite(value.get<double>())) return json(value.get<double>());
        } else if (value.is_boolean()) {
          read = json(value.get<bool>() ? 1.0 : 0.0);
        } else if (value.is_string()) {
          if (const auto number = text::parse_double(word)) read = json(*number);
        }
        break;
    }
    if (read) {
      report(Severity::Warning, here,
             "found " + json_brief(value) + ", read as " + json_brief(*read),
             std::string("write ") + type_name(key.type));
    } else {
      report(Severity::Error, here,
             "found " + json_brief(value) + ", expected " + type_name(key.type));
    }
    return read;
  }

  bool in_range(const Key& key, const std::string& here, json& value) {
    if (value.is_number()) {
      const double number = value.get<double>();
      if (number >= key.min && number <= key.max) return true;
      std::string expected = "at least " + text::number(key.min);
      if (key.max < 1e300)
        expected = "from " + text::number(key.min) + " to " + text::number(key.max);
      report(Severity::Error, here, "found " + json_brief(value) + ", expected " + expected);
      return false;
    }
    if (key.choices.empty() || !value.is_string()) return true;
    const std::string word = text::normalized(value.get<std::string>());
    for (const std::string& choice : key.choices) {
      if (text::normalized(choice) != word) continue;
      value = choice;
      return true;
    }
    if (key.path == "scheduler.params.warmup_type") {  // DeepSpeed then uses log
      report(Severity::Warning, here,
             "found " + json_brief(value) + ", which DeepSpeed reads as \"log\"",
             "write \"log\" or \"linear\"");
      value = "log";
      return true;
    }
    report(Severity::Error, here,
           "found " + json_brief(value) + ", expected one of " + listed(key.choices),
           text::did_you_mean(value.get<std::string>(), key.choices));
    return false;
  }

  void judge(const Key& key, const std::string& here, const json& value) {
    if (key.state != State::Inert && key.state != State::Unsupported) return;
    if (value == key.fallback || key.path == "fp16.enabled") return;  // resolve() checks that one
    for (const json& neutral : key.neutral)
      if (value == neutral) return;
    if (key.state == State::Inert)
      report(Severity::Warning, here, "no effect: " + key.reason);
    else
      report(Severity::Unsupported, here, json_brief(value) + " is not supported by this engine",
             key.reason);
  }

  Checked& out_;
  std::map<std::string, std::string> types_;
  int unknown_ = 0;
};

}  // namespace

const json* Checked::find(const std::string& path) const {
  const json* at = &config;
  for (size_t begin = 0;;) {
    const size_t dot = path.find('.', begin);
    const auto found = at->find(path.substr(begin, dot - begin));
    if (found == at->end()) return nullptr;
    at = &*found;
    if (dot == std::string::npos) return at;
    if (!at->is_object()) return nullptr;
    begin = dot + 1;
  }
}

const std::string& Checked::written_path(const std::string& path) const {
  const auto found = written.find(path);
  return found == written.end() ? path : found->second;
}

Checked check(const json& ds_config) {
  Checked checked;
  Checker(checked).run(ds_config);
  return checked;
}

void make_strict(std::vector<Finding>& findings) {
  for (Finding& finding : findings)
    if (finding.message == kUnknownKey) finding.severity = Severity::Error;
}

}  // namespace dsj::dsconfig
