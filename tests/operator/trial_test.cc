// What a dry run of worker 0's pod decides: which answers of the API server refuse a job, and what becomes of the job.
#include "operator/act/trial.h"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "tests/kube/fake_api_server.h"
#include "tests/operator/sim/sim_operator.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A server with one answer to every dry run of a pod.
class TrialServer final : public kube::Transport {
 public:
  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel& cancel) override {
    if (!request.path.contains("dryRun=All")) return server.call(request, cancel);
    asked.push_back(request);
    if (status == 0) return std::unexpected(kube::NetError{kube::NetError::Kind::Cut, "cut"});
    if (status / 100 == 2) return server.call(request, cancel);
    const Json answer = {
        {"apiVersion", "v1"}, {"kind", "Status"}, {"code", status}, {"message", sentence}};
    return kube::Response{status, {}, answer.dump()};
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request& request,
                                                           const kube::Cancel& cancel) override {
    return server.open(request, cancel);
  }

  kube::testing::FakeApiServer server;
  int status = 201;
  std::string sentence;
  std::vector<kube::Request> asked;
};

constexpr char kUnknown[] =
    R"(Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.tolerationz")";
constexpr char kNoDryRun[] = R"(admission webhook "a.b" does not support dry run)";

class TrialTest : public ::testing::Test {
 protected:
  TrialTest() {
    spdlog::set_level(spdlog::level::off);
    server.server.serve(jobs_resource(), true);
    server.server.serve(pod_groups_resource(), true);
    server.server.serve(job_templates_resource(), false);
    op = std::make_unique<sim::SimOperator>(server, clock, chance, nullptr);
  }
  /// By somebody who remembers nothing.
  PodAnswer ask(const World& world) {
    return PodTrials().try_pod(client, *world.o.job, {}, *world.o.wanted.accepted, world.now);
  }
  std::string refusal(int status, const std::string& sentence) {
    World world;
    server.status = status;
    server.sentence = sentence;
    const PodAnswer answer = ask(world);
    EXPECT_TRUE(answer.refusal.empty() || answer.doubt.empty());
    doubt = answer.doubt;
    return answer.refusal;
  }
  void submit() {
    ASSERT_TRUE(client.create(jobs_resource(), "n",
                              {{"apiVersion", jobspec::kApiVersion},
                               {"kind", jobspec::kKind},
                               {"metadata", {{"name", "j"}, {"namespace", "n"}}},
                               {"spec", quick_spec()}}));
  }
  void turns(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      clock.now += Seconds(1);
      op->turn();
    }
  }
  OwnStatus status() {
    return own_status_from_json(own_part(server.server.objects(jobs_resource())[0]["status"]));
  }
  std::string accepted() {
    const OwnStatus told = status();
    const Condition* found = find_condition(told.conditions, "Accepted");
    if (!found) return "none";
    return found->status + " " + found->reason + ": " + found->message;
  }
  size_t count(const kube::Resource& resource) { return server.server.objects(resource).size(); }

  TrialServer server;
  std::string doubt;  ///< of the last answer
  sim::SimClock clock;
  sim::Chance chance{1};
  kube::Client client{server, clock};
  std::unique_ptr<sim::SimOperator> op;
};

TEST_F(TrialTest, OnlyAnAnswerThatHoldsWhateverTheTimeRefuses) {
  EXPECT_EQ(refusal(400, kUnknown), kUnknown);
  EXPECT_EQ(refusal(422, "spec.x: Required value"), "spec.x: Required value");
  EXPECT_EQ(refusal(201, ""), "");
  EXPECT_EQ(refusal(400, kNoDryRun), "");
  EXPECT_EQ(refusal(403, "exceeded quota"), "");
  EXPECT_EQ(doubt, "exceeded quota") << "as things are";
  EXPECT_EQ(refusal(409, "pods \"j-worker-0-1\" already exists"), "");
  EXPECT_EQ(refusal(500, "failed calling webhook"), "");
  EXPECT_EQ(refusal(0, ""), "");
}

/// Of a hundred jobs with one template the first costs a request.
TEST_F(TrialTest, APodThatWasTakenIsNotPutToTheServerAgain) {
  PodTrials trials;
  World world;
  const auto asked = [&](World& of) {
    server.asked.clear();
    (void)trials.try_pod(client, *of.o.job, {}, *of.o.wanted.accepted, of.now);
    return server.asked.size();
  };
  EXPECT_EQ(asked(world), 1u);
  EXPECT_EQ(asked(world), 0u);
  World another;
  another.o.job->name = "another";
  another.o.job->uid = "another-uid";
  EXPECT_EQ(asked(another), 0u) << "it differs in the name";
  another.o.job->ns = "elsewhere";
  EXPECT_EQ(asked(another), 1u) << "its namespace may have other rules";
  World image;
  image.edit("/workers/template/spec/containers",
             Json::parse(R"([{"name": "worker", "image": "i:2"}])"));
  EXPECT_EQ(asked(image), 1u);
  world.now += std::chrono::hours(2);
  EXPECT_EQ(asked(world), 1u) << "the server may be another version by now";
  // What it does not take is asked each time.
  World refused;
  refused.edit("/workers/template/spec/priorityClassName", "nope");
  server.status = 403;
  EXPECT_EQ(asked(refused), 1u);
  EXPECT_EQ(asked(refused), 1u);
}

TEST_F(TrialTest, ThePodIsWorkerZerosUnderAnAccountThatIsThere) {
  EXPECT_EQ(refusal(201, ""), "");
  ASSERT_EQ(server.asked.size(), 1u);
  EXPECT_EQ(server.asked[0].path, "/api/v1/namespaces/n/pods?dryRun=All&fieldValidation=Strict");
  const Json pod = Json::parse(server.asked[0].body);
  EXPECT_EQ(pod["metadata"]["name"], "j-worker-0-1");
  EXPECT_FALSE(pod["spec"].contains("serviceAccountName"));
  EXPECT_TRUE(server.server.objects(kube::resources::pods()).empty());
  World named;
  named.edit("/workers/template/spec/serviceAccountName", "theirs");
  (void)ask(named);
  EXPECT_EQ(Json::parse(server.asked[1].body)["spec"]["serviceAccountName"], "theirs");
}

TEST_F(TrialTest, AJobBeforeItIsStoredHasNoUidAndPerhapsNoName) {
  World world;
  world.o.job->name = world.o.job->uid = "";
  (void)ask(world);
  const Json pod = Json::parse(server.asked.at(0).body);
  EXPECT_EQ(pod["metadata"]["name"], "job-worker-0-1");
  EXPECT_FALSE(pod["metadata"]["ownerReferences"][0]["uid"].get<std::string>().empty());
}

TEST_F(TrialTest, ARefusedJobMakesNothingAndIsPutToTheServerAgain) {
  server.status = 400;
  server.sentence = kUnknown;
  submit();
  turns(40);
  EXPECT_THAT(accepted(), StartsWith("False PodRefused: spec.workers.template: "));
  EXPECT_THAT(accepted(), HasSubstr("unknown field \"spec.tolerationz\""));
  EXPECT_EQ(status().phase, "Refused");
  EXPECT_EQ(status().reason, "PodRefused");
  EXPECT_TRUE(is_true(status().conditions, "Stalled"));
  EXPECT_EQ(count(kube::resources::pods()), 0u);
  EXPECT_EQ(count(kube::resources::services()), 0u);
  EXPECT_GE(server.asked.size(), 3u);
  EXPECT_LE(server.asked.size(), 5u) << "every 10 s";
  server.status = 201;  // an upgrade of the cluster
  turns(12);
  EXPECT_THAT(accepted(), StartsWith("True "));
  EXPECT_EQ(count(kube::resources::pods()), 2u);
}

TEST_F(TrialTest, ARefusedEditLeavesTheGangAlone) {
  submit();
  turns(5);
  ASSERT_EQ(count(kube::resources::pods()), 2u);
  const OwnStatus before = status();
  const size_t asked = server.asked.size();
  EXPECT_EQ(asked, 1u);
  server.status = 422;
  server.sentence = "Pod \"j-worker-0-1\" is invalid";
  server.server.edit(jobs_resource(), "n", "j", [](Json& job) {
    job["spec"]["workers"]["template"]["spec"]["tolerationz"] = Json::array();
  });
  for (int i = 0; i < 10; ++i) {  // each of the agent's reports is a pass
    server.server.edit(jobs_resource(), "n", "j",
                       [&](Json& job) { job["status"]["training"]["step"] = i; });
    turns(1);
  }
  EXPECT_THAT(accepted(), StartsWith("False PodRefused: the previous spec stays in force: "));
  EXPECT_EQ(status().revision, before.revision);
  EXPECT_EQ(count(kube::resources::pods()), 2u);
  EXPECT_EQ(server.asked.size(), asked + 1);
}

TEST_F(TrialTest, AnEditThatChangesNoPodAsksNothing) {
  submit();
  turns(5);
  const size_t asked = server.asked.size();
  server.server.edit(jobs_resource(), "n", "j", [](Json& job) { job["spec"]["backoffLimit"] = 9; });
  turns(5);
  EXPECT_THAT(accepted(), StartsWith("True "));
  EXPECT_EQ(server.asked.size(), asked);
}

}  // namespace
}  // namespace dsj::op::testing
