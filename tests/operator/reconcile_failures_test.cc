// Failures: whose fault, charged or not, and what follows.
#include <gmock/gmock.h>

#include <random>

#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

/// Past any pause between restarts.
void later(World& world, int seconds = 31) {
  world.settle();
  world.now += Seconds(seconds);
  world.o.job->agent.updated = world.now;
  world.settle();
}

TEST(Failures, AFailedPodIsReplacedAndTheOthersStay) {
  World world;
  world.to_running();
  const std::string survivor = world.pod(0).uid;
  world.pod(1).termination = Termination{};
  world.end(world.pod(1), 1, "CudaOutOfMemory", 4);
  world.pod(1).termination->rank = 1;
  world.pod(1).termination->rank_signal = 9;
  world.pod(1).termination->last_words = "the last line";
  world.settle();
  EXPECT_EQ(world.phase(), "Restarting");
  EXPECT_EQ(world.condition("Restarting"), "True CudaOutOfMemory");
  EXPECT_EQ(world.status().restarts.total, 1);
  EXPECT_EQ(world.status().restarts.counted, 1);
  const Json failure = world.status().last_failure;
  EXPECT_EQ(failure["pod"], "j-worker-1-1");
  EXPECT_EQ(failure["node"], "node-1");
  EXPECT_EQ(failure["rank"], 1);
  EXPECT_EQ(failure["signal"], 9);
  EXPECT_EQ(failure["lastWords"], "the last line");
  EXPECT_THAT(world.pod_names(),
              UnorderedElementsAre("j-worker-0-1", "j-worker-1-1", "j-worker-1-2"))
      << "the first failure is followed at once";
  EXPECT_EQ(world.pod(0).uid, survivor);
  EXPECT_EQ(world.phase(), "Restarting");
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.condition("Restarting"), "False NotRestarting");
  EXPECT_EQ(world.status().restarts.total, 1);  // the new attempt is not charged again
}

TEST(Failures, OneEndedAttemptIsChargedOnce) {
  World world(quick_spec(4));
  world.to_running();
  for (int worker = 0; worker < 4; ++worker) {  // one after the other, as watches tell
    world.end(world.pod(worker), 1, "RankFailed");
    world.settle();
  }
  EXPECT_EQ(world.status().restarts.total, 1);
  later(world);
  world.start_attempt();
  EXPECT_EQ(world.status().restarts.total, 1);
  EXPECT_EQ(world.status().restarts.counted, 1);
}

TEST(Failures, TheCauseIsNamedAndNotItsVictims) {
  World world(quick_spec(3));
  world.to_running();
  world.end(world.pod(0), contract::kExitPeerLost, "PeerLost");
  world.end(world.pod(1), 1, "LossNotFinite");
  world.end(world.pod(2), contract::kExitPeerLost, "PeerLost");
  world.settle();
  EXPECT_EQ(world.status().last_failure["reason"], "LossNotFinite");
  EXPECT_EQ(world.status().failure_history.size(), 1u);
}

TEST(Failures, VictimsOfAnUncountedCauseAreUncounted) {
  World world(quick_spec(3));
  world.to_running();
  world.end(world.pod(0), 137, "Error");
  world.pod(0).conditions.push_back("DisruptionTarget");
  world.end(world.pod(1), contract::kExitPeerLost, "PeerLost");
  world.end(world.pod(2), contract::kExitPeerLost, "PeerLost");
  world.settle();
  EXPECT_EQ(world.status().restarts.total, 1);
  EXPECT_EQ(world.status().restarts.counted, 0);
  // Of a counted cause they are counted with it, once.
  World counted(quick_spec(3));
  counted.to_running();
  counted.end(counted.pod(0), 1, "RankFailed");
  counted.end(counted.pod(1), contract::kExitPeerLost, "PeerLost");
  counted.settle();
  EXPECT_EQ(counted.status().restarts.counted, 1);
}

/// The agents that wait for a worker without a node end after half an hour.
TEST(Failures, WaitingForCapacityIsNotCharged) {
  World world(quick_spec(3));
  world.to_running();
  std::erase_if(world.o.pods, [](const PodView& pod) { return pod.worker == 0; });
  world.settle();
  EXPECT_EQ(world.status().last_failure["reason"], "PodDeleted");
  for (int round = 1; round <= 5; ++round) {  // backoffLimit is 3
    world.pod(0).unscheduled = "0/2 nodes are available: insufficient nvidia.com/gpu";
    for (const int worker : {1, 2}) {
      world.pod(worker).phase = PodView::Phase::Running;
      world.end(world.pod(worker), contract::kExitPeerLost, "PeerLost");
      world.pod(worker).termination->attempt.reset();
    }
    later(world);
    ASSERT_EQ(world.condition("Failed"), "False NotFinished") << round;
    EXPECT_EQ(world.status().restarts.counted, 0) << round;
  }
  // With every pod running nobody else is to blame.
  for (PodView& pod : world.o.pods) pod.unscheduled.clear();
  world.run_pods();
  world.end(world.pod(1), contract::kExitPeerLost, "PeerLost");
  world.pod(1).termination->attempt.reset();
  later(world);
  EXPECT_EQ(world.status().restarts.counted, 1);
}

TEST(Failures, TheBudgetEndsACrashLoop) {
  World world;  // backoffLimit 3
  world.to_running();
  for (int round = 1; round <= 3; ++round) {
    world.end(world.pod(1), 1, "RankFailed");
    later(world);
    EXPECT_EQ(world.status().restarts.counted, round);
    world.start_attempt();
    EXPECT_EQ(world.phase(), "Running") << round;
  }
  world.end(world.pod(1), 1, "RankFailed");
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "True BackoffLimitExceeded");
  EXPECT_THAT(world.message("Failed"), HasSubstr("backoffLimit 3"));
  EXPECT_EQ(world.status().restarts.total, 3);
  for (const PodView& pod : world.o.pods) EXPECT_TRUE(pod.ended() || pod.deleting_from);
}

TEST(Failures, ANewerCheckpointGivesTheBudgetBack) {
  World world;
  world.to_running();
  for (int round = 1; round <= 10; ++round) {
    world.o.job->agent.saved_step = round * 5;
    world.end(world.pod(1), 1, "RankFailed");
    later(world);
    world.start_attempt();
    ASSERT_EQ(world.phase(), "Running") << round;
  }
  EXPECT_EQ(world.status().restarts.total, 10);
  EXPECT_EQ(world.status().restarts.counted, 1);
  EXPECT_EQ(world.status().failure_history.size(), kHistoryMax);
}

TEST(Failures, APodThatNeverStartsAnAttemptIsChargedEveryTime) {
  World world;
  world.settle();
  for (int round = 1; round <= 3; ++round) {
    world.run_pods();
    world.end(world.pod(0), 1, "JoinFailed");
    world.pod(0).termination->attempt.reset();
    later(world);
    EXPECT_EQ(world.status().restarts.total, round);
  }
  world.run_pods();
  world.end(world.pod(0), 1, "JoinFailed");
  world.pod(0).termination->attempt.reset();
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "True BackoffLimitExceeded");
}

struct Case {
  const char* name;
  int code;
  const char* reason;
  Json policy;
  const char* pod_condition;
  const char* failed;  ///< of condition Failed; null: another attempt
  int counted;
};

class FailureTable : public ::testing::TestWithParam<Case> {};

TEST_P(FailureTable, IsDecided) {
  const Case& c = GetParam();
  Json spec = quick_spec();
  spec["failurePolicy"] = c.policy;
  World world(spec);
  world.to_running();
  world.end(world.pod(1), c.code, c.reason);
  if (*c.pod_condition) world.pod(1).conditions.push_back(c.pod_condition);
  world.settle();
  if (c.failed) {
    EXPECT_EQ(world.condition("Failed"), std::string("True ") + c.failed);
    EXPECT_EQ(world.phase(), "Failed");
    return;
  }
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
  EXPECT_EQ(world.status().restarts.total, 1);
  EXPECT_EQ(world.status().restarts.counted, c.counted);
  later(world);
  EXPECT_EQ(world.pod(1).incarnation, 2);
}

Json rules(const char* text) {
  return {{"rules", Json::parse(text)}};
}

INSTANTIATE_TEST_SUITE_P(
    Cases, FailureTable,
    ::testing::Values(
        Case{"RankFailed", 1, "RankFailed", {}, "", nullptr, 1},
        Case{"Environment", 3, "NoSpace", {}, "", "NoSpace", 0},
        Case{"BadInput", 2, "DoesNotFit", {}, "", "DoesNotFit", 0},
        Case{"AgentsBudget", 1, "BackoffLimitExceeded", {}, "", "BackoffLimitExceeded", 0},
        Case{"Preempted", 87, "Preempted", {}, "", nullptr, 0},
        Case{"Killed", 137, "OOMKilled", {}, "", nullptr, 1},
        Case{"Evicted", 137, "Error", {}, "DisruptionTarget", nullptr, 0},
        Case{"DoneWithoutWords", 0, "Error", {}, "", nullptr, 1},
        Case{"RuleFails", 137, "OOMKilled",
             rules(R"([{"action": "FailJob", "onExitCodes": {"values": [137]}}])"), "",
             "FailurePolicy", 0},
        Case{"RuleForgives", 1, "CudaOutOfMemory",
             rules(R"([{"action": "RestartUncounted", "onReasons": ["CudaOutOfMemory"]}])"), "",
             nullptr, 0},
        Case{"RuleSavesFatal", 3, "NoSpace",
             rules(R"([{"action": "Restart", "onReasons": ["NoSpace"]}])"), "", nullptr, 1},
        Case{
            "RuleNotIn", 42, "Error",
            rules(
                R"([{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1, 137]}}])"),
            "", "FailurePolicy", 0},
        Case{"FirstRuleWins", 1, "X",
             rules(R"([{"action": "RestartUncounted", "onExitCodes": {"values": [1]}},
                       {"action": "FailJob", "onReasons": ["X"]}])"),
             "", nullptr, 0},
        Case{"RulePodCondition", 137, "Error",
             rules(R"([{"action": "FailJob", "onPodConditions": ["DisruptionTarget"]}])"),
             "DisruptionTarget", "FailurePolicy", 0}),
    [](const auto& info) { return info.param.name; });

TEST(Failures, WhatEndsTheJobIsNamedNotWhatHappenedBesideIt) {
  World world;
  world.to_running();
  world.end(world.pod(0), 1, contract::kReasonBackoffLimitExceeded);
  std::erase_if(world.o.pods, [](const PodView& pod) { return pod.worker == 1; });
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "True BackoffLimitExceeded") << "not PodDeleted";
}

/// Exit code 3: no checkpoint is sound.
TEST(Failures, WhyNoAttemptWouldHelpIsInTheConditionAndAnEvent) {
  const std::string why =
      "rank 1 ended with exit code 3: /o/checkpoints/step-6/rank-00001.bin: block 0, the 4096 "
      "bytes from 0 on, does not match its checksum (no complete checkpoint is left)";
  World world;
  world.to_running();
  world.end(world.pod(1), contract::kExitEnvironment, "Environment");
  world.pod(1).termination->message = why;
  std::vector<std::string> told;
  for (int pass = 0; pass < 3; ++pass) {
    for (const Event& event : world.pass().events) {
      if (event.message == why) told.push_back(event.type + " " + event.reason);
    }
  }
  EXPECT_EQ(world.condition("Failed"), "True Environment");
  EXPECT_EQ(world.message("Failed"), why);
  EXPECT_EQ(told, std::vector<std::string>{"Warning Environment"});
  EXPECT_EQ(world.status().restarts.total, 0);
}

TEST(Failures, RestartPolicyNeverEndsTheJob) {
  Json spec = quick_spec();
  spec["restartPolicy"] = "Never";
  World world(spec);
  world.to_running();
  world.end(world.pod(0), 1, "RankFailed");
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "True BackoffLimitExceeded");
}

TEST(Failures, WorkersThatAreDoneComeAgainWhenOneFailed) {
  World world;
  world.to_running();
  world.end(world.pod(0), 0, "Completed", 10);
  world.settle();
  world.end(world.pod(1), 137, "Error");
  later(world);
  EXPECT_EQ(world.condition("Complete"), "False NotFinished");
  EXPECT_EQ(world.pod(0).incarnation, 2);
  EXPECT_EQ(world.pod(1).incarnation, 2);
  world.start_attempt();
  world.end_all(0, "Completed", 10);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
}

TEST(Failures, APodThatIsGoneBeforeTheOthersAreDoneBringsAllBack) {
  World world;
  world.to_running();
  std::erase_if(world.o.pods, [](const PodView& pod) { return pod.worker == 1; });
  world.settle();
  EXPECT_EQ(world.pod(1).incarnation, 3);
  world.end(world.pod(0), 0, "Completed", 10);  // of the attempt that worker 1 has left
  world.settle();
  EXPECT_EQ(world.pod(0).incarnation, 4) << "more than any that the status remembers";
  world.start_attempt();
  world.end(world.pod(0), 0, "Completed", 10);
  world.settle();
  EXPECT_EQ(world.pod(0).incarnation, 4);
  world.end(world.pod(1), 0, "Completed", 10);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
}

TEST(Failures, ADeletedPodComesBackUnderAnotherName) {
  World world;
  world.to_running();
  std::erase_if(world.o.pods, [](const PodView& pod) { return pod.worker == 1; });
  world.settle();
  EXPECT_EQ(world.pod(1).name, "j-worker-1-3");
  EXPECT_EQ(world.status().restarts.total, 1);
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_EQ(world.status().last_failure["reason"], "PodDeleted");
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
}

TEST(Failures, AKeptPodOfBeforeDoesNotBringANameBack) {
  World world;
  world.to_running();
  world.end(world.pod(0), 137, "", 0);
  world.settle();
  later(world);
  EXPECT_EQ(world.pod(0).name, "j-worker-0-2");
  world.start_attempt();
  world.pod(0).deleting_from = world.now;  // by a user; the failed one is kept for its logs
  world.settle();
  std::erase_if(world.o.pods, [](const PodView& pod) { return pod.name == "j-worker-0-2"; });
  EXPECT_EQ(world.pod(0).name, "j-worker-0-1");
  world.settle();
  EXPECT_EQ(world.pod(0).name, "j-worker-0-3");
}

TEST(Failures, AnAttemptThatEndedInItsPodsIsRecorded) {
  World world;
  world.to_running();
  const auto pods = world.pod_names();
  world.agent_tells({{"attempt", 1},
                     {"worker", 1},
                     {"rank", 1},
                     {"signal", 9},
                     {"reason", "Killed"},
                     {"step", 7},
                     {"message", "bye"},
                     {"lastWords", "a line"}});
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.pod_names(), pods);
  EXPECT_EQ(world.status().restarts.total, 1);
  EXPECT_EQ(world.status().restarts.counted, 1);
  const Json failure = world.status().last_failure;
  EXPECT_EQ(failure["pod"], "j-worker-1-1");
  EXPECT_EQ(failure["node"], "node-1");
  EXPECT_EQ(failure["signal"], 9);
  EXPECT_EQ(failure["attempt"], 1);
  world.settle();
  EXPECT_EQ(world.status().restarts.total, 1);
}

TEST(Failures, AttemptsThatCameAndWentBetweenTwoLooksAreCharged) {
  const Json first = {{"attempt", 1}, {"worker", 0}, {"rank", 0}, {"exitCode", 1}};
  const Json told = {
      {"attempt", 2}, {"worker", 1}, {"rank", 1}, {"signal", 9}, {"reason", "Killed"}};
  World in_place;
  in_place.to_running();
  in_place.agent_tells(told, Json::array({first}));
  in_place.o.job->agent.attempt = 3;
  in_place.settle();
  EXPECT_EQ(in_place.status().restarts.total, 2);
  EXPECT_EQ(in_place.status().restarts.counted, 2);
  EXPECT_EQ(in_place.status().failure_history.size(), 2u);
  in_place.settle();
  EXPECT_EQ(in_place.status().restarts.counted, 2) << "each of them once";

  World with_pod;  // in the same look the third has ended, and its pod
  with_pod.to_running();
  with_pod.agent_tells(told, Json::array({first}));
  with_pod.o.job->agent.attempt = 3;
  with_pod.end(with_pod.pod(1), 1, "RankFailed");
  with_pod.settle();
  EXPECT_EQ(with_pod.status().restarts.total, 3);
  EXPECT_EQ(with_pod.status().restarts.counted, 3);
}

/// An agent of the last release records only the last failure.
TEST(Failures, AnAttemptOfWhichNobodyToldIsARestartAndIsNotCharged) {
  World world;
  world.to_running();
  world.agent_tells({{"attempt", 7}, {"worker", 1}, {"rank", 1}, {"exitCode", 1}});
  world.o.job->agent.attempt = 8;
  world.settle();
  EXPECT_EQ(world.status().restarts.total, 7);
  EXPECT_EQ(world.status().restarts.counted, 1);
  EXPECT_EQ(world.status().restarts.attempt, 7);
  EXPECT_EQ(world.phase(), "Running");
}

/// A job that saves between its failures does not fail because the operator was away.
TEST(Failures, FailuresWithACheckpointBetweenThemDoNotUseUpTheBudget) {
  World world;  // backoffLimit 3
  world.to_running();
  Json earlier = Json::array();
  const auto failure = [](int64_t attempt) -> Json {
    return {{"attempt", attempt}, {"worker", 1}, {"rank", 1}, {"savedStep", attempt * 10}};
  };
  for (int attempt = 1; attempt <= 5; ++attempt) earlier.push_back(failure(attempt));
  world.agent_tells(failure(6), earlier);
  world.o.job->agent.attempt = 7;
  world.o.job->agent.saved_step = 60;
  world.settle();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().restarts.total, 6);
  EXPECT_EQ(world.status().restarts.counted, 1);
  EXPECT_EQ(world.status().restarts.saved_step, 60);
}

TEST(Failures, ARuleAppliesToEachFailureThatWasNotSeen) {
  Json spec = quick_spec();
  spec["failurePolicy"] =
      rules(R"([{"action": "RestartUncounted", "onReasons": ["CudaOutOfMemory"]},
                {"action": "FailJob", "onExitCodes": {"values": [42]}}])");
  World world(spec);
  world.to_running();
  const auto failure = [](int64_t attempt, const char* reason, int code) -> Json {
    return {
        {"attempt", attempt}, {"worker", 1}, {"rank", 1}, {"reason", reason}, {"exitCode", code}};
  };
  const Json earlier = Json::array({failure(1, "CudaOutOfMemory", 1), failure(2, "X", 1)});
  world.agent_tells(failure(3, "CudaOutOfMemory", 1), earlier);
  world.o.job->agent.attempt = 4;
  world.settle();
  EXPECT_EQ(world.status().restarts.total, 3);
  EXPECT_EQ(world.status().restarts.counted, 1);
  world.agent_tells(failure(5, "X", 1), Json::array({failure(4, "X", 42)}));
  world.o.job->agent.attempt = 6;
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "True FailurePolicy");
}

/// Whatever looks are missed, the account is that of an operator that saw each attempt end.
TEST(Failures, TheAccountDoesNotDependOnWhenTheOperatorLooks) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Json spec = quick_spec();
    spec["backoffLimit"] = 100;
    spec["failurePolicy"] =
        rules(R"([{"action": "RestartUncounted", "onReasons": ["CudaOutOfMemory"]}])");
    World always(spec), sometimes(spec);
    always.to_running();
    sometimes.to_running();
    Json last, earlier = Json::array();
    int64_t saved = 0;
    for (int64_t attempt = 1; attempt < 9; ++attempt) {
      if (random() % 3 == 0) saved += 10;
      if (random() % 4 != 0) {  // otherwise a pod was taken away
        if (!last.is_null()) earlier.push_back(last);
        last = {{"attempt", attempt},
                {"worker", 1},
                {"rank", 1},
                {"savedStep", saved},
                {"reason", random() % 3 == 0 ? "CudaOutOfMemory" : "RankFailed"}};
      }
      for (World* world : {&always, &sometimes}) {
        world->agent_tells(last, earlier);
        world->o.job->agent.saved_step = saved;
        world->o.job->agent.attempt = attempt + 1;
      }
      always.settle();
      if (random() % 3 == 0) sometimes.settle();
    }
    sometimes.settle();
    EXPECT_EQ(sometimes.status().restarts.total, 8) << seed;
    EXPECT_EQ(sometimes.status().restarts.total, always.status().restarts.total) << seed;
    EXPECT_EQ(sometimes.status().restarts.counted, always.status().restarts.counted) << seed;
    EXPECT_EQ(sometimes.status().restarts.saved_step, always.status().restarts.saved_step) << seed;
  }
}

TEST(Failures, AFirstAttemptThatEndedBeforeAnybodyLookedIsCharged) {
  World world;
  world.settle();
  world.run_pods();
  world.o.job->agent.attempt = 8;  // an earlier job in this output folder had six
  world.agent_tells(
      {{"attempt", 7}, {"worker", 1}, {"rank", 1}, {"signal", 9}, {"reason", "Killed"}});
  world.settle();
  EXPECT_EQ(world.status().restarts.total, 1);
  EXPECT_EQ(world.status().restarts.counted, 1);
  EXPECT_EQ(world.status().last_failure["attempt"], 7);
}

TEST(Failures, AttemptsOfAnEarlierJobInTheOutputFolderAreNotCharged) {
  World world;
  world.settle();
  world.run_pods();
  world.o.job->agent.attempt = 8;
  world.settle();
  EXPECT_EQ(world.status().restarts.total, 0);
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_EQ(world.phase(), "Running");
}

TEST(Failures, AHangThatEndedInItsPodsSaysWhoAndWhereInAnEvent) {
  World world;
  world.to_running();
  world.agent_tells({{"attempt", 1},
                     {"worker", 1},
                     {"rank", 1},
                     {"reason", "HangDetected"},
                     {"message", "rank 1 did not arrive"},
                     {"collective", "all_gather #412 (layer 3, 4096 bytes)"},
                     {"missingRanks", "1, 3"}});
  ++world.o.job->agent.attempt;
  std::vector<std::string> told;
  for (int pass = 0; pass < 2; ++pass) {
    for (const Event& event : world.pass().events) {
      if (event.reason == "HangDetected") told.push_back(event.type + ": " + event.message);
    }
  }
  const std::vector<std::string> once = {
      "Warning: rank 1 did not arrive, pod j-worker-1-1, node node-1, rank 1"};
  EXPECT_EQ(told, once);
  const Json failure = world.status().last_failure;
  EXPECT_EQ(failure["collective"], "all_gather #412 (layer 3, 4096 bytes)");
  EXPECT_EQ(failure["missingRanks"], "1, 3");
}

/// What a rank or whoever may patch the status says decides on nothing but its own text: the operator's words are
/// reserved for it.
TEST(Failures, WordsOfTheOperatorInTheMouthOfARankAreItsOwnWordsNoMore) {
  for (const char* word : {"InitializerFailed", "NodeLost", "PodDeleted", "GangReleased", "Evicted",
                           "NotRestarting", "DeadlineExceeded", "two words", ""}) {
    World in_place;
    in_place.to_running();
    in_place.agent_tells({{"attempt", 1}, {"worker", 1}, {"rank", 1}, {"reason", word}});
    in_place.start_attempt();
    EXPECT_EQ(in_place.status().last_failure["reason"], "RankFailed") << word;
    EXPECT_EQ(in_place.status().restarts.counted, 1) << word;
    EXPECT_EQ(in_place.phase(), "Running") << word;
    in_place.settle();

    World with_pod;
    with_pod.to_running();
    Json object = {
        {"metadata",
         {{"name", "j-worker-1-1"},
          {"uid", with_pod.pod(1).uid},
          {"ownerReferences", Json::array({{{"apiVersion", jobspec::kApiVersion},
                                            {"kind", jobspec::kKind},
                                            {"uid", "job-uid"},
                                            {"controller", true}}})},
          {"annotations", {{contract::kAnnotationRestarts, "0"}}},
          {"labels",
           {{contract::kLabelReplicaIndex, "1"},
            {contract::kLabelIncarnation, "1"},
            {contract::kLabelRevision, with_pod.pod(1).revision}}}}},
        {"spec", {{"nodeName", "node-1"}}},
        {"status",
         {{"phase", "Failed"},
          {"containerStatuses",
           Json::array(
               {{{"name", contract::kContainerName},
                 {"state",
                  {{"terminated",
                    {{"exitCode", 1},
                     {"message", Json({{"reason", word}, {"attempt", 1}}).dump()}}}}}}})}}}};
    with_pod.pod(1) = *pod_view(object);
    with_pod.settle();
    EXPECT_EQ(with_pod.status().last_failure["reason"], *word == 0 ? "PodFailed" : "RankFailed");
    EXPECT_EQ(with_pod.status().restarts.counted, 1) << word;
  }
}

/// A number that nobody counts to neither overflows nor takes long.
TEST(Failures, NumbersThatAnybodyWroteIntoTheStatusAreHarmless) {
  World world;
  world.to_running();
  world.o.job->own_status["restarts"] = {
      {"total", 9'000'000'000'000'000'000}, {"counted", -5}, {"attempt", 1}, {"limit", 3}};
  world.o.job->agent.attempt = 900'000'000'000'000;
  world.agent_tells({{"attempt", 899'999'999'999'999}, {"worker", 1}, {"rank", 1}});
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "False NotFinished") << "one failure is known";
  EXPECT_EQ(world.status().restarts.counted, 1);
}

/// An attempt that ended in its pods, as agent 0 tells of it.
OwnStatus after_attempt_1(const Json& told) {
  World world;
  world.to_running();
  world.agent_tells(told);
  world.start_attempt();
  return world.status();
}

TEST(Failures, WhatAgentsDoNotChargeIsChargedByTheOperatorOrByNobody) {
  const Json lost = {{"attempt", 1}, {"worker", 1}, {"reason", "WorkerLost"}};
  EXPECT_EQ(after_attempt_1(lost).restarts.counted, 1) << "its agent was silent, its pod lives";
  World replaced;
  replaced.to_running();
  replaced.agent_tells(
      {{"attempt", 1}, {"worker", 1}, {"reason", "WorkerLost"}, {"time", to_text(replaced.now)}});
  replaced.pod(1).created = replaced.now + Seconds(1);
  replaced.start_attempt();
  EXPECT_EQ(replaced.status().restarts.counted, 0) << "the end of its pod was judged";
  EXPECT_FALSE(replaced.status().last_failure.contains("pod"));
  const Json strangers = {{"attempt", 1}, {"reason", "Preempted"}};
  EXPECT_EQ(after_attempt_1(strangers).restarts.counted, 1) << "as agent 0 charges it";
  const Json older = {{"attempt", 0}, {"worker", 1}, {"rank", 1}, {"reason", "RankFailed"}};
  for (const Json& nothing : {Json(), older}) {
    const OwnStatus taken = after_attempt_1(nothing);
    EXPECT_EQ(taken.restarts.total, 1);
    EXPECT_EQ(taken.restarts.counted, 0) << "a pod was taken away while nobody looked";
    EXPECT_EQ(taken.last_failure["reason"], contract::kReasonPreempted);
  }
}

TEST(Failures, ALostNodesPodIsGivenUpAndItsNodeAvoided) {
  World world;
  world.to_running();
  const std::string survivor = world.pod(0).uid;
  world.o.nodes["node-1"] = {.ready = false, .since = world.now};
  world.o.nodes["node-0"] = {.ready = true};
  world.settle();
  EXPECT_EQ(world.phase(), "Running");
  world.now += Seconds(59);
  Plan plan = world.pass();
  EXPECT_TRUE(plan.deletes.empty());  // its ranks may still run
  ASSERT_TRUE(plan.again);
  world.now = *plan.again;
  plan = world.pass();
  ASSERT_EQ(plan.deletes.size(), 1u);
  EXPECT_TRUE(plan.deletes[0].force);
  EXPECT_EQ(world.status().last_failure["reason"], "NodeLost");
  EXPECT_EQ(world.status().restarts.counted, 0);
  plan = world.pass();
  ASSERT_EQ(plan.pods.size(), 1u);
  EXPECT_EQ(plan.pods[0].name, "j-worker-1-2");
  EXPECT_THAT(plan.pods[0].object["spec"]["affinity"].dump(), HasSubstr("node-1"));
  EXPECT_EQ(world.pod(0).uid, survivor);
  EXPECT_EQ(world.status().restarts.total, 1);
}

TEST(Failures, ANodeThatOnlyTheControlPlaneMissesIsNotLost) {
  World world;
  world.to_running();
  world.o.nodes["node-1"] = {.ready = false, .since = world.now};
  for (int i = 0; i < 30; ++i) {
    world.now += Seconds(10);
    world.o.job->agent.updated = world.now;  // steps are told: every rank lives
    EXPECT_TRUE(world.pass().deletes.empty()) << i;
  }
  world.now += Seconds(59);
  EXPECT_TRUE(world.pass().deletes.empty());
  world.now += Seconds(1);
  EXPECT_EQ(world.pass().deletes.size(), 1u);
  EXPECT_EQ(world.status().last_failure["reason"], "NodeLost");
}

TEST(Failures, AClockThatIsFarAheadKeepsNoLostNodesPod) {
  World world;
  world.to_running();
  world.o.nodes["node-1"] = {.ready = false, .since = world.now};
  world.o.job->agent.updated = world.now + Seconds(3600);
  world.now += Seconds(60);
  EXPECT_EQ(world.pass().deletes.size(), 1u);
}

TEST(Failures, APodMadeOnANodeThatIsAwayHasItsTimeToo) {
  World world;
  world.o.nodes["node-1"] = {.ready = false, .since = world.now};
  world.now += Seconds(300);
  world.settle();
  world.run_pods();
  world.pod(1).created = world.now;
  world.now += Seconds(59);
  EXPECT_TRUE(world.pass().deletes.empty());
  world.now += Seconds(1);
  EXPECT_EQ(world.pass().deletes.size(), 1u);
}

TEST(Failures, APodThatDoesNotGoIsGivenUp) {
  World world;
  world.to_running();
  world.pod(1).deleting_from = world.now + Seconds(630);
  world.settle();
  world.now += Seconds(630 + 59);
  EXPECT_TRUE(world.pass().deletes.empty());
  world.now += Seconds(1);
  const Plan plan = world.pass();
  ASSERT_EQ(plan.deletes.size(), 1u);
  EXPECT_TRUE(plan.deletes[0].force);
}

}  // namespace
}  // namespace dsj::op::testing
