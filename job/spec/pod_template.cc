// spec.workers.template: the parts that the operator needs, and those that it sets itself.
#include <algorithm>
#include <initializer_list>

#include "common/json.h"
#include "job/contract.h"
#include "job/join_keys.h"
#include "job/spec/field_reader.h"
#include "job/spec/worker_template.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
using Severity = FieldReader::Severity;

constexpr auto& kContainer = contract::kContainerName;

enum class Shape { Object, List, Objects, Text, Texts };

bool fits(const json& value, Shape shape) {
  auto all = [&](auto&& good) { return std::all_of(value.begin(), value.end(), good); };
  switch (shape) {
    case Shape::Object:
      return value.is_object();
    case Shape::List:
      return value.is_array();
    case Shape::Objects:
      return value.is_array() && all([](const json& item) { return item.is_object(); });
    case Shape::Text:
      return value.is_string();
    case Shape::Texts:
      return value.is_object() && all([](const json& item) { return item.is_string(); });
  }
  return false;
}

const char* name_of(Shape shape) {
  static constexpr const char* kNames[] = {"an object", "a list", "a list of objects", "a string",
                                           "an object of strings"};
  return kNames[static_cast<int>(shape)];
}

struct Part {
  const char* name;
  Shape shape;
};

/// Checks the parts of an object that the operator adds to or reads; the API server checks the
/// rest. False if one has another type.
bool shapes(const json& object, const std::string& path, std::initializer_list<Part> parts,
            FieldReader& reader) {
  bool good = true;
  for (const auto& [name, shape] : parts) {
    const auto found = object.find(name);
    if (found == object.end() || found->is_null() || fits(*found, shape)) continue;
    reader.report(Severity::Error, FieldReader::join(path, name),
                  "found " + FieldReader::shown(*found) + ", expected " + name_of(shape));
    good = false;
  }
  return good;
}

/// Checks that every element of the list has a text `name`.
bool named(const json& object, const char* list, const char* name, const std::string& path,
           FieldReader& reader) {
  const auto found = object.find(list);
  if (found == object.end() || found->is_null()) return true;
  for (const json& item : *found) {
    if (item.contains(name) && item[name].is_string()) continue;
    reader.report(Severity::Error, FieldReader::join(path, list),
                  "found " + FieldReader::shown(item) + ", expected a " + name);
    return false;
  }
  return true;
}

/// Follows a chain of nested objects. Null if it ends early or an object has another type.
const json* chain(const json& object, std::initializer_list<const char*> names, std::string path,
                  FieldReader& reader) {
  const json* at = &object;
  for (const char* name : names) {
    path += std::string(".") + name;
    at = reader.object(*at, name, path);
    if (at == nullptr) return nullptr;
  }
  return at;
}

void check_affinity(const json& spec, const std::string& path, FieldReader& reader) {
  static constexpr char kRequired[] = "requiredDuringSchedulingIgnoredDuringExecution";
  static constexpr char kPreferred[] = "preferredDuringSchedulingIgnoredDuringExecution";
  if (const json* near = chain(spec, {"affinity", "podAffinity"}, path, reader))
    shapes(*near, path + ".affinity.podAffinity",
           {{kRequired, Shape::Objects}, {kPreferred, Shape::Objects}}, reader);
  const json* required = chain(spec, {"affinity", "nodeAffinity", kRequired}, path, reader);
  if (required == nullptr) return;
  const std::string at = path + ".affinity.nodeAffinity." + kRequired;
  if (!shapes(*required, at, {{"nodeSelectorTerms", Shape::Objects}}, reader)) return;
  for (const json& term : required->value("nodeSelectorTerms", json::array()))
    shapes(term, at + ".nodeSelectorTerms",
           {{"matchExpressions", Shape::List}, {"matchFields", Shape::List}}, reader);
}

/// A pod on the node's network uses the node's DNS by default, which does not resolve Services.
void check_host_network(const json& spec, const std::string& path, FieldReader& reader) {
  const auto on = spec.find("hostNetwork");
  const auto policy = spec.find("dnsPolicy");
  if (on == spec.end() || *on != true || policy == spec.end()) return;
  if (*policy == "ClusterFirstWithHostNet" || *policy == "None") return;
  reader.report(Severity::Error, path + ".dnsPolicy",
                "found " + FieldReader::shown(*policy) +
                    " with hostNetwork, expected ClusterFirstWithHostNet",
                "with another policy the workers do not find worker 0: remove it");
}

bool is_true(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && *found == true;
}

const json& context_of(const json& object) {
  static const json kNone = json::object();
  const auto found = object.find("securityContext");
  return found != object.end() && found->is_object() ? *found : kNone;
}

/// Reports contradictions in the template for which a kubelet or the API server would later refuse the pod.
void check_security(const json& spec, const std::string& path, FieldReader& reader) {
  const json& pod = context_of(spec);
  for (const char* list : {"containers", "initContainers"}) {
    const auto found = spec.find(list);
    if (found == spec.end() || !found->is_array()) continue;
    for (const json& container : *found) {
      const json& own = context_of(container);
      const std::string name = container.contains("name") && container["name"].is_string()
                                   ? container["name"].get<std::string>()
                                   : "?";
      const std::string at = path + "." + list + "[" + name + "].securityContext";
      const bool user_here = own.contains("runAsUser"), rule_here = own.contains("runAsNonRoot");
      const json& user = user_here ? own : pod;
      if (user.contains("runAsUser") && user["runAsUser"] == 0 &&
          is_true(rule_here ? own : pod, "runAsNonRoot"))
        reader.report(Severity::Error, (user_here ? at : path + ".securityContext") + ".runAsUser",
                      "found 0, and " + (rule_here ? at : path + ".securityContext") +
                          ".runAsNonRoot is true",
                      "remove one of the two");
      const auto added = own.find("capabilities");
      const bool admin = added != own.end() && added->is_object() && added->contains("add") &&
                         (*added)["add"].is_array() &&
                         std::ranges::count((*added)["add"], json("CAP_SYS_ADMIN")) > 0;
      const char* gains = is_true(own, "privileged") ? ".privileged is true"
                          : admin                    ? ".capabilities adds CAP_SYS_ADMIN"
                                                     : nullptr;
      if (gains && own.contains("allowPrivilegeEscalation") &&
          own["allowPrivilegeEscalation"] == false)
        reader.report(Severity::Error, at + ".allowPrivilegeEscalation",
                      "found false, and " + at + gains, "remove one of the two");
    }
  }
}

/// "/tmp//a/" as "/tmp/a".
std::string plain_path(const std::string& path) {
  std::string plain;
  for (const char c : path)
    if (c != '/' || plain.empty() || plain.back() != '/') plain += c;
  if (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  return plain;
}

/// Reports mounts over the paths where the agent finds the operator's mounts.
void check_mounts(const json& container, const std::string& path, FieldReader& reader) {
  const auto mounts = container.find("volumeMounts");
  if (mounts == container.end()) return;
  for (const json& mount : *mounts) {
    const std::string place = plain_path(mount["mountPath"]);
    for (const std::string ours :
         {contract::kConfigMountPath, contract::kTokenMountPath, contract::kScratchMountPath,
          contract::kAgentMountPath, kJoinKeyMountPath})
      if (place == ours || place.starts_with(ours + "/"))
        reader.report(Severity::Error, path + ".volumeMounts",
                      FieldReader::shown(mount["mountPath"]) + ": the operator mounts " + ours,
                      "mount it elsewhere");
  }
}

/// Reports names that the operator uses for its own entries.
void check_names(const json& spec, const std::string& path, FieldReader& reader) {
  static constexpr const char* kVolumes[] = {"dsj-config", "dsj-token",   "dsj-scratch",
                                             "dsj-tmp",    "dsj-shm",     "dsj-keys",
                                             "dsj-agent",  "dsj-no-token"};
  for (const char* list : {"volumes", "containers", "initContainers"}) {
    const auto found = spec.find(list);
    if (found == spec.end() || !found->is_array()) continue;
    for (const json& one : *found) {
      const auto name = one.find("name");
      if (name == one.end()) continue;
      const bool taken =
          list == std::string("volumes")
              ? std::ranges::any_of(kVolumes, [&](auto ours) { return *name == ours; })
              : *name == "dsj-agent";
      if (taken)
        reader.report(Severity::Error, FieldReader::join(path, list),
                      FieldReader::shown(*name) + " is the name of one of the operator's",
                      "give it another name");
    }
  }
}

/// Refuses restart policies of a container: they would restart the agent in a pod that counts as ended.
void check_life(const json& container, const std::string& path, FieldReader& reader) {
  if (container.contains("restartPolicy") && container["restartPolicy"] != "Never")
    reader.report(Severity::Error, path + ".restartPolicy",
                  "found " + FieldReader::shown(container["restartPolicy"]) + ", expected Never",
                  "the job restarts its ranks; spec.restartPolicy says whether");
  if (container.contains("restartPolicyRules"))
    reader.report(Severity::Error, path + ".restartPolicyRules",
                  "they would restart the agent in a pod that has ended for the operator",
                  "failurePolicy.rules has rules for the job");
  if (container.contains("terminationMessagePath") &&
      container["terminationMessagePath"] != contract::kTerminationLog)
    reader.report(Severity::Error, path + ".terminationMessagePath",
                  "found " + FieldReader::shown(container["terminationMessagePath"]) +
                      ", expected " + contract::kTerminationLog,
                  "the agent writes its last words there: remove it");
}

/// Kubernetes 1.35: any container may restart its whole pod, and with it the agent under its old name.
void check_restart_rules(const json& spec, const std::string& path, FieldReader& reader) {
  for (const char* list : {"containers", "initContainers"}) {
    const auto found = spec.find(list);
    if (found == spec.end()) continue;
    for (const json& container : *found) {
      const auto named = container.find("name");
      const std::string name =
          named != container.end() && named->is_string() ? named->get<std::string>() : "";
      const auto rules = container.find("restartPolicyRules");
      if (name == kContainer || rules == container.end() || !rules->is_array()) continue;
      const bool all = std::ranges::any_of(*rules, [](const json& rule) {
        return rule.is_object() && rule.contains("action") &&
               rule["action"] == "RestartAllContainers";
      });
      if (all)
        reader.report(
            Severity::Error, FieldReader::join(path, list) + "[" + name + "].restartPolicyRules",
            "RestartAllContainers would restart the agent in a pod that runs for the operator",
            "use action Restart, which restarts only this container");
    }
  }
}

void check_worker(const json& container, const std::string& path, FieldReader& reader) {
  const bool good = shapes(container, path,
                           {{"image", Shape::Text},
                            {"env", Shape::Objects},
                            {"ports", Shape::Objects},
                            {"volumeMounts", Shape::Objects},
                            {"securityContext", Shape::Object}},
                           reader);
  if (!good || !named(container, "env", "name", path, reader) ||
      !named(container, "volumeMounts", "mountPath", path, reader))
    return;
  check_mounts(container, path, reader);
  check_life(container, path, reader);
  const auto env = container.find("env");
  if (env == container.end()) return;
  for (const json& variable : *env) {
    const std::string name = variable["name"];
    if (const json& value = json_child(variable, "value"); !value.is_null() && !value.is_string())
      reader.report(Severity::Error, path + ".env",
                    name + ": found " + FieldReader::shown(value) + ", expected a string",
                    "quote it: \"" + FieldReader::shown(value) + "\"");
    if (name.starts_with("DSJ_"))
      reader.report(Severity::Error, path + ".env", "\"" + name + "\" is set by the operator",
                    "remove it");
  }
}

/// The operator identifies its pods by these keys and acts on them. Only the annotation
/// kRestartedAt may be set by the user.
void check_metadata(const json& metadata, const std::string& path, FieldReader& reader) {
  if (!shapes(metadata, path, {{"labels", Shape::Texts}, {"annotations", Shape::Texts}}, reader))
    return;
  const std::string ours = std::string(contract::kGroup) + "/";
  for (const std::string map : {"labels", "annotations"}) {
    const auto found = metadata.find(map);
    if (found == metadata.end() || !found->is_object()) continue;
    for (const auto& [key, value] : found->items())
      if (key.starts_with(ours) && !(map == "annotations" && key == kRestartedAt))
        reader.report(Severity::Error, FieldReader::join(path, map),
                      "\"" + key + "\" is set by the operator", "remove it");
  }
}

bool is_words(const json& container, const char* name) {
  const auto found = container.find(name);
  return found != container.end() && found->is_array() && !found->empty() &&
         std::ranges::all_of(*found, [](const json& word) { return word.is_string(); });
}

/// Native launcher: the agent is the container's first process and starts the ranks itself.
void check_no_program(const json& container, const std::string& path, FieldReader& reader) {
  for (const char* name : {"command", "args"})
    if (container.contains(name) && !container[name].empty())
      reader.report(Severity::Error, path + "." + name,
                    "set by the operator: the ranks are this engine's",
                    "remove it; launcher: Command runs a program of your own");
}

void check_program(const json& container, const std::string& path, FieldReader& reader) {
  if (!container.contains("image"))
    reader.report(Severity::Error, path + ".image", "a field is missing",
                  "name the image that contains the program");
  if (!is_words(container, "command"))
    reader.report(Severity::Error, path + ".command",
                  container.contains("command") ? "expected a list of words" : "a field is missing",
                  "launcher: Command runs it as every rank; an image's ENTRYPOINT cannot be known "
                  "here: write it as the command");
  if (container.contains("args") && !container["args"].empty() && !is_words(container, "args"))
    reader.report(Severity::Error, path + ".args", "expected a list of words");
}

}  // namespace

void check_template(const json& pod, const std::string& path, RankProgram program,
                    FieldReader& reader) {
  if (const json* metadata = reader.object(pod, "metadata", path + ".metadata"))
    check_metadata(*metadata, path + ".metadata", reader);
  const json* spec = reader.object(pod, "spec", path + ".spec");
  if (spec == nullptr) return;
  for (const char* name : {"hostname", "subdomain", "nodeName"})
    if (spec->contains(name))
      reader.report(Severity::Error, path + ".spec." + name, "set by the operator", "remove it");
  if (spec->contains("activeDeadlineSeconds"))
    reader.report(Severity::Error, path + ".spec.activeDeadlineSeconds",
                  "it would end single pods, and the job would restart them",
                  "spec.runPolicy.activeDeadlineSeconds ends the job");
  if (spec->contains("restartPolicy") && (*spec)["restartPolicy"] != "Never")
    reader.report(Severity::Error, path + ".spec.restartPolicy",
                  "found " + FieldReader::shown((*spec)["restartPolicy"]) + ", expected Never",
                  "the job restarts its ranks; spec.restartPolicy says whether");
  if (spec->contains("automountServiceAccountToken") &&
      (*spec)["automountServiceAccountToken"] != true)
    reader.report(
        Severity::Error, path + ".spec.automountServiceAccountToken",
        "found " + FieldReader::shown((*spec)["automountServiceAccountToken"]) + ", expected true",
        "the agent of worker 0 writes the job's status with it; no other worker has it "
        "unless the template says true: remove it");
  check_host_network(*spec, path + ".spec", reader);
  check_affinity(*spec, path + ".spec", reader);
  const bool good = shapes(*spec, path + ".spec",
                           {{"containers", Shape::Objects},
                            {"initContainers", Shape::Objects},
                            {"volumes", Shape::Objects},
                            {"nodeSelector", Shape::Texts},
                            {"securityContext", Shape::Object},
                            {"serviceAccountName", Shape::Text}},
                           reader);
  if (good) {
    check_security(*spec, path + ".spec", reader);
    check_names(*spec, path + ".spec", reader);
    check_restart_rules(*spec, path + ".spec", reader);
  }
  const auto containers = spec->find("containers");
  const std::string at = path + ".spec.containers";
  if (!good || containers == spec->end() ||
      !named(*spec, "containers", "name", path + ".spec", reader))
    return;
  int ours = 0;
  for (const json& container : *containers) {
    if (container["name"] != kContainer) continue;
    ++ours;
    const std::string place = at + "[" + kContainer + "]";
    check_worker(container, place, reader);
    if (program == RankProgram::Engine) check_no_program(container, place, reader);
    if (program == RankProgram::Own) check_program(container, place, reader);
  }
  if (ours != 1)
    reader.report(Severity::Error, at, "no container named \"" + std::string(kContainer) + "\"",
                  "name the container that runs the ranks \"worker\", once");
}

}  // namespace dsj::jobspec
