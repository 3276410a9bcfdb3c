// The models that a run with saveOnlyModel keeps beside its last one: OUT/models/checkpoint-<step>,
// each an export (export.h). Foreign or modified content is never removed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files/files.h"

namespace dsj::weights {

/// "checkpoint-<step>", as in Trainer.
std::string kept_model_name(int64_t step);

/// Removes the exports of `directory` with the smallest steps until `limit` are left; below 1,
/// none. Keeps that of `newest`. Returns failures, and exports beyond the limit, as warnings.
std::vector<std::string> prune_models(Files& files, const std::string& directory, int64_t limit,
                                      int64_t newest);

/// Calls clear_dead_export() for each unfinished export. The directory need not exist.
std::vector<std::string> clear_dead_models(Files& files, const std::string& directory);

}  // namespace dsj::weights
