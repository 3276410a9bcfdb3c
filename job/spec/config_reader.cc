#include "job/spec/config_reader.h"

#include "common/home_path.h"
#include "common/json.h"
#include "job/spec/field_reader.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;

class ConfigReader : private FieldReader {
 public:
  ConfigReader(const Origin& origin, Job& job)
      : FieldReader(job.findings), origin_(origin), job_(job) {}

  void read(const json& spec, const std::vector<Override>& config_overrides) {
    const std::string path = "spec.deepspeed";
    const json& found = json_child(spec, "deepspeed");
    if (found.is_null() && !job_.runs_user_program())
      report(Severity::Error, path, "a field is missing",
             "add config: (the ds_config itself) or configFrom: {file: ds_config.json}");
    if (!found.is_object()) return;
    const json& config = json_child(found, "config");
    const json& from = json_child(found, "configFrom");
    if (is_wrong(path + ".config") || is_wrong(path + ".configFrom")) return;  // reported already
    if (config.is_object() == from.is_object()) {
      report(Severity::Error, path,
             config.is_object() ? "config and configFrom are both given"
                                : "neither config nor configFrom is given",
             "give exactly one");
      return;
    }
    if (config.is_object()) {
      job_.ds_config = config;
      job_.ds_config_inline = true;
      job_.ds_config_source = job_.source;
    } else {
      config_from(from, path + ".configFrom");
    }
    for (const Override& change : config_overrides)
      if (auto status = apply(change, 3, job_.ds_config); !status)
        report(Severity::Error, path + ".config", status.error().to_string());
  }

 private:
  void config_map(const json& from, const std::string& path) {
    if (from.contains("file"))
      report(Severity::Error, path + ".file", "files of your machine are not read in a cluster",
             "write the settings under spec.deepspeed.config, or name a ConfigMap");
    const json& ref = json_child(from, "configMapKeyRef");
    if (ref.is_null() && !from.contains("file"))
      report(Severity::Error, path, "no ConfigMap is named", "configMapKeyRef: {name, key}");
    const ConfigMapKey source{json_text(ref, "name"), json_text(ref, "key")};
    if (!source.name.empty() && !source.key.empty()) job_.ds_config_map = source;
  }

  void config_from(const json& from, const std::string& path) {
    if (origin_.in_cluster()) return config_map(from, path);
    const auto file = from.find("file");
    if (file == from.end() || !file->is_string()) {
      report(Severity::Error, path, "no file is named",
             "write file: ds_config.json; a ConfigMap is read in a cluster only");
      return;
    }
    if (const auto wrong = home_path(file->get_ref<const std::string&>()))
      return report(Severity::Error, path + ".file", wrong->message, wrong->hint);
    auto document = dsconfig::read_file(origin_.absolute(file->get<std::string>()));
    if (!document) {
      report(Severity::Error, path + ".file", document.error().to_string());
      return;
    }
    job_.ds_config_source = document->source;
    job_.ds_positions = std::move(document->positions);
    job_.ds_config = std::move(document->value);
    if (!job_.ds_config.is_object()) {
      report(Severity::Error, path + ".file", "the file does not contain an object of settings");
      job_.ds_config = json::object();
    }
  }

  const Origin& origin_;
  Job& job_;
};

}  // namespace

void read_ds_config(const json& spec, const std::vector<Override>& overrides, const Origin& origin,
                    Job& job) {
  ConfigReader(origin, job).read(spec, overrides);
}

Status set_ds_config(Job& job, const std::string& text, const std::string& source) {
  DSJ_TRY(dsconfig::Document document, dsconfig::parse_text(text, source));
  if (!document.value.is_object()) return bad_input("expected an object of settings", source);
  job.ds_config_source = document.source;
  job.ds_positions = std::move(document.positions);
  job.ds_config = std::move(document.value);
  return {};
}

}  // namespace dsj::jobspec
