// Property: whatever a pod template says, it is refused because it contradicts itself or what this operator needs, or its pod says it
// unchanged and an API server and a kubelet take it. The rules are Kubernetes' (validation of pods, kubelets' checks of
// users), written here by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/operator/rendered_pod.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

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
    if (one_in(2)) spec["securityContext"] = users();
    spec["containers"] = Json::array({container("worker")});
    if (one_in(3)) spec["containers"].push_back(container("proxy"));
    if (one_in(2)) std::reverse(spec["containers"].begin(), spec["containers"].end());
    if (one_in(4)) {
      spec["initContainers"] = Json::array({container("mesh")});
      spec["initContainers"][0]["restartPolicy"] = "Always";
    }
    spec["volumes"] = Json::array({{{"name", one_in(20) ? "dsj-tmp" : "v"}, {"emptyDir", Json::object()}}});
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
        const bool admin = capabilities.value("add", Json::array()) == Json::array({"CAP_SYS_ADMIN"});
        if ((context["privileged"] == true || admin) && context["allowPrivilegeEscalation"] == false)
          return "allowPrivilegeEscalation";
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
  Json container(const char* name) {
    Json made = {{"name", name}, {"image", "i"}};
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

const Json* named(const Json& list, const char* key, const Json& value) {
  for (const Json& one : list)
    if (one.is_object() && one.contains(key) && one[key] == value) return &one;
  return nullptr;
}

/// Where `pod` does not say what `own` says; empty: it says all of it.
std::string unsaid(const Json& own, const Json& pod, const std::string& path) {
  if (own.is_object() && pod.is_object()) {
    for (const auto& [name, value] : own.items()) {
      if (name == "terminationGracePeriodSeconds") continue;  // at least what saving takes
      const std::string at = path + "." + name;
      if (!pod.contains(name)) return at;
      if (const std::string missing = unsaid(value, pod[name], at); !missing.empty()) return missing;
    }
    return "";
  }
  if (!own.is_array() || !pod.is_array() || own.empty() || !own[0].is_object())
    return own == pod ? "" : path;
  const char* key = own[0].contains("mountPath") ? "mountPath" : "name";
  for (const Json& one : own) {
    const Json* found = named(pod, key, one[key]);
    const std::string at = path + "[" + one[key].dump() + "]";
    if (!found) return at;
    if (const std::string missing = unsaid(one, *found, at); !missing.empty()) return missing;
  }
  return "";
}

/// Why an API server or a kubelet would not run it; empty: they would.
std::string refused(const Json& pod) {
  const Json& spec = pod["spec"];
  const Json above = spec.value("securityContext", Json::object());
  std::set<std::string> volumes, names;
  for (const Json& volume : spec["volumes"])
    if (!volumes.insert(volume["name"]).second) return "two volumes " + volume["name"].dump();
  for (const char* list : {"containers", "initContainers"}) {
    for (const Json& one : spec.value(list, Json::array())) {
      if (!names.insert(one["name"]).second) return "two containers " + one["name"].dump();
      const Json context = one.value("securityContext", Json::object());
      const bool root =
          (context.contains("runAsUser") ? context["runAsUser"] : above.value("runAsUser", Json())) == 0;
      const bool never = (context.contains("runAsNonRoot")
                              ? context["runAsNonRoot"]
                              : above.value("runAsNonRoot", Json())) == true;
      if (root && never) return "root, and never root";
      if (context.value("allowPrivilegeEscalation", true) == false) {
        if (context.value("privileged", false)) return "privileged";
        const Json capabilities = context.value("capabilities", Json::object());
        for (const Json& added : capabilities.value("add", Json::array()))
          if (added == "CAP_SYS_ADMIN") return "CAP_SYS_ADMIN";
      }
      std::set<std::string> paths;
      for (const Json& mount : one.value("volumeMounts", Json::array())) {
        std::string path = mount["mountPath"];
        if (path.ends_with("/")) path.pop_back();
        if (!paths.insert(path).second) return "two mounts at " + path;
        if (!volumes.contains(mount["name"])) return "no volume " + mount["name"].dump();
      }
    }
  }
  return "";
}

TEST(DrawnTemplate, IsRefusedForAContradictionOrSaidByItsPod) {
  int accepted = 0, contradictory = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    const DrawnTemplate drawn(seed);
    Json spec = quick_spec();
    spec["workers"]["template"] = drawn.pod();
    const Verdict verdict = judge("j", spec, std::nullopt, "");
    const std::string wrong = drawn.contradiction();
    ASSERT_EQ(verdict.accepted != nullptr, wrong.empty())
        << "seed " << seed << ": " << wrong << ": " << verdict.message << drawn.pod().dump(1);
    if (!verdict.accepted) {
      ++contradictory;
      ASSERT_NE(verdict.message.find(wrong), std::string::npos) << wrong << ": " << verdict.message;
      continue;
    }
    ++accepted;
    World world;
    world.o.wanted = verdict;
    const Json pod = pod_of(world);
    ASSERT_EQ(unsaid(drawn.pod(), pod, ""), "") << "seed " << seed << pod.dump(1);
    ASSERT_EQ(refused(pod), "") << "seed " << seed << pod.dump(1);
    ASSERT_EQ(pod["spec"]["containers"][0]["name"], "worker");
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(contradictory, 200);
}

}  // namespace
}  // namespace dsj::op::testing
