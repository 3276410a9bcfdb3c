// ds_config + training arguments + facts → ResolvedConfig, with the origin of every "auto". A pure
// function: the command line, the agent and every rank call it and get the same result.
#pragma once

#include <nlohmann/json.hpp>

#include "job/dsconfig/resolution.h"
#include "job/training_args.h"

namespace dsj::dsconfig {

/// The version that this engine follows where DeepSpeed's versions differ. Programs print it.
inline constexpr char kCompatibility[] = "DeepSpeed 0.19";

Resolution resolve(const nlohmann::json& ds_config, const TrainingArgs& training,
                   const Facts& facts);

/// How many of a data file's rows, from its first one on, are held out for evaluation
/// (validationSplitPercentage).
int64_t held_out_rows(int64_t rows, const TrainingArgs& training);

/// For a bare ds_config (`dsj validate`): no training arguments, and any world size for which the
/// batch rule holds. What neither a job nor the file says is an Error from resolve(); here it is a
/// Note, because the job is not known yet. A contradiction in the file stays an Error. `complete`
/// has no meaning, and neither has the batch of `config` when a Note leaves it open.
Resolution resolve_alone(const nlohmann::json& ds_config);

}  // namespace dsj::dsconfig
