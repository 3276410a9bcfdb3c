#include "job/dsconfig/read/source.h"

#include <algorithm>

#include "common/check.h"
#include "common/text.h"

namespace dsj::dsconfig {

using nlohmann::json;
using Severity = Finding::Severity;

// ---- reading ------------------------------------------------------------------------------------

const json* Source::literal(const std::string& path) const {
  const json* value = checked.find(path);
  return value == nullptr || *value == "auto" ? nullptr : value;
}

bool Source::is_auto(const std::string& path) const {
  const json* value = checked.find(path);
  return value != nullptr && *value == "auto";
}

const json& Source::default_of(const std::string& path) {
  const Key* key = find_key(path);
  DSJ_CHECK(key != nullptr && !key->fallback.is_null(), "%s", path.c_str());
  return key->fallback;
}

// ---- writing ------------------------------------------------------------------------------------

void Report::finding(Severity severity, const std::string& path, std::string message,
                     std::string hint) {
  out_.findings.push_back(
      {severity, source_.checked.written_path(path), std::move(message), std::move(hint)});
}

void Report::mismatch(const std::string& path, const std::string& here,
                      const std::string& argument_path, const std::string& there) {
  error(path, "ds_config says " + here + ", " + argument_path + " says " + there,
        "make them equal, or write \"auto\" in ds_config");
  out_.findings.back().other = argument_path;
}

void Report::absent(Note note, std::string message, std::string hint) {
  if (source_.alone) {
    out_.notes.push_back(std::move(note));
  } else {
    error(note.path, std::move(message), std::move(hint));
  }
}

void Report::origin(const std::string& path, const std::string& value, const std::string& from) {
  out_.origins.push_back({source_.checked.written_path(path), value, from});
}

bool Report::has_error(const std::string& path) const {
  return std::ranges::any_of(out_.findings, [&](const Finding& finding) {
    return finding.severity == Severity::Error && finding.path == path;
  });
}

// ---- both ---------------------------------------------------------------------------------------

double matched(const Source& in, Report& out, const std::string& path, const Argument& argument,
               std::optional<double> deepspeed) {
  const std::string argument_path = std::string("training.") + argument.name;
  if (const json* value = in.literal(path)) {
    const double found = value->get<double>();
    if (argument.value && *argument.value != found)
      out.mismatch(path, text::number(found), argument_path, text::number(*argument.value));
    return found;
  }
  if (argument.value) {
    out.origin(path, text::number(*argument.value), argument_path);
    return *argument.value;
  }
  if (in.is_auto(path)) {
    out.origin(path, text::number(argument.hugging_face), kHuggingFaceDefault);
    return argument.hugging_face;
  }
  const double fallback = deepspeed ? *deepspeed : Source::default_of(path).get<double>();
  std::string from = kDeepSpeedDefault;
  if (const Key* key = find_key(path); key != nullptr && !key->fallback_013.is_null())
    from += "; in 0.13: " + key->fallback_013.dump();
  out.origin(path, text::number(fallback), from);
  return fallback;
}

namespace {

bool acts_at(const Key& key, int64_t stage) {
  return key.stages.empty() || key.stages.find(std::to_string(stage)) != std::string::npos;
}

void write(const Field& field, const json& value) {
  std::visit([&](auto* to) { *to = value.get<std::remove_pointer_t<decltype(to)>>(); }, field);
}

}  // namespace

void read_fields(const Source& in, ResolvedConfig& config) {
  for (const Key& key : all_keys()) {
    if (key.field == nullptr) continue;
    if (const json* value = in.literal(key.path)) write(key.field(config), *value);
  }
}

void apply_hidden_size(const Source& in, ResolvedConfig& config, Report& out) {
  for (const Key& key : all_keys()) {
    if (key.of_hidden_size == nullptr || !in.is_auto(key.path)) continue;
    if (!acts_at(key, config.zero.stage)) continue;
    if (!in.facts.hidden_size) {
      out.incomplete();
      continue;
    }
    const int64_t value = key.of_hidden_size(*in.facts.hidden_size);
    out.origin(key.path, std::to_string(value), key.auto_rule);
    write(key.field(config), value);
  }
}

}  // namespace dsj::dsconfig
