#include "cli/run/run_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/exit_codes.h"
#include "common/files/memory_files.h"
#include "job/contract.h"
#include "tests/cli/fake_agents.h"
#include "tests/cli/written.h"

namespace dsj::cli {
namespace {

using namespace std::chrono_literals;
using namespace dsj::contract;
using testing::HasSubstr;

/// Node 1 of two; the test writes node 0's files.
struct FollowerTest : testing::Test {
  MemoryFiles files;
  FakeRunClock clock;
  FakeAgents agents{clock, 2};
  std::FILE* out = std::tmpfile();
  std::FILE* err = std::tmpfile();
  RunClock::Time patience{900'000};
  static constexpr char kConfig[] = "/o/.dsj/agent.json";

  void SetUp() override {
    ASSERT_TRUE(files.make_dirs("/o/.dsj"));
    agents.forever = [this] {
      ASSERT_LT(clock.time, 2h);
      if (clock.time > 110min) agents.end(1, kExitBadInput);
    };
  }
  void TearDown() override {
    std::fclose(out);
    std::fclose(err);
  }
  void node_zero_begins(const std::string& run, int slots = 2, std::chrono::seconds limit = 0s) {
    agent::AgentConfig config;
    config.job = {.name = "j", .run = run, .world_size = 2 * slots};
    config.job.ds_config = nlohmann::json::object();
    config.replicas = 2;
    config.slots = slots;
    config.key = "key";
    config.gather_limit = limit;
    config.rank_command = {"/bin/rank"};
    ASSERT_TRUE(files.write_atomically(kConfig, agent::to_text(config)));
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) on_turn([] {});
  }
  void on_turn(std::function<void()> play) { agents.turns.push_back(std::move(play)); }
  int run() {
    return Follower({.nodes = {.count = 2, .rank = 1},
                     .slots = 2,
                     .output_dir = "/o",
                     .config_file = kConfig,
                     .first_life = 100,
                     .patience = patience},
                    {.agents = agents, .files = files, .clock = clock, .out = out, .err = err})
        .run();
  }
};

TEST_F(FollowerTest, JoinsNodeZeroAndEndsWithTheJob) {
  using Told = std::tuple<int, int, const char*>;
  for (const auto& [agents_code, code, says] :
       {Told{kExitDone, 0, "done"}, Told{kExitFailed, 1, "the job failed"},
        Told{kExitPreempted, 130, "stopped"}, Told{kExitNotFinite, 7, "cannot go on"},
        Told{kExitBadInput, 2, "cannot go on"},
        Told{agent::kExitNodesMissing, kExitNodes, "node 0 says which"}}) {
    agents.starts.clear();
    std::rewind(out), std::rewind(err);
    ASSERT_TRUE(files.write_atomically(kConfig, ""));
    turns(20);
    on_turn([&] { EXPECT_TRUE(agents.starts.empty()) << "nobody to join"; });
    on_turn([&] { node_zero_begins("a"); });
    turns(10);
    on_turn([&] {
      EXPECT_TRUE(agents.lives[1].runs);
      agents.end(1, agents_code);
    });
    EXPECT_EQ(run(), code);
    ASSERT_EQ(agents.starts.size(), 1u);
    EXPECT_EQ(agents.starts[0].second, 1);
    EXPECT_EQ(agents.lives[1].incarnation, 100);
    EXPECT_THAT(written(out) + written(err), HasSubstr(says));
  }
}

TEST_F(FollowerTest, AnAgentThatDiesIsStartedAgainWithTheNextIncarnation) {
  node_zero_begins("a");
  turns(5);
  on_turn([&] { agents.kill(1); });
  turns(10);
  on_turn([&] {
    EXPECT_EQ(agents.lives[1].incarnation, 101);
    agents.end(1, kExitDone);
  });
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(written(err), HasSubstr("its agent ended with signal 9"));
}

TEST_F(FollowerTest, AnAgentThatCannotStayUpEndsTheNode) {
  node_zero_begins("a");
  for (int i = 0; i < 200; ++i)
    on_turn([&] {
      if (agents.lives[1].runs) agents.end(1, 99);
    });
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(agents.starts.size(), 10u);
}

TEST_F(FollowerTest, ARestartedNodeZeroIsJoinedAgain) {
  node_zero_begins("a");
  turns(5);
  on_turn([&] { node_zero_begins("b"); });
  turns(10);
  on_turn([&] {
    EXPECT_EQ(agents.lives[1].kills, 1) << "the old run's agent";
    EXPECT_EQ(agents.lives[1].incarnation, 101);
    agents.end(1, kExitDone);
  });
  EXPECT_EQ(run(), 0);
}

TEST_F(FollowerTest, ALostNodeZeroMayRestart) {
  node_zero_begins("a");
  turns(5);
  on_turn([&] { agents.end(1, kExitPeerLost); });
  turns(50);
  on_turn([&] { node_zero_begins("b"); });
  turns(10);
  on_turn([&] { agents.end(1, kExitDone); });
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(written(err), HasSubstr("node 0 does not answer"));
}

TEST_F(FollowerTest, TheFinalMessageOfACompleteJobMayBeLost) {
  node_zero_begins("a");
  turns(5);
  on_turn([&] {
    ASSERT_TRUE(files.write_atomically("/o/status.yaml", "phase: Complete\n"));
    agents.end(1, kExitPeerLost);
  });
  EXPECT_EQ(run(), 0);
}

TEST_F(FollowerTest, WaitsFifteenMinutesByDefault) {
  EXPECT_EQ(run(), kExitNodes);
  EXPECT_GE(clock.time, 15min);
  EXPECT_LT(clock.time, 16min);
  EXPECT_THAT(written(err), HasSubstr("node 0 has not begun: /o/.dsj/agent.json is not there"));
}

/// Both nodes wait as long as node 0's line allows, once it is known.
TEST_F(FollowerTest, NodeZerosLimitAppliesToAllNodes) {
  for (const auto& [own, zeros] : {std::pair{60s, 300s}, std::pair{1200s, 120s}}) {
    patience = own;
    clock.time = {};
    ASSERT_TRUE(files.write_atomically(kConfig, ""));
    on_turn(
        [&, limit = zeros] { node_zero_begins("a" + std::to_string(limit.count()), 2, limit); });
    turns(10);
    on_turn([&] { agents.end(1, kExitPeerLost); });
    EXPECT_EQ(run(), kExitNodes);
    EXPECT_GE(clock.time, zeros);
    EXPECT_LT(clock.time, zeros + 10s);
    EXPECT_THAT(written(err), HasSubstr("(waited " + std::to_string(zeros.count()) + " s)"));
  }
}

TEST_F(FollowerTest, ALineThatDiffersFromNodeZerosDoesNotJoin) {
  node_zero_begins("a", 4);
  EXPECT_EQ(run(), 2);
  EXPECT_TRUE(agents.starts.empty());
  EXPECT_THAT(written(err), HasSubstr("node 0 has 2 nodes with 4 ranks each, this line 2 with 2"));
}

TEST_F(FollowerTest, AStopIsForwardedAndASecondOneKills) {
  node_zero_begins("a");
  turns(5);
  on_turn([&] { agents.stop_requests = 1; });
  on_turn([&] {
    EXPECT_EQ(agents.lives[1].stops, 1);
    EXPECT_EQ(agents.lives[1].kills, 0);
    agents.stop_requests = 1;
  });
  EXPECT_EQ(run(), 130);
  EXPECT_EQ(agents.lives[1].kills, 1);
  EXPECT_TRUE(agents.strays_killed);
}

TEST_F(FollowerTest, AStopEndsTheWait) {
  on_turn([&] { agents.stop_requests = 1; });
  EXPECT_EQ(run(), 130);
  EXPECT_TRUE(agents.starts.empty());
}

}  // namespace
}  // namespace dsj::cli
