#include "cli/run/run_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace dsj::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct NodesOfALine : testing::Test {
  std::map<std::string, std::string> environment;
  std::vector<std::string> line;
  Result<Nodes> take() {
    return take_nodes(line, [&](const char* name) {
      const auto found = environment.find(name);
      return found == environment.end() ? "" : found->second;
    });
  }
  Status one() {
    return one_node([&](const char* name) {
      const auto found = environment.find(name);
      return found == environment.end() ? "" : found->second;
    });
  }
};

TEST_F(NodesOfALine, OneMachineIsTheDefault) {
  line = {"--bf16", "--max_steps", "3"};
  const auto nodes = take();
  ASSERT_TRUE(nodes);
  EXPECT_FALSE(nodes->several());
  EXPECT_THAT(line, ElementsAre("--bf16", "--max_steps", "3"));
}

TEST_F(NodesOfALine, ReadsTorchrunsOptionsWithDashesAndUnderscores) {
  line = {"--nnodes=2",      "--node-rank",      "1", "--master_addr", "n0",
          "--master-port=7", "--nproc-per-node", "4", "--bf16"};
  const auto nodes = take();
  ASSERT_TRUE(nodes) << nodes.error().to_string();
  EXPECT_EQ(nodes->count, 2);
  EXPECT_EQ(nodes->rank, 1);
  EXPECT_EQ(nodes->master_addr, "n0");
  EXPECT_EQ(nodes->master_port, 7);
  EXPECT_THAT(line, ElementsAre("--nnodes=2", "--nproc-per-node", "4", "--bf16"))
      << "what concerns the job stays";
}

TEST_F(NodesOfALine, ReadsTorchrunsVariables) {
  environment = {{"PET_NNODES", "2"},
                 {"PET_NPROC_PER_NODE", "auto"},
                 {"PET_NODE_RANK", "1"},
                 {"PET_MASTER_ADDR", "n0"},
                 {"PET_MASTER_PORT", "29500"}};
  line = {"--bf16"};
  const auto nodes = take();
  ASSERT_TRUE(nodes) << nodes.error().to_string();
  EXPECT_EQ(nodes->count, 2);
  EXPECT_EQ(nodes->rank, 1);
  EXPECT_EQ(nodes->master_addr, "n0");
  EXPECT_EQ(nodes->master_port, 29500);
  EXPECT_THAT(line, ElementsAre("--bf16", "--nnodes=2", "--nproc_per_node=auto"));
}

TEST_F(NodesOfALine, TheLineTakesPrecedenceOverTheEnvironment) {
  environment = {{"PET_NNODES", "4"}, {"PET_NPROC_PER_NODE", "8"}, {"PET_NODE_RANK", "3"}};
  line = {"--nnodes", "2:2", "--num_gpus=2", "--node_rank=0"};
  const auto nodes = take();
  ASSERT_TRUE(nodes) << nodes.error().to_string();
  EXPECT_EQ(nodes->count, 2);
  EXPECT_EQ(nodes->rank, 0);
  EXPECT_THAT(line, ElementsAre("--nnodes", "2:2", "--num_gpus=2"));
}

TEST_F(NodesOfALine, AnEndpointIsAnAddressAndAPort) {
  line = {"--nnodes=2", "--rdzv_endpoint=[fd00::1]:29400", "--rdzv_backend=c10d"};
  const auto nodes = take();
  ASSERT_TRUE(nodes) << nodes.error().to_string();
  EXPECT_EQ(nodes->master_addr, "fd00::1");
  EXPECT_EQ(nodes->master_port, 29400);
  EXPECT_THAT(line, ElementsAre("--nnodes=2", "--rdzv_backend=c10d"));
}

/// torchrun: LaunchConfig sets timeout=900 for its static rendezvous; the dynamic one reads join_timeout.
TEST_F(NodesOfALine, TheJoinLimitIsTorchruns) {
  const std::pair<const char*, int> cases[] = {{"", 900},
                                               {"timeout=60", 60},
                                               {"join_timeout=120", 120},
                                               {"timeout=1200,join_timeout=700", 700},
                                               {"join_timeout=700, timeout = 1200", 700},
                                               {"last_call_timeout=30,read_timeout=60", 900},
                                               {"is_host=1 , timeout=5,", 5}};
  for (const auto& [conf, seconds] : cases) {
    line = {"--nnodes=2", "--rdzv-conf", conf};
    const auto nodes = take();
    ASSERT_TRUE(nodes) << conf << ": " << nodes.error().to_string();
    EXPECT_EQ(nodes->join_limit.count(), seconds) << conf;
    EXPECT_THAT(line, ElementsAre("--nnodes=2"));
  }
  environment = {{"PET_RDZV_CONF", "timeout=33"}};
  line = {"--nnodes=2"};
  EXPECT_EQ(take()->join_limit.count(), 33);
  line = {"--nnodes=2", "--rdzv_conf=timeout=44"};
  EXPECT_EQ(take()->join_limit.count(), 44);
}

TEST_F(NodesOfALine, WithOneMachineOtherOptionsAreIgnored) {
  environment = {{"PET_NNODES", "1"}, {"PET_MASTER_ADDR", "nowhere"}, {"PET_NODE_RANK", "0"}};
  line = {"--bf16", "--master_port=70000"};
  const auto nodes = take();
  ASSERT_TRUE(nodes) << nodes.error().to_string();
  EXPECT_FALSE(nodes->several());
  EXPECT_THAT(line, ElementsAre("--bf16", "--nnodes=1"));
}

TEST_F(NodesOfALine, InvalidOptionsAreRefusedByName) {
  const std::pair<std::vector<std::string>, std::vector<const char*>> cases[] = {
      {{"--nnodes=1:4"}, {"--nnodes", "does not change", "spec.elastic"}},
      {{"--nnodes=two"}, {"--nnodes", "found \"two\"", "whole number"}},
      {{"--nnodes=0"}, {"--nnodes", "from 1"}},
      {{"--nnodes=2", "--node_rank=2"}, {"--node_rank", "found \"2\"", "from 0 to 1"}},
      {{"--nnodes=2", "--node_rank"}, {"--node_rank", "a value is missing"}},
      {{"--nnodes=2", "--master_port=x"}, {"--master_port", "from 0 to 65535"}},
      {{"--nnodes=2", "--rdzv_endpoint=:1"}, {"--rdzv_endpoint", "HOST[:PORT]"}},
      {{"--nnodes=2", "--rdzv_conf=timeout"}, {"--rdzv_conf", "found \"timeout\"", "KEY=VALUE"}},
      {{"--nnodes=2", "--rdzv_conf==3"}, {"--rdzv_conf", "KEY=VALUE"}},
      {{"--nnodes=2", "--rdzv_conf=timeout=0"}, {"--rdzv_conf timeout", "from 1"}},
      {{"--nnodes=2", "--rdzv_conf=a=b,join_timeout=5m"}, {"--rdzv_conf join_timeout", "\"5m\""}},
  };
  for (const auto& [words, says] : cases) {
    line = words;
    const auto nodes = take();
    ASSERT_FALSE(nodes) << words.back();
    for (const char* text : says) EXPECT_THAT(nodes.error().to_string(), HasSubstr(text));
  }
  environment = {{"PET_NNODES", "2"}, {"PET_NODE_RANK", "5"}};
  line = {};
  EXPECT_THAT(take().error().to_string(), HasSubstr("PET_NODE_RANK"));
}

TEST_F(NodesOfALine, AManifestRunsOnOneMachine) {
  EXPECT_TRUE(one());
  environment = {{"PET_NNODES", "1:1"}, {"PET_NODE_RANK", "0"}};
  EXPECT_TRUE(one());
  environment = {{"PET_NNODES", "2"}};
  EXPECT_THAT(one().error().to_string(), HasSubstr("PET_NNODES: found 2 nodes"));
}

struct FakeNames final : Names {
  std::vector<std::string> addresses(const std::string&) override {
    return ++looks < known_after ? std::vector<std::string>() : found;
  }
  bool is_own(const std::string& address) override { return address == own; }
  void wait(std::chrono::milliseconds time) override { waited += time; }
  std::vector<std::string> found;
  std::string own;
  int looks = 0, known_after = 1;
  std::chrono::milliseconds waited{0};
};

TEST(OwnAddress, IsTheOneOfThisMachine) {
  FakeNames names;
  names.found = {"10.0.0.9", "fd00::9"};
  names.own = "fd00::9";
  EXPECT_EQ(own_address("n0", names), "fd00::9");
  EXPECT_EQ(names.waited.count(), 0);
}

TEST(OwnAddress, ANameMayResolveLater) {
  FakeNames names;
  names.found = {names.own = "10.0.0.9"};
  names.known_after = 5;
  EXPECT_EQ(own_address("n0", names), "10.0.0.9");
  EXPECT_EQ(names.waited, std::chrono::seconds(4));
}

TEST(OwnAddress, AnotherMachinesAddressIsRefused) {
  FakeNames names;
  names.found = {"10.0.0.9"};
  EXPECT_THAT(own_address("n0", names).error().to_string(),
              HasSubstr("leads to 10.0.0.9, which is not an address of this machine"));
  names.found = {};
  EXPECT_THAT(own_address("n0", names).error().to_string(), HasSubstr("the name is not known"));
  EXPECT_EQ(names.waited, std::chrono::seconds(59));
  names.waited = {};
  EXPECT_FALSE(own_address("10.0.0.1", names));
  EXPECT_EQ(names.waited.count(), 0) << "an address is no name that may come";
}

TEST(OwnAddress, TheSystemRecognizesItsOwnAddresses) {
  SystemNames names;
  EXPECT_THAT(names.addresses("127.0.0.1"), ElementsAre("127.0.0.1"));
  EXPECT_TRUE(names.is_own("127.0.0.1"));
  EXPECT_FALSE(names.is_own("203.0.113.7"));
  EXPECT_THAT(names.addresses("no-such-name.invalid"), IsEmpty());
}

}  // namespace
}  // namespace dsj::cli
