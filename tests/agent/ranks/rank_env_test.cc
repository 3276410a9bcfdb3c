#include "agent/ranks/rank_env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dsj::agent {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::StartsWith;

const RankPlace kPlace{.rank = 3,
                       .local_rank = 1,
                       .world_size = 4,
                       .local_world_size = 2,
                       .group_rank = 1,
                       .master_addr = "127.0.0.1",
                       .master_port = 4567,
                       .job_file = "/out/job.json",
                       .event_fd = 9,
                       .store_fd = 11,
                       .threads = 4};

TEST(RankEnvironment, TorchrunsNamesAndOurs) {
  EXPECT_THAT(rank_environment({}, kPlace),
              ElementsAre("DSJ_EVENT_FD=9", "DSJ_JOB_FILE=/out/job.json", "GROUP_RANK=1",
                          "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                          "MASTER_PORT=4567", "OMP_NUM_THREADS=4", "RANK=3", "WORLD_SIZE=4"));
}

// A pod of EKS with ipFamily ipv6 has a second interface with an IPv4 address from which no pod is reached.
TEST(RankEnvironment, NcclAndGlooUseTheInterfaceOfAnIpv6Address) {
  RankPlace place = kPlace;
  place.interface = "eth0";
  EXPECT_THAT(rank_environment({}, place), Not(Contains(StartsWith("NCCL_SOCKET"))));
  place.master_addr = "2001:db8::a1";
  const auto environment = rank_environment({}, place);
  EXPECT_THAT(environment, Contains("MASTER_ADDR=2001:db8::a1"));
  EXPECT_THAT(environment, Contains("NCCL_SOCKET_FAMILY=AF_INET6"));
  EXPECT_THAT(environment, Contains("NCCL_SOCKET_IFNAME==eth0"));
  EXPECT_THAT(environment, Contains("GLOO_SOCKET_IFNAME=eth0"));
  const auto own = rank_environment({"NCCL_SOCKET_IFNAME=net1"}, place);
  EXPECT_THAT(own, Contains("NCCL_SOCKET_IFNAME=net1"));
  EXPECT_THAT(own, Not(Contains(StartsWith("NCCL_SOCKET_FAMILY"))));
}

TEST(RankEnvironment, AStartIsTracedOnlyFromItsLaunch) {
  RankPlace place = kPlace;
  EXPECT_THAT(rank_environment({"DSJ_STARTUP_TRACE=1"}, place),
              Not(Contains(StartsWith("DSJ_STARTUP_TRACE"))));
  place.startup_trace = "12345";
  EXPECT_THAT(rank_environment({"DSJ_STARTUP_TRACE=1"}, place),
              Contains("DSJ_STARTUP_TRACE=12345"));
}

TEST(RankEnvironment, OnlyRankZeroGetsTheStore) {
  RankPlace place = kPlace;
  EXPECT_THAT(rank_environment({"DSJ_STORE_FD=77"}, place),
              Not(Contains(StartsWith("DSJ_STORE_FD"))));
  place.rank = 0;
  EXPECT_THAT(rank_environment({"DSJ_STORE_FD=77"}, place), Contains("DSJ_STORE_FD=11"));
}

TEST(RankEnvironment, TheFlightLogOfAnOuterRunIsNotPassedOn) {
  RankPlace place = kPlace;
  EXPECT_THAT(rank_environment({"DSJ_FLIGHT_FD=5"}, place),
              Not(Contains(StartsWith("DSJ_FLIGHT_FD"))));
  place.flight_fd = 12;
  EXPECT_THAT(rank_environment({}, place), Contains("DSJ_FLIGHT_FD=12"));
}

TEST(RankEnvironment, InheritsAndOverrides) {
  const auto environment = rank_environment(
      {"PATH=/bin", "RANK=99", "OMP_NUM_THREADS=7", "EMPTY=", "BROKEN", "=odd", "A=b=c"}, kPlace);
  EXPECT_THAT(environment, Contains("PATH=/bin"));
  EXPECT_THAT(environment, Contains("RANK=3"));
  EXPECT_THAT(environment, Contains("OMP_NUM_THREADS=7")) << "the user's choice";
  EXPECT_THAT(environment, Contains("EMPTY="));
  EXPECT_THAT(environment, Contains("A=b=c"));
  EXPECT_THAT(environment, Not(Contains(StartsWith("BROKEN"))));
}

TEST(RankEnvironment, TheDsConfigOfAUsersOwnProgram) {
  RankPlace place = kPlace;
  EXPECT_THAT(rank_environment({"DSJ_DS_CONFIG=/old"}, place),
              Not(Contains(StartsWith("DSJ_DS_CONFIG"))));
  place.ds_config = "/run/dsj/ds_config.json";
  EXPECT_THAT(rank_environment({}, place), Contains("DSJ_DS_CONFIG=/run/dsj/ds_config.json"));
}

TEST(RankEnvironment, TheUsersLibraryPathStaysAsItIs) {
  EXPECT_THAT(rank_environment({"LD_LIBRARY_PATH=/cuda"}, kPlace),
              Contains("LD_LIBRARY_PATH=/cuda"));
  EXPECT_THAT(rank_environment({}, kPlace), Not(Contains(StartsWith("LD_"))));
}

TEST(Cores, RanksShareThem) {
  EXPECT_EQ(threads_per_rank(8, 3), 2);
  EXPECT_EQ(threads_per_rank(2, 4), 1);
  EXPECT_EQ(threads_per_rank(2, 0), 2);
}

}  // namespace
}  // namespace dsj::agent
