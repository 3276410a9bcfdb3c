// Which models can have their rows cut over ranks (sequence_parallel_size). Pure.
// Tested by: tests/job/plan/row_cut_plan_test.cc
#pragma once

#include "common/result.h"
#include "job/dsconfig/resolved.h"
#include "job/layout/model_config.h"

namespace dsj::plan {

/// Error: attention's heads cannot be dealt to the ranks that share a row, or a layer of the model
/// reads more of a row than a rank has. Without sequence_parallel_size: none.
Status check_row_cut(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config);

}  // namespace dsj::plan
