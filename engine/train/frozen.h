// Parameters that stay as they are: because the job says so (layout/trained_part.h), or because they were frozen in the
// checkpoint that a run goes on from, such as DeepSpeed's of a model with requires_grad False. The checkpoint has no
// moments for them. Which ones they are is layout, so it is asked before the flats are made. Their values are the model
// directory's, as those of LoRA's base are, and are held against the checkpoint's.
// Tested by: tests/engine/deepspeed/train/frozen_test.cc
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/comm/collectives.h"
#include "engine/train/agreed_search.h"
#include "engine/train/inputs.h"
#include "engine/zero/model_state.h"

namespace dsj::train {

/// The names that were frozen in the checkpoint with which the next attempt begins, sorted: the newest readable one of the
/// output directory that this run saved, else the one that the arguments name. Empty: there is no checkpoint, or all are
/// trained. Error, on every rank and with the reason: one cannot open the named one, or finds others frozen than rank 0
/// does. Collective.
Result<std::vector<std::string>> frozen_in_checkpoint(Files& files, AgreedSearch& search,
                                                      const JobFile& job,
                                                      const dsconfig::ResolvedConfig& config,
                                                      comm::Collectives& collectives,
                                                      at::Device device);

/// What a run trains, as ModelState takes it: what the job says (Inputs::trained); else every module but `frozen`, those of
/// the checkpoint, without adapters. BadInput: the model has no such parameter, all are frozen, or only a part of a module is.
Result<std::optional<LoraArgs>> trained_part(const Inputs& in,
                                             const std::vector<std::string>& frozen);

/// The names that `state` does not train, sorted. Empty with LoRA, whose base is another matter.
std::vector<std::string> frozen_of(const Inputs& in, const zero::ModelState& state);

/// BadInput: what was frozen in `saved` is not what `state` freezes, or has other values there than in the model directory,
/// both rounded to the type that the run computes in. (Our own checkpoints do not hold them.) Each rank reads its share of
/// every parameter.
Status check_frozen(Files& files, const Inputs& in, checkpoint::SavedRun& saved,
                    zero::ModelState& state);

}  // namespace dsj::train
