// Whole agents over fakes that measure the links between their nodes before ranks start.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "agent/agent.h"
#include "common/files/posix_files.h"
#include "job/contract.h"
#include "tests/agent/links/played_links.h"
#include "tests/agent/ranks/fake_ranks.h"
#include "tests/agent/wire/memory_transport.h"

namespace dsj::agent {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct AgentLinks : testing::Test {
  static constexpr int kWorkers = 4;
  std::string out = testing::TempDir() + "agent-links-" + std::to_string(getpid());
  PosixFiles files;
  FakeRanks ranks[kWorkers];
  FakeReports reports[kWorkers];
  std::shared_ptr<PlayedNetwork> network = std::make_shared<PlayedNetwork>();
  std::shared_ptr<MemoryServer> server = std::make_shared<MemoryServer>();
  std::vector<std::unique_ptr<MemoryClient>> clients;
  std::vector<std::unique_ptr<PlayedLinks>> links;
  std::vector<Agent> agents;
  Time now{1000};

  void SetUp() override {
    fs::remove_all(out);
    for (const char* folder : {"/logs", "/checkpoints", "/run"})
      fs::create_directories(out + folder);
  }
  void TearDown() override { fs::remove_all(out); }

  void make(int percent) {
    AgentConfig config;
    config.job.name = "test";
    config.job.output_dir = out;
    config.job.ds_config = nlohmann::json::object();
    config.replicas = kWorkers;
    config.run_dir = out + "/run";
    config.key = "k";
    config.rank_command = {"/bin/dsj-train"};
    config.link_percent = percent;
    for (int w = 0; w < kWorkers; ++w) {
      clients.push_back(std::make_unique<MemoryClient>(server));
      links.push_back(std::make_unique<PlayedLinks>(network, "n" + std::to_string(w), true));
      auto agent = Agent::make(config, w, 1,
                               {.ranks = ranks[w],
                                .files = files,
                                .reports = reports[w],
                                .server = w == 0 ? server.get() : nullptr,
                                .client = w == 0 ? nullptr : clients.back().get(),
                                .links = links.back().get()},
                               now);
      ASSERT_TRUE(agent) << agent.error().to_string();
      agents.push_back(std::move(*agent));
    }
  }
  void pass(Time duration) {
    for (const Time end = now + duration; now < end; now += Time(50)) {
      for (auto& agent : agents) agent.turn(now);
    }
  }
  size_t started() const {
    size_t all = 0;
    for (const FakeRanks& own : ranks) all += own.processes.size();
    return all;
  }
};

TEST_F(AgentLinks, HealthyLinksAreMeasuredOnceAndRanksStart) {
  make(20);
  pass(Time(2000));
  EXPECT_EQ(network->transfers, 4);
  EXPECT_EQ(started(), 4u);
  for (const Agent& agent : agents) EXPECT_EQ(agent.worker().slow_link, "");
}

TEST_F(AgentLinks, ASlowOneIsToldAndNoRankStarts) {
  network->bytes_per_second["n3"] = 2'000'000;
  make(20);
  pass(Time(2000));
  EXPECT_EQ(network->transfers, 8);
  EXPECT_EQ(started(), 0u);
  EXPECT_THAT(agents[3].worker().slow_link, HasSubstr("2.00 MB/s to node n0 (worker 0)"));
  for (size_t w : {0, 1, 2}) EXPECT_EQ(agents[w].worker().slow_link, "");
}

TEST_F(AgentLinks, SwitchedOffNothingIsMeasured) {
  network->bytes_per_second["n3"] = 2'000'000;
  make(0);
  pass(Time(2000));
  EXPECT_EQ(network->transfers, 0);
  EXPECT_EQ(started(), 4u);
}

}  // namespace
}  // namespace dsj::agent
