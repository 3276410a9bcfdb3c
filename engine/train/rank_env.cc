#include "engine/train/rank_env.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "common/contract.h"

namespace dsj::train {
namespace {

Result<int> number(const char* name, int fallback) {
  const char* text = std::getenv(name);
  if (!text) return fallback;
  int value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc() || *end != '\0') {
    return bad_input(std::string(name) + " is \"" + text + "\", expected a number", "environment");
  }
  return value;
}

}  // namespace

Result<RankEnv> rank_env() {
  RankEnv env;
  DSJ_TRY(env.rank, number(contract::kEnvRank, 0));
  DSJ_TRY(env.local_rank, number(contract::kEnvLocalRank, 0));
  DSJ_TRY(env.world_size, number(contract::kEnvWorldSize, 1));
  DSJ_TRY(env.master_port, number(contract::kEnvMasterPort, 29500));
  DSJ_TRY(env.store_fd, number(contract::kEnvStoreFd, -1));
  DSJ_TRY(env.event_fd, number(contract::kEnvEventFd, -1));
  if (const char* addr = std::getenv(contract::kEnvMasterAddr)) env.master_addr = addr;
  const char* job = std::getenv(contract::kEnvJobFile);
  if (!job) {
    return bad_input(std::string(contract::kEnvJobFile) + " is not set", "environment",
                     "dsj-train is started by dsj-agent; to run a job use: dsj run JOB.yaml");
  }
  env.job_file = job;
  if (env.world_size < 1 || env.rank < 0 || env.rank >= env.world_size) {
    std::string message = "RANK ";
    message.append(std::to_string(env.rank)).append(" is not below WORLD_SIZE ");
    message.append(std::to_string(env.world_size));
    return bad_input(message, "environment");
  }
  return env;
}

}  // namespace dsj::train
