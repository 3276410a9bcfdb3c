#include "agent/ranks/rank_env.h"

#include <algorithm>

#include "job/contract.h"
#include "job/flight_log.h"

namespace dsj::agent {

std::vector<std::string> rank_environment(const std::vector<std::string>& inherited,
                                          const RankPlace& place) {
  using namespace dsj::contract;
  std::map<std::string, std::string> names;
  for (const auto& entry : inherited) {
    const size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string::npos) continue;
    names[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  names.erase(kEnvStoreFd);
  names.erase(kEnvFlightFd);
  names[kEnvRank] = std::to_string(place.rank);
  names[kEnvLocalRank] = std::to_string(place.local_rank);
  names[kEnvWorldSize] = std::to_string(place.world_size);
  names[kEnvLocalWorldSize] = std::to_string(place.local_world_size);
  names[kEnvGroupRank] = std::to_string(place.group_rank);
  names[kEnvMasterAddr] = place.master_addr;
  names[kEnvMasterPort] = std::to_string(place.master_port);
  if (place.master_addr.contains(':') && !place.interface.empty() &&
      !names.contains("NCCL_SOCKET_FAMILY") && !names.contains("NCCL_SOCKET_IFNAME")) {
    names["NCCL_SOCKET_FAMILY"] = "AF_INET6";
    names["NCCL_SOCKET_IFNAME"] = "=" + place.interface;
    names.try_emplace("GLOO_SOCKET_IFNAME", place.interface);
  }
  names[kEnvJobFile] = place.job_file;
  names.erase(kEnvDsConfig);
  if (!place.ds_config.empty()) names[kEnvDsConfig] = place.ds_config;
  names[kEnvEventFd] = std::to_string(place.event_fd);
  if (place.flight_fd >= 0) names[kEnvFlightFd] = std::to_string(place.flight_fd);
  if (place.rank == 0 && place.store_fd >= 0) names[kEnvStoreFd] = std::to_string(place.store_fd);
  names.erase(kEnvStartupTrace);
  if (!place.startup_trace.empty()) names[kEnvStartupTrace] = place.startup_trace;
  names.try_emplace("OMP_NUM_THREADS", std::to_string(place.threads));

  std::vector<std::string> environment;
  for (const auto& [name, value] : names) environment.push_back(name + "=" + value);
  return environment;
}

int threads_per_rank(int cores, int ranks_on_host) {
  return std::max(1, cores / std::max(1, ranks_on_host));
}

}  // namespace dsj::agent
