#include "agent/config.h"

#include <nlohmann/json.hpp>

namespace dsj::agent {

using nlohmann::json;

std::string to_text(const AgentConfig& config) {
  const json object = {{"job", to_json(config.job)},
                       {"replicas", config.replicas},
                       {"slots", config.slots},
                       {"runDir", config.run_dir},
                       {"key", config.key},
                       {"address", config.address},
                       {"joinPort", config.join_port},
                       {"rankCommand", config.rank_command},
                       {"userProgram", config.user_program},
                       {"ranksOnHost", config.ranks_on_host},
                       {"lastAttempt", config.last_attempt},
                       {"predecessor", config.predecessor},
                       {"restartLimit", config.budget.limit},
                       {"restartsUsed", config.budget.used},
                       {"restartsTotal", config.budget.total},
                       {"savedStep", config.budget.saved_step},
                       {"gatherLimitMs", config.gather_limit.count()},
                       {"silenceMs", config.silence.count()},
                       {"leaseMs", config.lease.count()},
                       {"blameMs", config.blame.count()},
                       {"graceMs", config.grace.count()},
                       {"stallMs", config.stall.count()}};
  return object.dump(1) + "\n";
}

Result<AgentConfig> agent_config_from_text(const std::string& text, const std::string& source) {
  AgentConfig config;
  try {
    const json object = json::parse(text);
    DSJ_TRY(config.job, job_file_from_json(object.at("job")));
    config.replicas = object.at("replicas");
    config.slots = object.at("slots");
    config.run_dir = object.at("runDir");
    config.key = object.at("key");
    config.address = object.at("address");
    config.join_port = object.at("joinPort");
    config.rank_command = object.at("rankCommand");
    config.user_program = object.at("userProgram");
    config.ranks_on_host = object.at("ranksOnHost");
    config.last_attempt = object.at("lastAttempt");
    config.predecessor = object.at("predecessor");
    config.budget = {.limit = object.at("restartLimit"),
                     .used = object.at("restartsUsed"),
                     .total = object.at("restartsTotal"),
                     .saved_step = object.at("savedStep")};
    config.gather_limit = Time(object.value("gatherLimitMs", int64_t{0}));
    config.silence = Time(object.at("silenceMs").get<int64_t>());
    config.lease = Time(object.at("leaseMs").get<int64_t>());
    config.blame = Time(object.at("blameMs").get<int64_t>());
    config.grace = Time(object.at("graceMs").get<int64_t>());
    config.stall = Time(object.at("stallMs").get<int64_t>());
  } catch (const json::exception& error) {
    return bad_input(error.what(), source, "this file is written by `dsj run`");
  }
  if (config.replicas < 1 || config.slots < 1 || config.rank_command.empty() ||
      config.key.empty() || config.lease >= config.silence) {
    return bad_input(
        "replicas, slots, rankCommand, key or lease (it must be shorter than silence) "
        "is out of range",
        source);
  }
  return config;
}

}  // namespace dsj::agent
