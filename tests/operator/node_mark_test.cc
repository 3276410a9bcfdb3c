// What is left on an unfit node: the patches, who asks for them, and what becomes of them at a server.
#include "operator/observe/node_mark.h"

#include <gmock/gmock.h>
#include <spdlog/spdlog.h>

#include "job/node_health.h"
#include "operator/act/apply.h"
#include "tests/kube/fake_api_server.h"
#include "tests/operator/sim/clock.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using kube::resources::nodes;
using kube::testing::Fault;
using ::testing::HasSubstr;

const Time kFound{Seconds(1'767'225'600)};
const NodeMark kMark = node_mark("n1", "team/j", "GPU 3 is lost (XID 79)", kFound);

TEST(NodeMark, SaysWhoFoundWhatAndWhen) {
  EXPECT_EQ(kMark.text, "2026-01-01T00:00:00Z team/j: GPU 3 is lost (XID 79)");
  EXPECT_EQ(mark_patch(kMark, nullptr),
            (Json{{"metadata", {{"annotations", {{"training.dsj.dev/unhealthy", kMark.text}}}}}}));
}

TEST(NodeMark, OtherTaintsStayAndOurOwnIsThereOnce) {
  Json node = Json::parse(R"({
      "metadata": {"name": "n1", "resourceVersion": "7"},
      "spec": {"taints": [{"key": "gpu", "value": "h200", "effect": "NoSchedule"}]}})");
  const Json patch = mark_patch(kMark, &node);
  EXPECT_EQ(patch["metadata"]["resourceVersion"], "7") << "over the list that was read";
  ASSERT_EQ(patch["spec"]["taints"].size(), 2u);
  EXPECT_EQ(patch["spec"]["taints"][0], node["spec"]["taints"][0]);
  EXPECT_EQ(patch["spec"]["taints"][1],
            (Json{{"key", "training.dsj.dev/unhealthy"}, {"effect", "NoSchedule"}}));
  node["spec"]["taints"] = patch["spec"]["taints"];
  EXPECT_EQ(mark_patch(kMark, &node), mark_patch(kMark, nullptr)) << "only what was found is new";
  for (const char* odd : {"{}", R"({"spec": {"taints": 5}})", R"({"spec": {"taints": [5]}})"}) {
    const Json other = Json::parse(odd);
    EXPECT_EQ(mark_patch(kMark, &other)["spec"]["taints"].back()["effect"], "NoSchedule") << odd;
  }
}

// ---- who asks

std::vector<NodeMark> marks_of(NodeMarks choice, const std::string& reason) {
  World world(quick_spec(3));
  world.o.settings.node_marks = choice;
  world.settle();
  world.run_pods();
  for (const int worker : {1, 2}) {
    PodView& pod = world.pod(worker);
    pod.node = "bad";
    pod.created = world.now;
    world.end(pod, contract::kExitUnhealthyNode, reason);
    pod.termination->attempt.reset();
  }
  std::vector<NodeMark> marks = world.pass().marks;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(world.pass().marks.empty())
        << "the status has the node: a person may have mended it";
  }
  return marks;
}

TEST(NodeMark, IsAskedForOnceAndByChoice) {
  EXPECT_TRUE(marks_of(NodeMarks::None, contract::kReasonUnhealthyNode).empty());
  EXPECT_TRUE(marks_of(NodeMarks::Taint, "RankFailed").empty());
  for (const auto choice : {NodeMarks::Annotate, NodeMarks::Taint}) {
    const auto marks = marks_of(choice, contract::kReasonUnhealthyNode);
    ASSERT_EQ(marks.size(), 1u) << "two pods were there";
    EXPECT_EQ(marks[0].node, "bad");
    EXPECT_THAT(marks[0].text, HasSubstr("n/j: said UnhealthyNode"));
  }
}

// ---- at a server

class MarkTest : public ::testing::Test, public EventSink {
 protected:
  MarkTest() {
    spdlog::set_level(spdlog::level::off);
    server.serve(jobs_resource(), true);
    Json job = {{"apiVersion", jobspec::kApiVersion},
                {"kind", jobspec::kKind},
                {"metadata", {{"name", "j"}, {"namespace", "n"}}},
                {"spec", quick_spec()}};
    observed.ns = "n";
    observed.name = "j";
    EXPECT_TRUE(client.create(jobs_resource(), "n", job));
    const Json node = Json::parse(R"({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "spec": {"taints": [{"key": "gpu", "effect": "NoExecute"}]}})");
    EXPECT_TRUE(client.create(nodes(), "", node));
  }
  void tell(const JobView&, const Event& event) override { told.push_back(event); }
  Applied mark(NodeMarks choice, const std::string& name = "n1") {
    struct NoWrites final : Writes {
      void wrote(const std::string&, const Json&) override {}
    } writes;
    observed.job = job_view(server.objects(jobs_resource())[0]);
    observed.settings.node_marks = choice;
    NodeMark wanted = kMark;
    wanted.node = name;
    return apply(
        client, observed, {.marks = {wanted}, .status = {{"phase", "Pending"}}},
        [] { return true; }, writes, *this);
  }
  Json node() { return server.objects(nodes())[0]; }
  bool has_status() { return server.objects(jobs_resource())[0].contains("status"); }
  /// Requests to write the node meet `fault`, `count` of them.
  void refuse(Fault fault, int count = 1000) {
    server.set_fault([fault, count](const kube::Request& request) mutable {
      const bool hit = request.method == "PATCH" && request.path.contains("/nodes/") && count-- > 0;
      return hit ? fault : Fault{};
    });
  }

  kube::testing::FakeApiServer server;
  sim::SimClock clock;
  kube::Client client{server, clock};
  Observed observed;
  std::vector<Event> told;
};

TEST_F(MarkTest, AnAnnotationNeedsOneRightOnly) {
  const Applied applied = mark(NodeMarks::Annotate);
  EXPECT_TRUE(applied.done) << applied.problem;
  EXPECT_EQ(node()["metadata"]["annotations"][kNodeMarkName], kMark.text);
  EXPECT_EQ(node()["spec"]["taints"].size(), 1u);
  EXPECT_EQ(server.requests("GET"), 0);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].reason, "NodeAnnotated");
  EXPECT_TRUE(has_status());
}

TEST_F(MarkTest, ATaintIsAddedToTheOthers) {
  EXPECT_TRUE(mark(NodeMarks::Taint).done);
  EXPECT_TRUE(mark(NodeMarks::Taint).done) << "again, and it is one";
  ASSERT_EQ(node()["spec"]["taints"].size(), 2u);
  EXPECT_EQ(node()["spec"]["taints"][0]["key"], "gpu");
  EXPECT_EQ(node()["spec"]["taints"][1]["key"], kNodeMarkName);
  EXPECT_EQ(node()["metadata"]["annotations"][kNodeMarkName], kMark.text);
  EXPECT_EQ(told[0].reason, "NodeTainted");
}

TEST_F(MarkTest, AMissingRightIsToldAndStopsNothing) {
  refuse({Fault::Kind::Refuse, 403});
  const Applied applied = mark(NodeMarks::Taint);
  EXPECT_TRUE(applied.done) << applied.problem;
  EXPECT_TRUE(has_status());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].type + " " + told[0].reason, "Warning NodeNotMarked");
  EXPECT_THAT(told[0].message, HasSubstr("node n1"));
  EXPECT_THAT(told[0].message, HasSubstr("unhealthyNodes.mark"));
}

TEST_F(MarkTest, ANodeThatIsGoneIsToldToo) {
  EXPECT_TRUE(mark(NodeMarks::Taint, "gone").done);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].reason, "NodeNotMarked");
}

/// The status is written after the mark, so the next pass asks for it again.
TEST_F(MarkTest, WithoutAnAnswerNothingIsForgotten) {
  refuse({Fault::Kind::LoseRequest});
  const Applied applied = mark(NodeMarks::Annotate);
  EXPECT_FALSE(applied.done);
  EXPECT_THAT(applied.problem, HasSubstr("mark of node n1"));
  EXPECT_FALSE(has_status());
  EXPECT_TRUE(told.empty());
}

TEST_F(MarkTest, AnotherWriteInBetweenIsReadFirst) {
  refuse({Fault::Kind::Refuse, 409}, 2);
  EXPECT_TRUE(mark(NodeMarks::Taint).done);
  EXPECT_EQ(server.requests("GET"), 3);
  EXPECT_EQ(node()["spec"]["taints"].size(), 2u);
  refuse({Fault::Kind::Refuse, 409});
  EXPECT_FALSE(mark(NodeMarks::Taint).done) << "the next pass tries again";
}

}  // namespace
}  // namespace dsj::op::testing
