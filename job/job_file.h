// job.json: what the agent gives every rank of one attempt; dsj-train reads it. Paths are absolute.
// ds_config is as the user wrote it: each rank resolves it by the same pure function
// (dsconfig/resolve.h).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "common/result.h"
#include "job/training_args.h"

namespace dsj {

struct JobFile {
  std::string name;        ///< the job's name, for messages
  std::string run;         ///< equal in all attempts of one run, in no other run; empty: unknown
  int64_t attempt = 1;     ///< never falls; checked against the fence
  int world_size = 1;      ///< ranks of this attempt
  std::string output_dir;  ///< holds checkpoints/, model/, logs/
  TrainingArgs training;
  nlohmann::json ds_config;      ///< plain JSON; comments are gone
  std::string ds_config_source;  ///< the file it came from, for messages
};

Result<JobFile> job_file_from_json(const nlohmann::json& object);
nlohmann::json to_json(const JobFile& job);

}  // namespace dsj
