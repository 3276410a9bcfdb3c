#include "agent/pod_node.h"

#include <gmock/gmock.h>

namespace dsj::agent {
namespace {

using jobspec::NodeHealthAction;
using testing::HasSubstr;
using testing::IsEmpty;

/// A node that is what the test says.
struct FakeProbe final : NodeProbe {
  explicit FakeProbe(const NodeFacts& facts, int* looks = nullptr) : facts(facts), looks(looks) {}
  NodeFacts look() override {
    if (looks) ++*looks;
    return facts;
  }
  NodeFacts facts;
  int* looks;
};

const NodeFacts kBad{.memory_available = 1 << 30, .output_free = 0};
const NodeNeeds kMemoryNeeds{.memory_request = int64_t(2) << 30};

NodeCheck check(NodeHealthAction action, int* looks = nullptr) {
  return {std::make_unique<FakeProbe>(kBad, looks), kMemoryNeeds, action};
}

TEST(NodeCheck, MoveNamesTheNodesProblemsAndTellsTheRest) {
  const auto found = check(NodeHealthAction::Move).look();
  EXPECT_THAT(found.unfit, HasSubstr("of memory available"));
  ASSERT_EQ(found.told.size(), 1u);
  EXPECT_THAT(found.told[0], HasSubstr("output directory"));
  EXPECT_EQ(found.problems, 2u);
}

TEST(NodeCheck, ReportMovesNothing) {
  const auto found = check(NodeHealthAction::Report).look();
  EXPECT_EQ(found.unfit, "");
  EXPECT_EQ(found.told.size(), 2u);
}

TEST(NodeCheck, OffDoesNotLook) {
  int looks = 0;
  const auto found = check(NodeHealthAction::Off, &looks).look();
  EXPECT_EQ(looks, 0);
  EXPECT_EQ(found.unfit, "");
  EXPECT_THAT(found.told, IsEmpty());
}

/// After the first look the container uses its memory itself.
TEST(NodeCheck, MemoryIsJudgedOnce) {
  NodeCheck twice = check(NodeHealthAction::Move);
  EXPECT_NE(twice.look().unfit, "");
  EXPECT_EQ(twice.look().unfit, "");
}

}  // namespace
}  // namespace dsj::agent
