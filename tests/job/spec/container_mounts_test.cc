// Whether training.outputDir can be written and outlives its pod. What a volume's kind allows is by the fields of
// Kubernetes' API (core/v1 Volume, VolumeMount).
#include "job/spec/container_mounts.h"

#include <gmock/gmock.h>

#include <random>

#include "job/spec/cluster_spec.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
using Severity = dsconfig::Finding::Severity;
using ::testing::HasSubstr;

enum class Verdict { Good, GoesWithPod, CannotBeWritten };

struct VolumeKind {
  const char* source;
  Verdict verdict;
};
constexpr VolumeKind kKinds[] = {
    {R"({"persistentVolumeClaim": {"claimName": "c"}})", Verdict::Good},
    {R"({"persistentVolumeClaim": {"claimName": "c", "readOnly": false}})", Verdict::Good},
    {R"({"persistentVolumeClaim": {"claimName": "c", "readOnly": true}})",
     Verdict::CannotBeWritten},
    {R"({"nfs": {"server": "s", "path": "/p"}})", Verdict::Good},
    {R"({"nfs": {"server": "s", "path": "/p", "readOnly": true}})", Verdict::CannotBeWritten},
    {R"({"csi": {"driver": "d"}})", Verdict::Good},
    {R"({"csi": {"driver": "d", "readOnly": true}})", Verdict::CannotBeWritten},
    {R"({"hostPath": {"path": "/lustre"}})", Verdict::Good},
    {R"({"emptyDir": {}})", Verdict::GoesWithPod},
    {R"({"emptyDir": {"medium": "Memory"}})", Verdict::GoesWithPod},
    {R"({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}})", Verdict::GoesWithPod},
    {R"({"configMap": {"name": "m"}})", Verdict::CannotBeWritten},
    {R"({"secret": {"secretName": "s"}})", Verdict::CannotBeWritten},
    {R"({"downwardAPI": {}})", Verdict::CannotBeWritten},
    {R"({"projected": {"sources": []}})", Verdict::CannotBeWritten},
    {R"({"image": {"reference": "r"}})", Verdict::CannotBeWritten},
};

json spec_with(json volumes, json mounts, int workers, const std::string& output) {
  json spec = json::parse(R"j({
    "deepspeed": {"config": {"train_batch_size": "auto"}},
    "training": {"modelNameOrPath": "/m", "dataPath": "/d.json", "maxSteps": 9},
    "workers": {"slotsPerWorker": 1, "template": {"spec": {"containers": [{"name": "worker"}]}}}})j");
  spec["training"]["outputDir"] = output;
  spec["workers"]["replicas"] = workers;
  json& pod = spec["workers"]["template"]["spec"];
  pod["volumes"] = std::move(volumes);
  pod["containers"][0]["volumeMounts"] = std::move(mounts);
  return spec;
}

/// The findings about the output directory.
std::vector<dsconfig::Finding> told(const json& spec, std::optional<bool> read_only_root = {}) {
  std::vector<dsconfig::Finding> found;
  const auto checked = check_cluster_spec("j", spec, std::nullopt, read_only_root);
  for (const auto& one : checked.resolution.findings) {
    if (one.path.contains("outputDir") || one.path.contains("volumeMounts")) found.push_back(one);
  }
  return found;
}

Verdict verdict_of(const std::vector<dsconfig::Finding>& found) {
  if (found.empty()) return Verdict::Good;
  return found[0].severity == Severity::Warning ? Verdict::GoesWithPod : Verdict::CannotBeWritten;
}

TEST(OutputDir, TheDeepestMountDecidesOverDrawnVolumesMountsAndWorkers) {
  std::mt19937 random(31);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::string output = "/a/b/c/out";
  const char* above[] = {"/", "/a", "/a/b/", "/a/b/c", "/a/b/c/out"};
  const char* beside[] = {"/a/b/c/out2", "/a/bb", "/o", "/a/b/c/out/logs"};
  int seen[3] = {};
  for (int i = 0; i < 2000; ++i) {
    json volumes = json::array(), mounts = json::array();
    Verdict expected = Verdict::GoesWithPod;  // the container's own file system
    std::string at;
    const auto add = [&](const char* path, bool holds) {
      const VolumeKind& kind = kKinds[below(std::size(kKinds))];
      const std::string name = "v" + std::to_string(volumes.size());
      json volume = json::parse(kind.source);
      volume["name"] = name;
      volumes.push_back(std::move(volume));
      const bool read_only = below(4) == 0;
      json mount = {{"name", name}, {"mountPath", path}};
      if (read_only || below(4) == 0) mount["readOnly"] = read_only;
      mounts.push_back(std::move(mount));
      if (!holds) return;
      expected = read_only ? Verdict::CannotBeWritten : kind.verdict;
      at = "volumeMounts[" + std::to_string(mounts.size() - 1) + "]" +
           (read_only ? ".readOnly" : "");
    };
    for (const char* path : above) {  // from the shallowest to the deepest
      if (below(3) == 0) add(path, true);
      if (below(4) == 0) add(beside[below(4)], false);
    }
    const int workers = 1 + below(3);
    const json spec = spec_with(volumes, mounts, workers, output + (below(2) ? "/" : ""));
    const auto found = told(spec);
    ASSERT_EQ(verdict_of(found), expected) << spec.dump(1);
    ASSERT_EQ(found.size(), expected == Verdict::Good ? 0u : 1u) << spec.dump(1);
    ++seen[static_cast<int>(expected)];
    if (expected == Verdict::CannotBeWritten) {
      ASSERT_TRUE(found[0].path.ends_with(at)) << found[0].path << " " << at;
      ASSERT_THAT(found[0].message, HasSubstr("expected"));
    }
    if (expected == Verdict::GoesWithPod) {
      ASSERT_EQ(found[0].path, "spec.training.outputDir");
      ASSERT_EQ(found[0].message.contains("one directory"), workers > 1) << found[0].message;
    }
    if (!found.empty()) {
      ASSERT_FALSE(found[0].hint.empty());
    }
  }
  for (const int times : seen) EXPECT_GT(times, 200);
}

TEST(OutputDir, TheContainersOwnFileSystemMayBeReadOnly) {
  json spec = spec_with(json::array(), json::array(), 1, "/out");
  EXPECT_EQ(verdict_of(told(spec)), Verdict::GoesWithPod);
  json& container = spec["workers"]["template"]["spec"]["containers"][0];
  container["securityContext"]["readOnlyRootFilesystem"] = true;
  EXPECT_EQ(verdict_of(told(spec)), Verdict::CannotBeWritten);
  spec["training"]["outputDir"] = "/tmp/out";
  EXPECT_EQ(verdict_of(told(spec)), Verdict::GoesWithPod) << "the operator mounts /tmp";
}

/// What the cluster's own default is decides where the template does not say.
TEST(OutputDir, AClustersDefaultDecidesWhereTheTemplateDoesNotSay) {
  for (const auto cluster : {std::optional<bool>(), std::optional(false), std::optional(true)}) {
    for (const auto own : {std::optional<bool>(), std::optional(false), std::optional(true)}) {
      for (const char* output : {"/out", "/tmp/out", "/tmp", "/dev/shm/a", "/tmpx"}) {
        json spec = spec_with(json::array(), json::array(), 1, output);
        json& container = spec["workers"]["template"]["spec"]["containers"][0];
        if (own) container["securityContext"]["readOnlyRootFilesystem"] = *own;
        const std::string path = output;
        const bool own_system = path == "/out" || path == "/tmpx";
        const bool read_only = own ? *own : cluster.value_or(false);
        const auto found = told(spec, cluster);
        EXPECT_EQ(verdict_of(found),
                  own_system && read_only ? Verdict::CannotBeWritten : Verdict::GoesWithPod)
            << output;
        // A word on the default only where nobody says otherwise.
        EXPECT_EQ(found[0].message.contains("by default"), own_system && !own && !cluster)
            << found[0].message;
      }
    }
  }
}

TEST(OutputDir, IsNotJudgedBeforeTheTemplateIsRead) {
  json spec = spec_with(json::array(), json::array(), 2, "/out");
  spec["workers"]["templateRef"]["name"] = "h200";
  EXPECT_EQ(verdict_of(told(spec)), Verdict::Good);
}

}  // namespace
}  // namespace dsj::jobspec
