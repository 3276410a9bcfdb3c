// Checks the saved adapter that a run begins with (LoraArgs::adapter) against the job and the model.
// Reads only headers, no weights. `dsj` calls it before it starts the ranks, and each rank again.
#pragma once

#include <optional>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/weight_source.h"
#include "job/layout/model_config.h"
#include "job/lora_args.h"

namespace dsj::weights {

/// Resolves a job's LoRA settings as layout::resolve_lora() does. If the run begins with an adapter,
/// fields that the job does not set come from the adapter, and the adapter has every tensor that is
/// trained. Errors: BadInput with the job's field, as resolve_lora(), or if the job contradicts the
/// adapter, or if the adapter cannot be read or belongs to another model.
Result<LoraArgs> resolve_adapter(Files& files, const layout::ModelConfig& model,
                                 const LoraArgs& asked);

/// Opens the tensors of the adapter that a run begins with. nullopt if it begins with a new adapter.
/// Errors: if the file cannot be read.
Result<std::optional<WeightSource>> open_continued(Files& files,
                                                   const std::optional<LoraArgs>& asked);

}  // namespace dsj::weights
