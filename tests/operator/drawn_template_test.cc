// Property: whatever a pod template says, it is refused because it contradicts itself or what this operator needs, or its pod says it
// unchanged and an API server and a kubelet take it. The rules are Kubernetes' (validation of pods, kubelets' checks of
// users), written here by hand.
#include <gtest/gtest.h>

#include <set>

#include "tests/operator/drawn_template.h"
#include "tests/operator/rendered_pod.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

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
      if (const std::string missing = unsaid(value, pod[name], at); !missing.empty())
        return missing;
    }
    return "";
  }
  if (!own.is_array() || !pod.is_array() || own.empty() || !own[0].is_object())
    return own == pod ? "" : path;
  const char* key = own[0].contains("mountPath") ? "mountPath" : "name";
  if (!own[0].contains(key)) return own == pod ? "" : path;
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
      const bool root = (context.contains("runAsUser") ? context["runAsUser"]
                                                       : above.value("runAsUser", Json())) == 0;
      const bool never =
          (context.contains("runAsNonRoot") ? context["runAsNonRoot"]
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
    spec["training"]["outputDir"] = "/tmp/out";  // some of the drawn have a read-only root
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
