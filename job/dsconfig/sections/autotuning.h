// The section "autotuning" of `dsj tune`: DeepSpeed's keys, checked, and the file without the
// section. A run refuses a file whose section is enabled: it requests a search, no training. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "job/dsconfig/read/source.h"

namespace dsj::dsconfig {

struct Autotuning {
  bool fast = true;  ///< tunes stages and batch sizes only; false: then also other keys of ZeRO
  std::string results_dir = "autotuning_results", exps_dir = "autotuning_exps";
  bool overwrite = true;  ///< restarts a finished search; false: its results count
  int64_t start_profile_step = 3, end_profile_step = 5;  ///< first and last measured step, from 1
  std::string metric = "throughput";                     ///< throughput, latency, flops
  std::string tuner_type = "gridsearch";                 ///< gridsearch, random, model_based
  int64_t tuner_early_stopping = 5;  ///< stops after so many trials without an improvement
  int64_t tuner_num_trials = 50;
  std::optional<int64_t> max_train_batch_size;  ///< rows per step over all ranks
  int64_t min_train_batch_size = 1;
  int64_t max_micro_batch = 1024, min_micro_batch = 1;  ///< train_micro_batch_size_per_gpu
  int64_t micro_batch_sizes = 3;                        ///< doublings of the file's own size
};

/// What a file wants to tune.
struct TuneRequest {
  bool asked = false;  ///< the section is enabled; otherwise the defaults hold
  Autotuning settings;
  /// ZeRO stages: the file's own, a list, or all for "all"; 0 without the key, as in DeepSpeed.
  std::vector<int> stages;
  std::vector<int64_t> micro_batches;  ///< train_micro_batch_size_per_gpu if a list; else empty
  /// The file without the section, each list replaced by its first value.
  nlohmann::json ds_config;
  std::vector<Finding> findings;  ///< if there are errors, do not use the other members
};
TuneRequest tune_request(const nlohmann::json& ds_config);

/// Part of resolve(): refuses to run a file whose section is enabled.
void refuse_autotuning(const Source& in, Report& out);

}  // namespace dsj::dsconfig
