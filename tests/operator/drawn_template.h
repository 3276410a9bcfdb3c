// Pod templates that users might write, drawn by a seed, and what is wrong with each.
#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/operator/world.h"

namespace dsj::op::testing {

class DrawnTemplate {
 public:
  explicit DrawnTemplate(uint64_t seed) : random_(seed) {
    Json& spec = pod_["spec"];
    spec = Json::object();
    maybe(spec, "enableServiceLinks", {true, false});
    maybe(spec, "shareProcessNamespace", {true, false});
    maybe(spec, "terminationGracePeriodSeconds", {5, 5000});
    maybe(spec, "restartPolicy", {"Never", "Never", "OnFailure"}, 6);
    maybe(spec, "activeDeadlineSeconds", {3600}, 12);
    maybe(spec, "hostname", {"h"}, 12);
    maybe(spec, "hostNetwork", {true});
    maybe(spec, "hostIPC", {true}, 6);
    maybe(spec, "schedulerName", {"mine"}, 6);
    maybe(spec, "nodeSelector", {{{"pool", "gpu"}}, {{"kubernetes.io/arch", "arm64"}}});
    maybe(spec, "tolerations",
          {Json::array({{{"key", "gpu"}, {"operator", "Exists"}, {"effect", "NoSchedule"}}}),
           Json::array({{{"operator", "Exists"}}})});
    maybe(spec, "affinity", {node_affinity("kubernetes.io/arch"), node_affinity("zone")});
    maybe(spec, "dnsConfig", {{{"options", Json::array({{{"name", "ndots"}, {"value", "2"}}})}}},
          6);
    maybe(spec, "hostAliases", {Json::array({{{"ip", "10.0.0.1"}, {"hostnames", {"a"}}}})}, 6);
    maybe(spec, "os", {{{"name", "linux"}}}, 6);
    maybe(spec, "imagePullSecrets", {Json::array({{{"name", "pull"}}})}, 6);
    maybe(spec, "automountServiceAccountToken", {true}, 6);
    if (one_in(2)) spec["securityContext"] = users();
    spec["containers"] = Json::array({container("worker")});
    if (one_in(3)) spec["containers"].push_back(container("proxy"));
    if (one_in(2)) std::reverse(spec["containers"].begin(), spec["containers"].end());
    if (one_in(4)) {
      spec["initContainers"] = Json::array({container("mesh")});
      spec["initContainers"][0]["restartPolicy"] = "Always";
    }
    spec["volumes"] =
        Json::array({{{"name", one_in(20) ? "dsj-tmp" : "v"}, {"emptyDir", Json::object()}}});
  }
  const Json& pod() const { return pod_; }

  /// What is wrong with it; empty: nothing.
  std::string contradiction() const {
    const Json& spec = pod_["spec"];
    if (spec.value("restartPolicy", "Never") != "Never") return "restartPolicy";
    for (const char* name : {"activeDeadlineSeconds", "hostname"})
      if (spec.contains(name)) return name;
    if (spec["volumes"][0]["name"] == "dsj-tmp") return "dsj-tmp";
    for (const char* list : {"containers", "initContainers"}) {
      for (const Json& one : spec.value(list, Json::array())) {
        Json context = one.value("securityContext", Json::object());
        Json above = spec.value("securityContext", Json::object());
        const Json user = context.contains("runAsUser") ? context["runAsUser"] : above["runAsUser"];
        const Json rule =
            context.contains("runAsNonRoot") ? context["runAsNonRoot"] : above["runAsNonRoot"];
        if (user == 0 && rule == true) return "runAsUser";
        const Json capabilities = context.value("capabilities", Json::object());
        const bool admin =
            capabilities.value("add", Json::array()) == Json::array({"CAP_SYS_ADMIN"});
        if ((context["privileged"] == true || admin) &&
            context["allowPrivilegeEscalation"] == false)
          return "allowPrivilegeEscalation";
        if (one.contains("restartPolicyRules")) return "restartPolicyRules";
        if (one["name"] != "worker") continue;
        if (one.contains("restartPolicy")) return "restartPolicy";
        for (const Json& mount : one.value("volumeMounts", Json::array()))
          if (mount["mountPath"] == "/etc/dsj/" || mount["mountPath"] == "/run/dsj/mine")
            return "volumeMounts";
      }
    }
    return "";
  }

 private:
  bool one_in(int n) { return random_() % static_cast<uint64_t>(n) == 0; }
  void maybe(Json& object, const char* name, const std::vector<Json>& values, int in = 3) {
    if (one_in(in)) object[name] = values[random_() % values.size()];
  }
  Json users() {
    Json context = Json::object();
    maybe(context, "runAsUser", {0, 1000});
    maybe(context, "runAsNonRoot", {true, false}, 4);
    return context;
  }
  static Json node_affinity(const char* label) {
    const Json one = {{"key", label}, {"operator", "In"}, {"values", {"arm64"}}};
    const Json term = {{"matchExpressions", Json::array({one})}};
    const Json required = {{"nodeSelectorTerms", Json::array({term})}};
    return {{"nodeAffinity", {{"requiredDuringSchedulingIgnoredDuringExecution", required}}}};
  }
  Json container(const char* name) {
    Json made = {{"name", name}, {"image", "i"}};
    maybe(made, "imagePullPolicy", {"Always", "Never"}, 6);
    maybe(made, "workingDir", {"/w"}, 6);
    maybe(made, "env",
          {Json::array({{{"name", "A"}, {"value", "$(POD)"}},
                        {{"name", "POD"},
                         {"valueFrom", {{"fieldRef", {{"fieldPath", "metadata.name"}}}}}}})});
    maybe(made, "envFrom", {Json::array({{{"configMapRef", {{"name", "c"}, {"optional", true}}}}})},
          6);
    maybe(made, "ports", {Json::array({{{"containerPort", 9000 + name[0]}, {"name", name}}})}, 6);
    maybe(made, "lifecycle",
          {{{"preStop", {{"exec", {{"command", {"true"}}}}}}},
           {{"postStart", {{"exec", {{"command", {"true"}}}}}}}},
          6);
    maybe(made, "stdin", {true}, 8);
    maybe(made, "tty", {true}, 8);
    if (one_in(2)) {
      Json context = users();
      maybe(context, "privileged", {true, true, false});
      maybe(context, "allowPrivilegeEscalation", {true, false}, 5);
      maybe(context, "readOnlyRootFilesystem", {true, false});
      if (one_in(3)) {
        static constexpr const char* kAdd[] = {"SYS_ADMIN", "CAP_SYS_ADMIN", "IPC_LOCK"};
        context["capabilities"]["add"] = Json::array({kAdd[random_() % 3]});
      }
      made["securityContext"] = std::move(context);
    }
    maybe(made, "terminationMessagePolicy", {"FallbackToLogsOnError"});
    maybe(made, "terminationMessagePath", {"/dev/termination-log"});
    if (name == std::string("worker")) maybe(made, "restartPolicy", {"Always"}, 20);
    if (name != std::string("worker") && one_in(15))
      made["restartPolicyRules"] = Json::array({{{"action", "RestartAllContainers"}}});
    if (one_in(3))
      made["resources"] = {{"requests", {{"cpu", "2"}, {"memory", "4Gi"}}},
                           {"limits", {{"memory", "4Gi"}}}};
    static constexpr const char* kPaths[] = {"/tmp", "/tmp/", "/dev/shm/", "/dev/shm", "/data"};
    std::set<std::string> paths;
    for (uint64_t i = random_() % 3; i > 0; --i) paths.insert(kPaths[random_() % 5]);
    if (paths.contains("/tmp/")) paths.erase("/tmp");
    if (paths.contains("/dev/shm/")) paths.erase("/dev/shm");
    if (one_in(20)) paths.insert(one_in(2) ? "/etc/dsj/" : "/run/dsj/mine");
    for (const std::string& path : paths)
      made["volumeMounts"].push_back({{"name", "v"}, {"mountPath", path}});
    return made;
  }

  std::mt19937_64 random_;
  Json pod_ = Json::object();
};

}  // namespace dsj::op::testing
