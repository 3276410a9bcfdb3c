#include "job/spec/user_program.h"

#include <gmock/gmock.h>

#include <map>

#include "job/spec/job.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Severity = dsconfig::Finding::Severity;

json template_of(const json& container) {
  json named = container;
  named["name"] = "worker";
  return {{"spec", {{"containers", json::array({{{"name", "sidecar"}}, named})}}}};
}
Lookup table(std::map<std::string, std::string> names) {
  return [names](const std::string& name) -> const std::string* {
    const auto found = names.find(name);
    return found == names.end() ? nullptr : &found->second;
  };
}

TEST(UserProgram, IsCommandThenArgs) {
  EXPECT_THAT(user_command(template_of({{"command", {"python", "-u"}}, {"args", {"train.py"}}})),
              ElementsAre("python", "-u", "train.py"));
  EXPECT_THAT(user_command(template_of({{"command", {"train"}}})), ElementsAre("train"));
  EXPECT_THAT(user_command(template_of({{"args", {"train.py"}}})), IsEmpty()) << "of what program?";
  EXPECT_THAT(user_command(template_of(json::object())), IsEmpty());
  EXPECT_THAT(user_command(nullptr), IsEmpty());
}

/// The table of Kubernetes' own rules.
TEST(UserProgram, ReferencesAreReplacedAsTheKubeletDoes) {
  const Lookup names = table({{"A", "1"}, {"B", "$(A)"}});
  const std::map<std::string, std::string> cases = {
      {"$(A)", "1"},     {"x$(A)y$(A)", "x1y1"}, {"$(B)", "$(A)"}, {"$(C)", "$(C)"},
      {"$$(A)", "$(A)"}, {"$$$(A)", "$1"},       {"$A", "$A"},     {"$(A", "$(A"},
      {"100$", "100$"},  {"$()", "$()"},         {"", ""},         {"$$", "$"}};
  for (const auto& [text, wanted] : cases)
    EXPECT_EQ(expand_references(text, names), wanted) << text;
}

TEST(UserProgram, VariablesSeeThoseBeforeThem) {
  const json env = json::array({{{"name", "A"}, {"value", "1"}},
                                {{"name", "B"}, {"value", "$(A)$(C)$(OURS)"}},
                                {{"name", "C"}, {"value", "3"}}});
  EXPECT_THAT(user_environment(template_of({{"env", env}}), table({{"OURS", "o"}})),
              ElementsAre(Pair("A", "1"), Pair("B", "1$(C)o"), Pair("C", "3")));
}

json job(json container) {
  return {{"apiVersion", kApiVersion},
          {"kind", kKind},
          {"metadata", {{"name", "j"}}},
          {"spec",
           {{"launcher", "Command"},
            {"training", {{"outputDir", "/out"}}},
            {"workers", {{"template", template_of(std::move(container))}}}}}};
}
/// Every finding that is no warning, as one text.
std::string wrong(const json& object) {
  const auto read = read_cluster_manifest(object);
  if (!read) return read.error().to_string();
  std::string text;
  for (const auto& finding : resolve(*read, {}).findings)
    if (finding.severity != Severity::Warning) text += finding.path + ": " + finding.message + "\n";
  return text;
}

TEST(CommandJob, NeedsAnImageACommandAndAPlaceForItsLogs) {
  const json good = {{"image", "i"}, {"command", {"train"}}};
  EXPECT_EQ(wrong(job(good)), "");
  EXPECT_THAT(wrong(job({{"command", {"train"}}})), HasSubstr("containers[worker].image"));
  EXPECT_THAT(wrong(job({{"image", "i"}})),
              HasSubstr("containers[worker].command: a field is missing"));
  EXPECT_THAT(wrong(job({{"image", "i"}, {"args", {"x"}}})),
              HasSubstr("command: a field is missing"));
  EXPECT_THAT(wrong(job({{"image", "i"}, {"command", "train"}})),
              HasSubstr("expected a list of words"));
  EXPECT_THAT(wrong(job({{"image", "i"}, {"command", {"t"}}, {"args", {1}}})), HasSubstr("args"));
  json object = job(good);
  object["spec"]["training"].erase("outputDir");
  EXPECT_THAT(wrong(object), HasSubstr("spec.training.outputDir"));
  object = job(good);
  object["spec"].erase("workers");
  EXPECT_THAT(wrong(object), HasSubstr("needs a container"));
}

TEST(CommandJob, ModelAndDataAreWhatTheProgramMakesOfThem) {
  json object = job({{"image", "i"}, {"command", {"train"}}});
  object["spec"]["training"]["modelNameOrPath"] = "Qwen/Qwen2.5-0.5B";
  object["spec"]["training"]["dataPath"] = "a/b";
  EXPECT_EQ(wrong(object), "");
  const auto read = read_cluster_manifest(object);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->training.data_path, "a/b");
  object["spec"]["launcher"] = "Native";
  EXPECT_THAT(wrong(object), HasSubstr("expected an absolute path"));
}

TEST(CommandJob, WhatOnlyThisEngineCannotDoIsNoObstacle) {
  json object = job({{"image", "i"}, {"command", {"train"}}});
  object["spec"]["deepspeed"]["config"] = {{"train_micro_batch_size_per_gpu", 1},
                                           {"nebula", {{"enabled", true}}}};
  EXPECT_EQ(wrong(object), "");
  object["spec"]["deepspeed"]["config"]["zero_optimisation"] = {{"stage", 2}};
  EXPECT_THAT(wrong(object), HasSubstr("zero_optimisation")) << "a mistake stays one";
  object["spec"]["deepspeed"]["config"] = {{"train_batch_size", 3},
                                           {"train_micro_batch_size_per_gpu", 2}};
  EXPECT_THAT(wrong(object), HasSubstr("train_batch_size"));
}

TEST(NativeJob, ItsContainerHasNoProgram) {
  json object = job({{"command", {"python"}}, {"args", {"x"}}});
  object["spec"]["launcher"] = "Native";
  const std::string text = wrong(object);
  EXPECT_THAT(text, HasSubstr("containers[worker].command: set by the operator"));
  EXPECT_THAT(text, HasSubstr("containers[worker].args: set by the operator"));
}

json limits(json amounts) {
  return {{"resources", {{"limits", std::move(amounts)}}}};
}

TEST(WorkerGpus, AreLimitsOrRequestsInWholeGpusOrParts) {
  EXPECT_EQ(worker_gpus(nullptr), WorkerGpus());
  EXPECT_EQ(worker_gpus(template_of(json::object())), WorkerGpus());
  EXPECT_EQ(worker_gpus(template_of(limits({{"cpu", 8}}))), WorkerGpus());
  EXPECT_EQ(worker_gpus(template_of(limits({{"nvidia.com/gpu", 8}}))), WorkerGpus{8});
  EXPECT_EQ(worker_gpus(template_of(limits({{"nvidia.com/gpu", "2"}}))), WorkerGpus{2});
  EXPECT_EQ(worker_gpus(template_of(limits({{"nvidia.com/mig-1g.10gb", 2}}))), (WorkerGpus{0, 2}));
  EXPECT_EQ(worker_gpus(template_of(limits({{"nvidia.com/gpu.shared", 2}}))), (WorkerGpus{0, 2}));
  EXPECT_EQ(worker_gpus(template_of({{"resources", {{"requests", {{"nvidia.com/gpu", 4}}}}}})),
            WorkerGpus{4});
  EXPECT_EQ(worker_gpus(template_of(limits({{"amd.com/gpu", 8}}))).other, "amd.com/gpu");
  EXPECT_TRUE(
      worker_gpus(template_of({{"resources", {{"claims", json::array({{{"name", "gpu"}}})}}}}))
          .claimed);
}

/// Never silently on the CPU.
TEST(WorkerGpus, AnotherAcceleratorIsRefusedForRanksOfThisEngine) {
  const auto errors = [](json container, json device = nullptr, const char* launcher = "Native") {
    json object = job(std::move(container));
    object["spec"]["launcher"] = launcher;
    object["spec"]["training"]["device"] = device;
    const auto read = read_cluster_manifest(object);
    std::string text;
    for (const auto& finding : read->findings)
      if (finding.severity == Severity::Error &&
          (finding.path.ends_with("resources") || finding.path.ends_with("device")))
        text += finding.path + ": " + finding.message + "\n";
    return text;
  };
  for (const char* name :
       {"amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi",
        "google.com/tpu", "aws.amazon.com/neuroncore", "huawei.com/Ascend910"}) {
    EXPECT_THAT(errors(limits({{name, 8}})), HasSubstr("resources: " + std::string(name) +
                                                       ": the ranks of this engine train on"))
        << name;
    EXPECT_EQ(errors(limits({{name, 8}}), "cpu"), "") << "as asked for";
    EXPECT_THAT(errors(limits({{name, 8}}), "cuda"), HasSubstr(name));
  }
  for (const char* name : {"rdma/hca", "example.com/nic", "memory", "hugepages-2Mi"})
    EXPECT_EQ(errors(limits({{name, 1}})), "") << name;
  const json claims = {{"resources", {{"claims", json::array({{{"name", "gpu"}}})}}}};
  EXPECT_THAT(errors(claims), HasSubstr("spec.training.device: a field is missing"));
  EXPECT_EQ(errors(claims, "cuda"), "");
  EXPECT_EQ(errors(claims, "cpu"), "");
}

TEST(WorkerGpus, AProgramOfTheUsersOwnMayUseAny) {
  json object =
      job({{"image", "i"}, {"command", {"a"}}, {"resources", {{"limits", {{"amd.com/gpu", 8}}}}}});
  object["spec"]["launcher"] = "Command";
  const auto read = read_cluster_manifest(object);
  for (const auto& finding : read->findings)
    EXPECT_NE(finding.severity, Severity::Error) << finding.path << finding.message;
}

TEST(WorkerGpus, EachRankHasOneOfItsOwn) {
  const auto refused = [](json amounts, int slots, json device = nullptr,
                          const char* launcher = "Native") {
    json object = job(limits(std::move(amounts)));
    object["spec"]["launcher"] = launcher;
    object["spec"]["training"]["device"] = device;
    object["spec"]["workers"]["slotsPerWorker"] = slots;
    const auto read = read_cluster_manifest(object);
    std::string text;
    for (const auto& finding : read->findings)
      if (finding.path == "spec.workers.slotsPerWorker")
        text += finding.message + " (" + finding.hint + ")";
    return text;
  };
  EXPECT_EQ(refused({{"nvidia.com/gpu", 8}}, 8), "");
  EXPECT_EQ(refused({{"nvidia.com/mig-1g.10gb", 2}}, 1), "");
  EXPECT_EQ(refused({{"cpu", 4}}, 8), "");
  EXPECT_EQ(refused({{"nvidia.com/gpu", 1}}, 8, "cpu"), "");
  EXPECT_EQ(refused({{"nvidia.com/gpu", 1}}, 8, nullptr, "Command"), "")
      << "the program's own affair";
  EXPECT_EQ(refused({{"nvidia.com/gpu", 4}}, 8),
            "8, and each worker asks for 4 GPUs; each rank needs a GPU of its own (set it to 4 and "
            "take more replicas, "
            "or ask for as many GPUs as slots)");
  EXPECT_EQ(refused({{"nvidia.com/mig-1g.10gb", 2}}, 2, "auto"),
            "2, and each worker asks for parts of a GPU (nvidia.com/mig-*, nvidia.com/*.shared): a "
            "process sees one of them; each rank "
            "needs a GPU of its own (set it to 1 and take more replicas)");
}

TEST(WorkerGpus, MakeANativeJobOneOnGpus) {
  const auto device_of = [](json container, json device, const char* launcher = "Native") {
    json object = job(container);
    object["spec"]["launcher"] = launcher;
    object["spec"]["training"]["device"] = device;
    return read_cluster_manifest(object);
  };
  EXPECT_EQ(device_of(limits({{"nvidia.com/gpu", 1}}), nullptr)->training.device, "cuda");
  EXPECT_EQ(device_of(limits({{"nvidia.com/gpu", 1}}), "auto")->training.device, "auto");
  EXPECT_FALSE(device_of(limits({{"cpu", 1}}), nullptr)->training.device);
  const auto idle = device_of(limits({{"nvidia.com/gpu", 3}}), "cpu");
  EXPECT_EQ(idle->training.device, "cpu");
  bool warned = false;
  for (const auto& finding : idle->findings)
    warned |= finding.severity == Severity::Warning && finding.path == "spec.training.device" &&
              finding.message == "cpu, and each worker asks for 3 GPUs: they stay idle";
  EXPECT_TRUE(warned);
}

}  // namespace
}  // namespace dsj::jobspec
