// ds_config + training arguments + facts → ResolvedConfig, with the origin of every "auto". A pure
// function: the command line, the agent and every rank call it and get the same answer.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/dsconfig/resolved.h"
#include "common/result.h"
#include "common/training_args.h"

namespace dsj::dsconfig {

/// Where DeepSpeed's versions differ, this engine behaves as this one. Programs print it at start.
inline constexpr char kCompatibility[] = "DeepSpeed 0.19";

/// What ds_config does not say and the run knows. A missing fact leaves what depends on it
/// undecided.
struct Facts {
  int world_size = 1;
  std::optional<int64_t> hidden_size;   ///< from the model's config.json
  std::optional<int64_t> dataset_rows;  ///< decides the steps when max_steps is not given
};

struct Finding {
  enum class Severity { Error, Unsupported, Warning } severity;
  std::string path;          ///< "zero_optimization.stage"
  std::string message;       ///< what is wrong
  std::string hint;          ///< what to do; "did you mean ...?"
  int line = 0, column = 0;  ///< 1-based; 0: unknown
  std::string other = {};    ///< the second place of a contradiction: "training.learningRate"
};

/// Where a value came from: "ds_config", "training.learningRate", "default (DeepSpeed 0.19)",
/// "hidden_size^2" ...
struct Origin {
  std::string path, value, from;
};

struct Resolution {
  ResolvedConfig config;  ///< meaningful when there is no Error finding
  std::vector<Finding> findings;
  std::vector<Origin> origins;  ///< one per "auto" and per default that matters
  bool complete = false;        ///< false: a fact was missing (total steps, a hidden_size "auto")

  bool ok() const;        ///< no Error
  bool runnable() const;  ///< no Error, no Unsupported
};

Resolution resolve(const nlohmann::json& ds_config, const TrainingArgs& training,
                   const Facts& facts);

/// A bare ds_config, as `dsj validate` has it: no training arguments, and any world size that makes
/// the batch triangle hold. `complete` says nothing here.
Resolution resolve_alone(const nlohmann::json& ds_config);

}  // namespace dsj::dsconfig
