// Parameters that are not trained: the job freezes them (layout/trained_part.h), or they were
// frozen in the checkpoint that the run continues, such as DeepSpeed's of a model with
// requires_grad False. Such a checkpoint has no moments for them. The names decide the layout, so
// they are read before the flats are made. Values come from the model directory, as a LoRA base,
// and must equal the checkpoint's.
// Tested by: tests/engine/deepspeed/train/frozen_test.cc
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/comm/collectives.h"
#include "engine/train/inputs/inputs.h"
#include "engine/train/state/agreed_search.h"
#include "engine/zero/model_state.h"

namespace dsj::train {

/// The sorted names of the parameters that were frozen in the checkpoint with which the next
/// attempt begins: the newest readable one that this run saved, else the one that the arguments
/// name. Empty if there is none or all are trained. Error, on every rank and with the reason: a
/// rank cannot open the named one, or finds other names than rank 0. Collective.
Result<std::vector<std::string>> frozen_in_checkpoint(Files& files, AgreedSearch& search,
                                                      const JobFile& job,
                                                      const dsconfig::ResolvedConfig& config,
                                                      comm::Collectives& collectives,
                                                      at::Device device);

/// What a run trains, as ModelState takes it: the job's choice (Inputs::trained), else every module
/// but `frozen`, the names of the checkpoint, without adapters. BadInput: the model has no such
/// parameter, all are frozen, or only a part of a module is.
Result<std::optional<LoraArgs>> trained_part(const Inputs& in,
                                             const std::vector<std::string>& frozen);

/// The sorted names that `state` does not train. Empty with LoRA.
std::vector<std::string> frozen_of(const Inputs& in, const zero::ModelState& state);

/// Checks the frozen parameters of `saved`. BadInput: `state` freezes other parameters, or their
/// values differ from the model directory's, both rounded to the type that the run computes in.
/// (Our own checkpoints do not contain values.) Each rank reads its share of every parameter.
Status check_frozen(Files& files, const Inputs& in, checkpoint::SavedRun& saved,
                    zero::ModelState& state);

}  // namespace dsj::train
