// The models that a run with saveOnlyModel keeps beside its last one: OUT/models/checkpoint-<step>, each an
// export (export.h). What somebody else put there, or changed, is never removed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files/files.h"

namespace dsj::weights {

/// "checkpoint-<step>", as Trainer calls it.
std::string kept_model_name(int64_t step);

/// Removes the oldest exports of `directory` by their steps until `limit` are left; below 1: none. That of
/// `newest` stays. Returns what failed or stays though it is too many, as warnings.
std::vector<std::string> prune_models(Files& files, const std::string& directory, int64_t limit,
                                      int64_t newest);

/// clear_dead_export() of each export that ended while it wrote. The directory need not exist.
std::vector<std::string> clear_dead_models(Files& files, const std::string& directory);

}  // namespace dsj::weights
