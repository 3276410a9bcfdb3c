// The fields of a DeepSpeedJob manifest, one method per object. Everything wrong is a finding.
#include <algorithm>
#include <filesystem>

#include "common/jobspec/job.h"
#include "common/jobspec/overrides.h"
#include "common/text.h"

namespace dsj::jobspec {
namespace {

namespace fs = std::filesystem;
using dsconfig::Finding;
using nlohmann::json;
using Severity = Finding::Severity;

constexpr int kMaxRanks = 65'536;

class ManifestReader {
 public:
  ManifestReader(const std::string& base, Job& job) : base_(base), job_(job) {}

  void read(const json& manifest, const std::vector<Override>& config_overrides) {
    fields(manifest, "", {"apiVersion", "kind", "metadata", "spec", "status"});
    expect_word(manifest, "apiVersion", kApiVersion);
    expect_word(manifest, "kind", kKind);
    if (const json* data = object(manifest, "metadata", "metadata")) metadata(*data);
    const json* spec = object(manifest, "spec", "spec");
    if (spec == nullptr) {
      if (!manifest.contains("spec")) report(Severity::Error, "spec", "a field is missing");
      return;
    }
    fields(*spec, "spec",
           {"deepspeed", "training", "workers", "launcher", "restartPolicy", "backoffLimit",
            "suspend", "parallelism", "model", "elasticPolicy", "runPolicy", "failurePolicy",
            "liveness", "checkpoint", "network"});
    not_built(*spec);
    training(*spec);
    workers(*spec);
    policies(*spec);
    deepspeed(*spec, config_overrides);
  }

 private:
  void report(Severity severity, const std::string& path, std::string message,
              std::string hint = {}) {
    job_.findings.push_back({severity, path, std::move(message), std::move(hint)});
  }

  static std::string join(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
  }
  static std::string shown(const json& value) {
    std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    return text.size() > 60 ? text.substr(0, 57) + "..." : text;
  }

  void fields(const json& object, const std::string& path, const std::vector<std::string>& known) {
    for (const auto& [name, value] : object.items())
      if (std::find(known.begin(), known.end(), name) == known.end())
        report(Severity::Error, join(path, name), "\"" + name + "\" is not a field",
               text::did_you_mean(name, known));
  }

  /// The child when it is there and an object; reports another type.
  const json* object(const json& parent, const char* name, const std::string& path) {
    const auto found = parent.find(name);
    if (found == parent.end() || found->is_null()) return nullptr;
    if (found->is_object()) return &*found;
    report(Severity::Error, path, "found " + shown(*found) + ", expected an object");
    return nullptr;
  }

  void expect_word(const json& object, const char* name, const char* word) {
    const auto found = object.find(name);
    if (found == object.end())
      report(Severity::Error, name, "a field is missing", std::string("add ") + name + ": " + word);
    else if (*found != word)
      report(Severity::Error, name, "found " + shown(*found) + ", expected " + word);
  }

  void whole(const json& object, const std::string& path, const char* name, int least, int& field) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null()) return;
    if (!found->is_number_integer() || found->get<int64_t>() < least ||
        found->get<int64_t>() > kMaxRanks) {
      report(Severity::Error, join(path, name),
             "found " + shown(*found) + ", expected a whole number from " + std::to_string(least) +
                 " to " + std::to_string(kMaxRanks));
      return;
    }
    field = static_cast<int>(found->get<int64_t>());
  }

  void metadata(const json& data) {
    fields(
        data, "metadata",
        {"name", "namespace", "labels", "annotations", "generateName", "uid", "generation",
         "resourceVersion", "creationTimestamp", "managedFields", "finalizers", "ownerReferences"});
    const auto name = data.find("name");
    if (name == data.end() || !name->is_string()) {
      report(Severity::Error, "metadata.name", "a name is missing", "add name: my-job");
      return;
    }
    job_.name = name->get<std::string>();
    const std::string& n = job_.name;
    const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
    const bool good = !n.empty() && n.size() <= 40 && is_lower(n[0]) && n.back() != '-' &&
                      std::all_of(n.begin(), n.end(), [&](char c) {
                        return is_lower(c) || (c >= '0' && c <= '9') || c == '-';
                      });
    if (!good)
      report(Severity::Error, "metadata.name",
             "found " + shown(n) + ", expected at most 40 of a-z, 0-9 and -, a letter first");
  }

  void not_built(const json& spec) {
    for (const char* name : {"elasticPolicy", "runPolicy", "failurePolicy", "liveness",
                             "checkpoint", "network", "model"})
      if (spec.contains(name) && !spec[name].is_null() && !spec[name].empty())
        report(Severity::Unsupported, join("spec", name), "not built in this version", "remove it");
    if (spec.contains("suspend") && spec["suspend"] != false && !spec["suspend"].is_null())
      report(Severity::Unsupported, "spec.suspend", "not built in this version", "remove it");
    if (const json* parallelism = object(spec, "parallelism", "spec.parallelism")) {
      fields(*parallelism, "spec.parallelism", {"tensor", "pipeline", "sequence", "expert"});
      for (const auto& [name, value] : parallelism->items())
        if (value != 1)
          report(Severity::Unsupported, join("spec.parallelism", name),
                 shown(value) + ": only data parallelism is built", "write 1, or remove it");
    }
  }

  /// Relative to the manifest; what is not there and has no ./ may be a hub id and stays.
  std::string absolute(const std::string& path) const {
    if (path.empty()) return path;
    return fs::absolute(fs::path(base_) / path).lexically_normal().string();
  }
  std::string model_path(const std::string& name) const {
    std::error_code ignored;
    const std::string path = absolute(name);
    const bool is_path =
        name.starts_with(".") || name.starts_with("/") || fs::exists(path, ignored);
    return is_path ? path : name;
  }

  void training(const json& spec) {
    const std::string path = "spec.training";
    json good = json::object();
    if (const json* object_found = object(spec, "training", path)) {
      for (const auto& [name, value] : object_found->items()) {
        const auto one = training_args_from_json({{name, value}}, path);
        if (one)
          good[name] = value;
        else
          report(Severity::Error, one.error().where, one.error().message, one.error().hint);
      }
    }
    auto args = training_args_from_json(good, path);
    if (!args) {
      report(Severity::Error, args.error().where, args.error().message, args.error().hint);
      return;
    }
    job_.training = std::move(*args);
    TrainingArgs& training = job_.training;
    if (training.model_name_or_path.empty())
      report(Severity::Error, path + ".modelNameOrPath", "a field is missing",
             "name a Hugging Face model directory");
    if (training.data_path.empty())
      report(Severity::Error, path + ".dataPath", "a field is missing",
             "name an alpaca JSON or JSONL file");
    training.model_name_or_path = model_path(training.model_name_or_path);
    training.data_path = absolute(training.data_path);
    if (training.eval_data_path) training.eval_data_path = absolute(*training.eval_data_path);
    training.output_dir = absolute(training.output_dir);
    resume(path + ".resumeFromCheckpoint");
  }

  void resume(const std::string& path) {
    auto& from = job_.training.resume_from_checkpoint;
    if (!from) return;
    const auto word = text::parse_bool(*from);
    if (word == true) {
      from.reset();
      report(Severity::Warning, path, "no effect: the newest checkpoint is always taken");
    } else if (word == false) {
      from.reset();
      report(Severity::Unsupported, path, "a run always goes on from the checkpoints in outputDir",
             "name an empty outputDir to start over");
    } else {
      from = absolute(*from);
    }
  }

  void workers(const json& spec) {
    const std::string path = "spec.workers";
    const json* found = object(spec, "workers", path);
    if (found == nullptr) return;
    fields(*found, path, {"replicas", "slotsPerWorker", "minReplicas", "maxReplicas", "template"});
    whole(*found, path, "replicas", 1, job_.replicas);
    whole(*found, path, "slotsPerWorker", 1, job_.slots_per_worker);
    if (static_cast<int64_t>(job_.replicas) * job_.slots_per_worker > kMaxRanks) {
      report(Severity::Error, path, "more than " + std::to_string(kMaxRanks) + " ranks");
      job_.replicas = job_.slots_per_worker = 1;
    }
    int least = job_.replicas, most = job_.replicas;
    whole(*found, path, "minReplicas", 1, least);
    whole(*found, path, "maxReplicas", 1, most);
    if (found->contains("minReplicas")) job_.min_replicas = least;
    if (found->contains("maxReplicas")) job_.max_replicas = most;
    if (least > job_.replicas || most < job_.replicas)
      report(Severity::Error, path,
             "minReplicas " + std::to_string(least) + ", replicas " +
                 std::to_string(job_.replicas) + ", maxReplicas " + std::to_string(most) +
                 ": not in this order");
    else if (least != most)
      report(Severity::Unsupported, path, "elastic jobs are not built in this version",
             "remove minReplicas and maxReplicas");
    if (const json* pod = object(*found, "template", path + ".template"))
      job_.worker_template = *pod;
  }

  void choice(const json& spec, const char* name, const std::vector<std::string>& choices,
              std::string& field) {
    const auto found = spec.find(name);
    if (found == spec.end() || found->is_null()) return;
    const std::string word = found->is_string() ? found->get<std::string>() : "";
    if (std::find(choices.begin(), choices.end(), word) != choices.end()) {
      field = word;
      return;
    }
    std::string expected;
    for (const std::string& one : choices) expected += (expected.empty() ? "" : " or ") + one;
    report(Severity::Error, join("spec", name), "found " + shown(*found) + ", expected " + expected,
           text::did_you_mean(word, choices));
  }

  void policies(const json& spec) {
    choice(spec, "launcher", {"Native", "Command"}, job_.launcher);
    if (job_.launcher == "Command")
      report(Severity::Unsupported, "spec.launcher", "Command is not built in this version",
             "Native trains by this engine");
    choice(spec, "restartPolicy", {"OnFailure", "Never"}, job_.restart_policy);
    whole(spec, "spec", "backoffLimit", 0, job_.backoff_limit);
  }

  void deepspeed(const json& spec, const std::vector<Override>& config_overrides) {
    const std::string path = "spec.deepspeed";
    const json* found = object(spec, "deepspeed", path);
    if (found == nullptr) {
      report(Severity::Error, path, "a field is missing",
             "add config: (the ds_config itself) or configFrom: {file: ds_config.json}");
      return;
    }
    fields(*found, path, {"config", "configFrom"});
    const json* config = object(*found, "config", path + ".config");
    const json* from = object(*found, "configFrom", path + ".configFrom");
    if ((config == nullptr) == (from == nullptr)) {
      report(Severity::Error, path,
             config ? "config and configFrom are both given"
                    : "neither config nor configFrom is given",
             "give exactly one");
      return;
    }
    if (config != nullptr) {
      job_.ds_config = *config;
      job_.ds_config_inline = true;
      job_.ds_config_source = job_.source;
    } else {
      config_from(*from, path + ".configFrom");
    }
    for (const Override& change : config_overrides)
      if (auto status = apply(change, 3, job_.ds_config); !status)
        report(Severity::Error, path + ".config", status.error().to_string());
  }

  void config_from(const json& from, const std::string& path) {
    fields(from, path, {"file", "configMapKeyRef"});
    const auto file = from.find("file");
    if (file == from.end() || !file->is_string()) {
      report(Severity::Error, path, "no file is named",
             "write file: ds_config.json; a ConfigMap is read in a cluster only");
      return;
    }
    auto document = dsconfig::read_file(absolute(file->get<std::string>()));
    if (!document) {
      report(Severity::Error, path + ".file", document.error().to_string());
      return;
    }
    job_.ds_config_source = document->source;
    job_.ds_positions = std::move(document->positions);
    job_.ds_config = std::move(document->value);
    if (!job_.ds_config.is_object()) {
      report(Severity::Error, path + ".file", "the file does not hold an object of settings");
      job_.ds_config = json::object();
    }
  }

  std::string base_;
  Job& job_;
};

}  // namespace

Result<Job> read_manifest(const dsconfig::Document& manifest, const std::string& base,
                          const std::vector<std::string>& overrides) {
  if (!manifest.value.is_object())
    return bad_input("expected a DeepSpeedJob with apiVersion, kind, metadata and spec",
                     manifest.source);
  json value = manifest.value;
  std::vector<Override> config_overrides;
  const auto from = nlohmann::json::json_pointer("/spec/deepspeed/configFrom");
  for (const std::string& text : overrides) {
    DSJ_TRY(Override change, parse_override(text));
    const bool in_config = change.path.size() > 3 && change.path[0] == "spec" &&
                           change.path[1] == "deepspeed" && change.path[2] == "config";
    if (in_config && value.contains(from)) {
      config_overrides.push_back(std::move(change));
      continue;
    }
    DSJ_TRY_STATUS(apply(change, 0, value));
  }
  Job job;
  job.source = manifest.source;
  job.positions = manifest.positions;
  ManifestReader(base, job).read(value, config_overrides);
  dsconfig::locate(job.findings, job.positions);
  return job;
}

}  // namespace dsj::jobspec
