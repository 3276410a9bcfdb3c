// job.json: what the agent gives every rank of one attempt; dsj-train reads it. Paths are absolute.
// ds_config is as the user wrote it; each rank resolves it with the same pure function
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
  std::string run;         ///< the same in all attempts of a run, unique to it; empty if unknown
  int64_t attempt = 1;     ///< never falls; compared with the fence
  int world_size = 1;      ///< ranks of this attempt
  std::string output_dir;  ///< holds checkpoints/, model/, logs/
  TrainingArgs training;
  nlohmann::json ds_config;      ///< plain JSON without comments
  std::string ds_config_source;  ///< the file that it came from, for messages
};

Result<JobFile> job_file_from_json(const nlohmann::json& object);
nlohmann::json to_json(const JobFile& job);

}  // namespace dsj
