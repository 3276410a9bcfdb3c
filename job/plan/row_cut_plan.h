// Which models can share rows over ranks (sequence_parallel_size), and which can leave tokens out of
// layers (random-LTD). Pure.
// Tested by: tests/job/plan/row_cut_plan_test.cc
#pragma once

#include "common/result.h"
#include "job/dsconfig/config/resolved.h"
#include "job/layout/model_config.h"

namespace dsj::plan {

/// Errors: if attention's heads cannot be divided among the ranks that share a row, or a layer of
/// the model needs more of a row than a rank has. None without sequence_parallel_size.
Status check_row_cut(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config);
/// Errors: if layers use the keys of earlier ones, or have inputs of their own (Gemma 4 E2B, E4B).
/// None without random-LTD.
Status check_left_out(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config);

}  // namespace dsj::plan
