#include "engine/train/inputs/rank_env.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "engine/kernels/kernels.h"
#include "job/contract.h"
#include "job/flight_log.h"

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

/// One day: longer than any collective, and within the range of every clock in milliseconds.
constexpr double kCollectiveTimeoutMax = 24 * 3600;

Result<std::chrono::milliseconds> collective_timeout(std::chrono::milliseconds fallback) {
  constexpr char kName[] = "DSJ_COLLECTIVE_TIMEOUT_SECONDS";
  const char* text = std::getenv(kName);
  if (!text) return fallback;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), seconds);
  if (error != std::errc() || *end != '\0' || !(seconds > 0 && seconds <= kCollectiveTimeoutMax)) {
    return bad_input(
        std::string(kName) + " is \"" + text + "\", expected seconds above 0 and up to 86400",
        "environment");
  }
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1000)));
}

}  // namespace

Status check_kernel_switches() {
  if (const char* isa = std::getenv("DSJ_ISA"); isa && !kernels::table(isa)) {
    std::string known;
    for (const char* name : {"avx512", "avx2", "baseline"}) {
      if (kernels::table(name)) known += (known.empty() ? "" : ", ") + std::string(name);
    }
    return bad_input("DSJ_ISA is \"" + std::string(isa) + "\"; this processor has " + known,
                     "environment");
  }
  const char* native = std::getenv("DSJ_NATIVE_BF16");
  if (native && std::string_view(native) != "0" && std::string_view(native) != "1") {
    return bad_input("DSJ_NATIVE_BF16 is \"" + std::string(native) + "\", expected 0 or 1",
                     "environment");
  }
  const char* products = std::getenv("DSJ_PRODUCTS");
  if (products && std::string_view(products) != "own" && std::string_view(products) != "library") {
    return bad_input("DSJ_PRODUCTS is \"" + std::string(products) + "\", expected own or library",
                     "environment");
  }
  return {};
}

Result<RankEnv> rank_env() {
  DSJ_TRY_STATUS(check_kernel_switches());
  RankEnv env;
  DSJ_TRY(env.rank, number(contract::kEnvRank, 0));
  DSJ_TRY(env.local_rank, number(contract::kEnvLocalRank, 0));
  DSJ_TRY(env.world_size, number(contract::kEnvWorldSize, 1));
  DSJ_TRY(env.local_world_size, number(contract::kEnvLocalWorldSize, env.world_size));
  DSJ_TRY(env.master_port, number(contract::kEnvMasterPort, 29500));
  DSJ_TRY(env.store_fd, number(contract::kEnvStoreFd, -1));
  DSJ_TRY(env.event_fd, number(contract::kEnvEventFd, -1));
  DSJ_TRY(env.flight_fd, number(kEnvFlightFd, -1));
  DSJ_TRY(env.collective_timeout, collective_timeout(env.collective_timeout));
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
