// Combines ds_config, training arguments and facts into a ResolvedConfig with the origin of every
// "auto". A pure function: the command line, the agent and every rank get the same result.
#pragma once

#include <nlohmann/json.hpp>

#include "job/dsconfig/read/resolution.h"
#include "job/training_args.h"

namespace dsj::dsconfig {

/// The version that this engine follows where versions of DeepSpeed differ. Programs print it.
inline constexpr char kCompatibility[] = "DeepSpeed 0.19";

Resolution resolve(const nlohmann::json& ds_config, const TrainingArgs& training,
                   const Facts& facts);

/// For a bare ds_config (`dsj validate`): no training arguments, and any world size that satisfies
/// the batch rule. A value that neither file nor job sets is an Error in resolve(); here it is a
/// Note, because the job is unknown. A contradiction in the file is still an Error. Ignore
/// `complete`, and ignore the batch of `config` if a Note leaves it open.
Resolution resolve_alone(const nlohmann::json& ds_config);

}  // namespace dsj::dsconfig
