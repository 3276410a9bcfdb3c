#include "agent/stacks/stack_text.h"

#include <gmock/gmock.h>

#include "agent/stacks/stack_taker.h"
#include "tests/support/soon.h"

namespace dsj::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<StackFrame> kWaits = {
    {"nanosleep", "libc.so.6"},
    {"", "libx.so"},
    {"std::vector<int (*)(char)>::wait(int) const", "dsj-train"},
    {"(anonymous namespace)::run(char**)", "dsj-train"},
    {"main", "dsj-train"}};

TEST(StackText, ThreadsWithTheSameStackStandTogether) {
  const RankStacks rank{.rank = 3,
                        .pid = 70,
                        .threads = {{70, "dsj-train", kWaits, ""},
                                    {71, "pool", {{"work", "a.so"}}, "the stack cannot be read"},
                                    {72, "pool", {{"work", "a.so"}}, "the stack cannot be read"}}};
  EXPECT_THAT(
      lines_of(rank),
      ElementsAre("rank 3, process 70", "  thread 70 dsj-train", "    nanosleep (libc.so.6)",
                  "    ? (libx.so)", "    std::vector<int (*)(char)>::wait(int) const (dsj-train)",
                  "    (anonymous namespace)::run(char**) (dsj-train)", "    main (dsj-train)",
                  "  2 threads 71 pool, 72 pool", "    work (a.so)",
                  "    incomplete: the stack cannot be read"));
}

TEST(StackText, AStackThatIsNotKnownSaysWhy) {
  const RankStacks rank{.rank = 1, .pid = 7, .problem = "process 7: it is gone"};
  EXPECT_THAT(lines_of(rank), ElementsAre("rank 1, process 7: process 7: it is gone"));
  EXPECT_EQ(where_of(rank), "at an unknown location: process 7: it is gone");
}

TEST(StackText, ASentenceNamesTheInnermostFunctionsWithoutArguments) {
  RankStacks rank{.threads = {{70, "dsj-train", kWaits, ""}}};
  EXPECT_EQ(where_of(rank),
            "in nanosleep < std::vector<int (*)(char)>::wait < (anonymous namespace)::run < main "
            "(thread 70, dsj-train)");
  rank.threads[0].frames.assign(9, {std::string(99, 'x'), ""});
  const std::string where = where_of(rank);
  EXPECT_THAT(where, HasSubstr("xxx... < xxx"));
  EXPECT_LT(where.size(), 6 * 64 + 40);
  rank.threads[0].frames = {{"", ""}};
  EXPECT_EQ(where_of(rank), "in code without names (thread 70, dsj-train)");
}

TEST(StackTaker, AnswersOnceForEveryRankAndTakesOneRequestAtATime) {
  StackTaker taker;
  EXPECT_FALSE(taker.take());
  ASSERT_TRUE(taker.start({{4, 1 << 30}, {5, 1 << 30}}));
  EXPECT_FALSE(taker.start({{6, 1 << 30}})) << "until its answer is taken";
  std::optional<std::vector<RankStacks>> taken;
  ASSERT_TRUE(soon([&] { return (taken = taker.take()).has_value(); }));
  ASSERT_EQ(taken->size(), 2u);
  EXPECT_EQ((*taken)[1].rank, 5);
  EXPECT_EQ((*taken)[1].problem, "process 1073741824: it is gone");
  EXPECT_FALSE(taker.take());
  EXPECT_TRUE(taker.start({}));
}

}  // namespace
}  // namespace dsj::agent
