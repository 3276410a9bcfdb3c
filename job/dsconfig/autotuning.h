// The section "autotuning", for `dsj tune`: DeepSpeed's keys, checked, and the file without them. A
// run refuses a file whose section is enabled: it asks for something else than training. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "job/dsconfig/source.h"

namespace dsj::dsconfig {

struct Autotuning {
  bool fast = true;  ///< stages and batch sizes alone; false: then the other keys of ZeRO
  std::string results_dir = "autotuning_results", exps_dir = "autotuning_exps";
  bool overwrite = true;  ///< a finished search begins anew; false: its results count
  int64_t start_profile_step = 3, end_profile_step = 5;  ///< measured, both, from 1
  std::string metric = "throughput";                     ///< throughput, latency, flops
  std::string tuner_type = "gridsearch";                 ///< gridsearch, random, model_based
  int64_t tuner_early_stopping = 5;  ///< trials without a better one after which it stops
  int64_t tuner_num_trials = 50;
  std::optional<int64_t> max_train_batch_size;  ///< rows per step of all ranks
  int64_t min_train_batch_size = 1;
  int64_t max_micro_batch = 1024, min_micro_batch = 1;  ///< train_micro_batch_size_per_gpu
  int64_t micro_batch_sizes = 3;                        ///< doublings of the file's own size
};

/// What a file asks to be tuned.
struct TuneRequest {
  bool asked = false;  ///< the section is enabled; without it the defaults hold
  Autotuning settings;
  /// ZeRO stages: the file's own, a list, or "all"; without the key 0, as in DeepSpeed.
  std::vector<int> stages;
  std::vector<int64_t> micro_batches;  ///< train_micro_batch_size_per_gpu as a list; else empty
  /// The file without the section, and with the first value of each list.
  nlohmann::json ds_config;
  std::vector<Finding> findings;  ///< errors; then the rest is not to be used
};
TuneRequest tune_request(const nlohmann::json& ds_config);

/// Part of resolve(): refuses a run of a file whose section is enabled.
void refuse_autotuning(const Source& in, Report& out);

}  // namespace dsj::dsconfig
