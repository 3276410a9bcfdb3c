// A run that begins with a saved adapter (LoraArgs::adapter): its settings and its tensors against what the
// job says and the model has. Headers only: no weight is read. `dsj` asks it before it starts the ranks, and
// they ask it again.
#pragma once

#include <optional>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/weight_source.h"
#include "job/layout/model_config.h"
#include "job/lora_args.h"

namespace dsj::weights {

/// layout::resolve_lora() of a job's LoRA. With an adapter to begin with, what the job does not say is the
/// adapter's, and every tensor that will be trained is there. BadInput, with the field of the job: as
/// resolve_lora(), a setting that the adapter contradicts, a file that cannot be read or is of another
/// model.
Result<LoraArgs> resolve_adapter(Files& files, const layout::ModelConfig& model,
                                 const LoraArgs& asked);

/// The tensors of the adapter that a run begins with; nullopt: it begins with new ones. Error: none can be
/// read.
Result<std::optional<WeightSource>> open_continued(Files& files,
                                                   const std::optional<LoraArgs>& asked);

}  // namespace dsj::weights
