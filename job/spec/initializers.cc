#include "job/spec/initializers.h"

#include <algorithm>
#include <filesystem>

#include "common/json.h"
#include "job/spec/container_mounts.h"
#include "job/spec/field_reader.h"
#include "job/spec/user_program.h"

namespace dsj::jobspec {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Severity = FieldReader::Severity;

constexpr char kInitializersPath[] = "spec.initializers";
constexpr char kPrefix[] = "initialize-";
/// In the order in which they run.
constexpr const char* kNames[] = {"model", "dataset"};
constexpr const char* kOurs[] = {"STORAGE_URI", "TARGET", "STAGING", "MARKER"};

/// `path`/../.<name>`end`
std::string beside(const std::string& path, const std::string& end) {
  const fs::path target(path);
  return (target.parent_path() / ("." + target.filename().string() + end)).string();
}

/// A variable whose value the kubelet does not expand: it would replace $(NAME), and $$ by $.
json variable(const char* name, const std::string& value) {
  std::string text;
  for (const char c : value) text += c == '$' ? "$$" : std::string(1, c);
  return {{"name", name}, {"value", text}};
}

class Reader {
 public:
  Reader(const InitializersInput& in, FieldReader& reader) : in_(in), reader_(reader) {}

  /// Null if there is an error, or if no container is needed.
  json container(const std::string& name, const json& object, const json& worker_template) {
    at_ = std::string(kInitializersPath) + "." + name;
    json made = {{"name", kPrefix + name}};
    if (object.contains("image")) made["image"] = json_text(object, "image");
    const std::string uri = json_text(object, "storageUri");
    no_credentials(uri);
    for (const char* list : {"command", "args"})
      if (const json& words = json_child(object, list); !words.is_null()) made[list] = words;
    made["env"] = environment(json_child(object, "env"));
    if (const std::string secret = json_text(json_child(object, "secretRef"), "name");
        !secret.empty())
      made["envFrom"] = json::array({{{"secretRef", {{"name", secret}}}}});
    if (const json& resources = json_child(object, "resources"); !resources.is_null()) {
      made["resources"] = resources;
    } else if (json same = worker_resources(worker_template); !same.empty()) {
      made["resources"] = std::move(same);
    }
    if (!in_.in_cluster) return nullptr;
    const std::string target = where(name);
    if (target.empty() || !mounts(target, worker_template, made)) return nullptr;
    json ours = json::array({variable("STORAGE_URI", uri), variable("TARGET", target),
                             variable("MARKER", beside(target, ".source"))});
    for (json& entry : made["env"]) ours.push_back(std::move(entry));
    made["env"] = std::move(ours);
    // The last lines of its log become the last words of the failure.
    made["terminationMessagePolicy"] = "FallbackToLogsOnError";
    return reader_.is_wrong(at_) ? json() : made;
  }

 private:
  void error(const std::string& path, std::string message, std::string hint = {}) {
    reader_.report(Severity::Error, path, std::move(message), std::move(hint));
  }

  /// Reports credentials: everyone who may read the job can read this field.
  void no_credentials(const std::string& uri) {
    const size_t scheme = uri.find("://");
    if (scheme == std::string::npos) return;
    const std::string host = uri.substr(scheme + 3, uri.find('/', scheme + 3) - scheme - 3);
    const size_t at = host.find('@');
    if (at != std::string::npos && host.substr(0, at).contains(':'))
      error(at_ + ".storageUri", "the address contains a password",
            "put it into the Secret of secretRef");
  }

  json environment(const json& entries) {
    json env = json::array();
    for (size_t i = 0; entries.is_array() && i < entries.size(); ++i) {
      if (!entries[i].is_object()) continue;
      const std::string name = json_text(entries[i], "name");
      const bool ours = std::ranges::any_of(kOurs, [&](const char* one) { return name == one; });
      if (ours || name.starts_with("DSJ_"))
        error(at_ + ".env[" + std::to_string(i) + "].name",
              "\"" + name + "\" is set by the operator", "remove it");
      env.push_back(entries[i]);
    }
    // The root file system is read-only, and /tmp is a volume.
    const bool home = std::ranges::any_of(
        env, [](const json& entry) { return json_text(entry, "name") == "HOME"; });
    if (!home) env.push_back({{"name", "HOME"}, {"value", "/tmp"}});
    return env;
  }

  std::string where(const std::string& name) {
    const std::string target = normal_path(initializer_target(name, in_.training));
    const std::string field =
        name == "model" ? "spec.training.modelNameOrPath" : "spec.training.dataPath";
    if (target.starts_with("/") && target != "/") return target;
    error(at_, field + " does not say where to put it",
          "give an absolute path in the container, on a volume of spec.workers.template");
    return {};
  }

  bool mounts(const std::string& target, const json& worker_template, json& made) {
    const Mounted on = mounted(worker_template, target);
    if (!on.mount) {
      if (in_.in_part) return true;
      error(at_, target + " is on no volume of the container \"worker\"",
            "mount one in spec.workers.template, at a directory above it");
      return false;
    }
    const json& mount = *on.mount;
    const std::string name = json_text(mount, "name");
    if (normal_path(json_text(mount, "mountPath")) == target) {
      error(
          at_,
          target + " is where the volume \"" + name + "\" is mounted: nothing can be renamed to it",
          "name a directory or file on the volume, such as " + target + "/" +
              made["name"].get<std::string>());
      return false;
    }
    if (on.volume && !unwritable(*on.volume).empty()) {
      error(at_, target + " is on the volume \"" + name + "\", which cannot be written",
            "mount a claim");
      return false;
    }
    if (mount.contains("subPathExpr")) {
      error(at_,
            target + " is on a mount with subPathExpr, which depends on the worker's variables",
            "use subPath");
      return false;
    }
    json own = mount;  // ranks may mount it read-only
    own.erase("readOnly");
    own.erase("recursiveReadOnly");
    made["volumeMounts"] = json::array({std::move(own)});
    return true;
  }

  const InitializersInput& in_;
  FieldReader& reader_;
  std::string at_;
};

void refuse_taken_names(const json& worker_template, FieldReader& reader) {
  for (const json& container : json_child(json_child(worker_template, "spec"), "initContainers")) {
    const std::string name = json_text(container, "name");
    if (initializer_of(name).empty()) continue;
    reader.report(Severity::Error, "spec.workers.template.spec.initContainers[" + name + "]",
                  "the name is that of one of spec.initializers", "give it another name");
  }
}

}  // namespace

std::string initializer_of(const std::string& container_name) {
  for (const char* name : kNames) {
    if (container_name == std::string(kPrefix) + name) return name;
  }
  return {};
}

bool fetched_by_every_pod(const json& worker_template, const std::string& target) {
  const Mounted on = mounted(worker_template, normal_path(target));
  return on.volume && is_of_pod_or_node(*on.volume);
}

std::string initializer_target(const std::string& name, const TrainingArgs& training) {
  if (name == "model") return training.model_name_or_path;
  return name == "dataset" ? training.data_path : "";
}

std::string staging_path(const std::string& target, int worker) {
  return beside(normal_path(target), ".staging-" + std::to_string(worker));
}

void read_initializers(const json& spec, const InitializersInput& in, json& worker_template,
                       FieldReader& reader) {
  refuse_taken_names(worker_template, reader);
  json made = json::array();
  for (const char* name : kNames) {
    const json& one = json_child(json_child(spec, "initializers"), name);
    if (!one.is_object()) continue;
    json container = Reader(in, reader).container(name, one, worker_template);
    if (!container.is_null()) made.push_back(std::move(container));
  }
  const bool fits = worker_template.is_null() || worker_template.is_object();
  if (made.empty() || !fits ||
      !(json_child(worker_template, "spec").is_null() ||
        json_child(worker_template, "spec").is_object()))
    return;
  json& inits = worker_template["spec"]["initContainers"];
  if (!inits.is_array()) inits = json::array();
  for (json& container : made) inits.push_back(std::move(container));
}

}  // namespace dsj::jobspec
