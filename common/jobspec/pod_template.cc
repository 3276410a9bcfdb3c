// spec.workers.template: what the operator needs of it and what it sets itself.
#include "common/jobspec/field_reader.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
using Severity = FieldReader::Severity;

constexpr char kContainer[] = "worker";  // contract.h's kContainerName

void check_environment(const json& container, const std::string& path, FieldReader& reader) {
  const auto env = container.find("env");
  if (env == container.end() || !env->is_array()) return;
  for (const json& variable : *env) {
    const std::string name = variable.is_object() ? variable.value("name", "") : "";
    if (name.starts_with("DSJ_"))
      reader.report(Severity::Error, path + ".env", "\"" + name + "\" is set by the operator",
                    "remove it");
  }
}

}  // namespace

void check_template(const json& pod, const std::string& path, FieldReader& reader) {
  const json* spec = reader.object(pod, "spec", path + ".spec");
  if (spec == nullptr) return;
  for (const char* name : {"hostname", "subdomain", "nodeName"})
    if (spec->contains(name))
      reader.report(Severity::Error, path + ".spec." + name, "set by the operator", "remove it");
  if (spec->contains("restartPolicy") && (*spec)["restartPolicy"] != "Never")
    reader.report(Severity::Error, path + ".spec.restartPolicy",
                  "found " + FieldReader::shown((*spec)["restartPolicy"]) + ", expected Never",
                  "the job restarts its ranks; spec.restartPolicy says whether");
  const auto containers = spec->find("containers");
  if (containers == spec->end()) return;
  const std::string at = path + ".spec.containers";
  int ours = 0;
  if (containers->is_array()) {
    for (const json& container : *containers) {
      if (!container.is_object() || container.value("name", json()) != kContainer) continue;
      ++ours;
      check_environment(container, at + "[" + kContainer + "]", reader);
    }
  }
  if (ours != 1)
    reader.report(Severity::Error, at, "no container named \"" + std::string(kContainer) + "\"",
                  "name the container that runs the ranks \"worker\", once");
}

}  // namespace dsj::jobspec
