// What a review says, as a function of the API server's request.
#include "operator/webhook/review.h"

#include <gmock/gmock.h>

#include <random>

#include "job/spec/cluster_spec.h"

namespace dsj::op {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

json good_job() {
  return json::parse(R"({
    "apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob",
    "metadata": {"name": "tune", "namespace": "n"},
    "spec": {
      "deepspeed": {"config": {"train_micro_batch_size_per_gpu": "auto",
        "zero_optimization": {"stage": 2}}},
      "training": {"modelNameOrPath": "/m", "dataPath": "/d", "outputDir": "/o"},
      "workers": {"replicas": 2, "slotsPerWorker": 1, "template": {"spec": {
        "containers": [{"name": "worker", "volumeMounts": [{"name": "v", "mountPath": "/o"}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}}}})");
}

json changed(json job, const char* pointer, json value) {
  job[json::json_pointer(pointer)] = std::move(value);
  return job;
}

std::string request(const json& object, const json& before = nullptr,
                    const std::string& operation = "") {
  json request = {{"uid", "u-1"}, {"object", object}, {"oldObject", before}};
  request["operation"] = operation.empty() ? (before.is_null() ? "CREATE" : "UPDATE") : operation;
  return json{
      {"apiVersion", "admission.k8s.io/v1"}, {"kind", "AdmissionReview"}, {"request", request}}
      .dump();
}

/// The response, after checks of its form.
json answer(const std::string& text) {
  const auto reviewed = review(text);
  if (!reviewed) {
    ADD_FAILURE() << reviewed.error().to_string();
    return {};
  }
  EXPECT_EQ(reviewed->answer["kind"], "AdmissionReview");
  EXPECT_EQ(reviewed->answer["apiVersion"], "admission.k8s.io/v1");
  const json response = reviewed->answer["response"];
  EXPECT_EQ(response["uid"], "u-1");
  EXPECT_EQ(response["allowed"], reviewed->allowed);
  EXPECT_EQ(response.contains("status"), !reviewed->allowed);
  return response;
}

std::string warnings(const json& response);

TEST(Review, DoesNotReadTemplates) {
  json job = changed(good_job(), "/spec/workers/templateRef", {{"name", "h200"}});
  const json response = answer(request(job));
  EXPECT_EQ(response["allowed"], true);
  EXPECT_THAT(warnings(response), HasSubstr("spec.workers.templateRef: not read here"));
}

std::string warnings(const json& response) {
  return response.value("warnings", json::array()).dump();
}

/// Whether a review with this answer of the API server allows the job, and how often that was asked.
std::pair<json, int> tried(const std::string& text, const std::string& sentence,
                           const std::string& doubt = "") {
  int asked = 0;
  const auto reviewed = review(text, [&](const json& job) {
    EXPECT_EQ(job["kind"], "DeepSpeedJob");
    ++asked;
    return PodAnswer{sentence, doubt};
  });
  return {reviewed ? reviewed->answer["response"] : json(), asked};
}

TEST(Review, ANewTemplateIsPutToTheApiServer) {
  const json with = changed(good_job(), "/spec/workers/template/spec/tolerationz", json::array());
  const auto [refused, asked] = tried(request(with), "unknown field \"spec.tolerationz\"");
  EXPECT_EQ(refused["allowed"], false);
  EXPECT_EQ(asked, 1);
  EXPECT_THAT(refused["status"]["message"].get<std::string>(),
              HasSubstr("spec.workers.template: the API server refuses worker 0's pod: unknown "
                        "field \"spec.tolerationz\""));
  EXPECT_EQ(tried(request(with), "").first["allowed"], true);
  EXPECT_EQ(tried(request(with, good_job()), "no").first["allowed"], false);
  // Nothing to ask: no template, the same template, a job that is refused anyway.
  json bare = good_job();
  bare["spec"]["workers"].erase("template");
  EXPECT_EQ(tried(request(bare), "no").second, 0);
  EXPECT_EQ(tried(request(changed(with, "/spec/suspend", true), with), "no").second, 0);
  EXPECT_EQ(tried(request(changed(with, "/spec/training/outputDir", "o")), "no").second, 0);
}

/// A priority class that is not there, a namespace's level of Pod Security, a quota: they may be another when the pods are made.
TEST(Review, WhatKeepsThePodsAwayNowIsAWarning) {
  const json with = changed(good_job(), "/spec/workers/template/spec/priorityClassName", "nope");
  const auto [response, asked] =
      tried(request(with), "",
            "pods \"tune-worker-0-1\" is forbidden: no PriorityClass with name nope was found");
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(response["allowed"], true);
  EXPECT_THAT(warnings(response),
              HasSubstr("as things are no pod of it can be made: pods \\\"tune-worker-0-1\\\" is "
                        "forbidden: no PriorityClass with name nope was found"));
}

TEST(Review, AGoodJobIsAllowedWithoutAWord) {
  const json response = answer(request(good_job()));
  EXPECT_EQ(response["allowed"], true);
  EXPECT_FALSE(response.contains("warnings"));
}

TEST(Review, AllErrorsAtOnceAsValidateSaysThem) {
  json bad = changed(good_job(), "/spec/deepspeed/config/zero_optimizaton", {{"stage", 2}});
  bad = changed(bad, "/spec/training/outputDir", "relative");
  bad = changed(bad, "/spec/workers/template", {{"spec", {{"hostname", "x"}}}});
  const json response = answer(request(bad));
  EXPECT_EQ(response["allowed"], false);
  EXPECT_EQ(response["status"]["code"], 422);
  const std::string message = response["status"]["message"];
  EXPECT_THAT(message, HasSubstr("3 errors"));
  EXPECT_THAT(message, HasSubstr("\nerror: spec.deepspeed.config.zero_optimizaton: "));
  EXPECT_THAT(message, HasSubstr("did you mean \"zero_optimization\"?"));
  EXPECT_THAT(message, HasSubstr("\nerror: spec.training.outputDir: found \"relative\""));
  EXPECT_THAT(message, HasSubstr("\nerror: spec.workers.template.spec.hostname: "));
  for (const auto& finding :
       jobspec::check_cluster_spec("tune", bad["spec"], std::nullopt).resolution.findings) {
    EXPECT_THAT(message, HasSubstr(jobspec::to_sentence(finding)));
  }
}

TEST(Review, WhatIsNotBuiltIsAWarning) {
  const json response = answer(request(changed(good_job(), "/spec/network/tls", "Required")));
  EXPECT_EQ(response["allowed"], true);
  EXPECT_THAT(warnings(response), HasSubstr("unsupported: spec.network: not built"));
}

/// As on every kind that Kueue knows.
TEST(Review, TheLabelOfAQueueIsTheQueueOrAContradiction) {
  const json label = {{"kueue.x-k8s.io/queue-name", "research"}};
  const json job = changed(good_job(), "/metadata/labels", label);
  EXPECT_EQ(answer(request(job))["allowed"], true);
  const json policy = {{"scheduler", "kueue"}, {"queue", "research"}};
  EXPECT_EQ(answer(request(changed(job, "/spec/runPolicy/schedulingPolicy", policy)))["allowed"],
            true);
  const json others[] = {{{"scheduler", "kueue"}, {"queue", "other"}}, {{"scheduler", "volcano"}}};
  for (const json& other : others) {
    const json contrary = changed(job, "/spec/runPolicy/schedulingPolicy", other);
    const json response = answer(request(contrary));
    EXPECT_EQ(response["allowed"], false);
    EXPECT_THAT(response["status"]["message"].get<std::string>(),
                AllOf(HasSubstr("spec.runPolicy.schedulingPolicy: the "),
                      HasSubstr("and the label kueue.x-k8s.io/queue-name says \"research\"")));
    // The label alone is edited.
    const json before = changed(contrary, "/metadata/labels", json::object());
    EXPECT_EQ(answer(request(contrary, before))["allowed"], false);
  }
  // What such a job has for its queue is checked as if it said so itself.
  const json elastic = changed(job, "/spec/elastic", {{"minReplicas", 1}, {"maxReplicas", 2}});
  EXPECT_THAT(answer(request(elastic)).dump(), HasSubstr("Kueue admits a whole pod group"));
}

TEST(Review, AConfigMapIsLeftToTheOperatorAndTheRestIsChecked) {
  json job = good_job();
  job["spec"]["deepspeed"] = {{"configFrom", {{"configMapKeyRef", {{"name", "c"}, {"key", "k"}}}}}};
  const json response = answer(request(job));
  EXPECT_EQ(response["allowed"], true);
  EXPECT_THAT(warnings(response), HasSubstr("condition Accepted"));
  EXPECT_EQ(answer(request(changed(job, "/spec/training/dataPath", "d")))["allowed"], false);
}

TEST(Review, WhatAJobKeepsForItsLife) {
  const json before = good_job();
  for (const auto& [pointer, value] : {std::pair{"/spec/training/modelNameOrPath", "/other"},
                                       {"/spec/training/outputDir", "/other"}}) {
    const json response = answer(request(changed(before, pointer, value), before));
    EXPECT_EQ(response["allowed"], false) << pointer;
    EXPECT_THAT(response["status"]["message"].get<std::string>(),
                HasSubstr("found \"/other\", the job has"));
  }
}

TEST(Review, OnlyWhatAnEditBroughtRefuses) {
  const json before = changed(good_job(), "/spec/deepspeed/config/fp17", {{"enabled", true}});
  const json suspended = changed(before, "/spec/suspend", true);
  const json response = answer(request(suspended, before));
  EXPECT_EQ(response["allowed"], true) << response.dump();
  EXPECT_THAT(warnings(response), HasSubstr("error: spec.deepspeed.config.fp17"));
  const json worse = changed(before, "/spec/training/dataPath", "relative");
  const std::string message = answer(request(worse, before))["status"]["message"];
  EXPECT_THAT(message, HasSubstr("1 error"));
  EXPECT_THAT(message, Not(HasSubstr("fp17")));
}

TEST(Review, AnEditOfWhatRunsOrHasEndedIsNotQuiet) {
  json before = changed(good_job(), "/status/phase", "Running");
  const json scaled = changed(before, "/spec/workers/replicas", 4);
  EXPECT_THAT(warnings(answer(request(scaled, before))),
              HasSubstr("spec.workers: all ranks save one step"));
  json elastic = changed(before, "/spec/elastic", {{"minReplicas", 1}, {"maxReplicas", 4}});
  elastic["spec"]["deepspeed"]["config"] = {{"train_batch_size", 8},
                                            {"train_micro_batch_size_per_gpu", 1}};
  EXPECT_THAT(warnings(answer(request(changed(elastic, "/spec/workers/replicas", 4), elastic))),
              Not(HasSubstr("all ranks save one step")))
      << "a larger gang waits for nodes";
  EXPECT_EQ(warnings(answer(request(changed(before, "/spec/backoffLimit", 9), before))), "[]");
  before["status"]["phase"] = "Complete";
  EXPECT_THAT(warnings(answer(request(scaled, before))), HasSubstr("the job is Complete"));
}

// Whoever manages it has checks of its own, as with batch/v1's managedBy.
TEST(Review, AJobOfAnotherControllerIsLeftAlone) {
  json bad = changed(good_job(), "/spec/training/learningRat", 1);
  EXPECT_EQ(answer(request(bad))["allowed"], false);
  for (const char* own : {"training.dsj.dev/deepspeedjob-controller", ""})
    EXPECT_EQ(answer(request(changed(bad, "/spec/managedBy", own)))["allowed"], false) << own;
  bad = changed(bad, "/spec/managedBy", "kueue.x-k8s.io/multikueue");
  const json response = answer(request(bad));
  EXPECT_EQ(response["allowed"], true);
  EXPECT_FALSE(response.contains("warnings"));
}

TEST(Review, LabelsFinalizersAndDeletionNeverFail) {
  const json bad = changed(good_job(), "/spec/training/dataPath", "relative");
  EXPECT_EQ(answer(request(changed(bad, "/metadata/labels", {{"a", "b"}}), bad))["allowed"], true);
  EXPECT_EQ(answer(request(nullptr, bad, "DELETE"))["allowed"], true);
  const json leaving = changed(changed(bad, "/metadata/deletionTimestamp", "2026-01-01T00:00:00Z"),
                               "/spec/suspend", true);
  EXPECT_EQ(answer(request(leaving, bad))["allowed"], true);
}

TEST(Review, LongWarningsAndManyErrorsAreCut) {
  json bad = good_job();
  for (int i = 0; i < 200; ++i) bad["spec"]["field" + std::to_string(i)] = i;
  const std::string message = answer(request(bad))["status"]["message"];
  EXPECT_THAT(message, HasSubstr("200 errors"));
  EXPECT_THAT(message, HasSubstr("and 150 more"));
  json odd = good_job();
  std::string name;
  for (int i = 0; i < 200; ++i) name += "ö";
  odd["spec"]["deepspeed"]["config"][name] = 1;
  for (const json& warning : answer(request(odd)).value("warnings", json::array())) {
    EXPECT_LE(warning.get<std::string>().size(), 256u);
    EXPECT_NO_THROW(warning.dump());
  }
}

TEST(Review, WhatIsNoReviewIsSaidSo) {
  for (
      const std::string text :
      {"", "x", "[]", "null", R"({"kind": "AdmissionReview"})",
       R"({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "u"}})",
       R"({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}})",
       R"({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": 3}})",
       R"({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": [1]})"}) {
    EXPECT_FALSE(review(text)) << text;
  }
  EXPECT_FALSE(review(request({{"kind", "Pod"}})));
  EXPECT_FALSE(review(std::string(1'000'000, '[')));
}

/// Any JSON anywhere in a job: an answer, never a crash.
TEST(Review, NothingInAJobThrows) {
  std::mt19937 chance(7);
  const std::vector<json> values = {nullptr,
                                    true,
                                    -1,
                                    1e300,
                                    "x",
                                    "",
                                    json::array(),
                                    json::object(),
                                    json::array({nullptr, 3, json::object()}),
                                    json::array({{{"name", 5}}}),
                                    {{"name", nullptr}}};
  json rich = good_job();
  rich["spec"]["workers"]["template"] = json::parse(R"({
    "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {"securityContext": {}, "serviceAccountName": "s", "volumes": [{"name": "v"}],
      "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": []}]}}},
      "initContainers": [{"name": "i"}],
      "containers": [{"name": "worker", "image": "i", "env": [{"name": "A", "value": "b"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}], "ports": [], "securityContext": {}}]}})");
  rich["spec"]["failurePolicy"] = json::parse(
      R"({"rules": [{"action": "Restart", "onExitCodes": {"operator": "In", "values": [1]}}]})");
  rich["spec"]["training"]["lora"] = {{"r", 8}, {"targetModules", {"q_proj"}}};
  std::vector<std::string> places;
  const json flat = rich.flatten();
  for (const auto& [place, value] : flat.items()) {
    for (std::string at = place; !at.empty(); at.resize(at.rfind('/'))) places.push_back(at);
  }
  EXPECT_EQ(answer(request(rich))["allowed"], true) << answer(request(rich)).dump();
  for (int i = 0; i < 3000; ++i) {
    json odd = rich;
    const std::string place = places[chance() % places.size()];
    odd[json::json_pointer(place)] = values[chance() % values.size()];
    ASSERT_NO_THROW((void)review(request(odd))) << place << " " << odd.dump();
    ASSERT_NO_THROW((void)review(request(odd, rich))) << place << " " << odd.dump();
  }
}

TEST(Review, ABigHostileSpecIsNotSearchedToItsEnd) {
  json bad = good_job();
  json& config = bad["spec"]["deepspeed"]["config"];
  for (int i = 0; i < 60'000; ++i) config["zero_optimizatoin_" + std::to_string(i)] = i;
  const std::string text = request(bad);
  EXPECT_GT(text.size(), 1u << 20);
  EXPECT_EQ(answer(text)["allowed"], false);
  const auto found = jobspec::check_cluster_spec("tune", bad["spec"], std::nullopt);
  EXPECT_EQ(found.resolution.findings.size(), 1002u) << "and no ConfigMap holds it";
}

}  // namespace
}  // namespace dsj::op
