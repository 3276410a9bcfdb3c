// The rows that a job will train on, tokenized and measured: `dsj plan` predicts activations
// from them, and the number of steps of a packed job depends on them.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/batches/packs.h"
#include "engine/data/long_rows.h"
#include "engine/data/row_sizes.h"
#include "engine/rows/job_rows.h"
#include "job/plan/memory_input.h"
#include "job/spec/job.h"

namespace dsj::cli {

struct MeasuredRows {
  std::vector<data::RowSize> rows;   ///< all rows that are trained on, at least one
  std::optional<data::Packs> packs;  ///< training.packing
  data::LongRows longer;             ///< rows that are cut
  /// The sizes that the sampler deals: of rows, or of packs.
  const std::vector<data::RowSize>& dealt() const { return packs ? packs->sizes() : rows; }
};

/// Reads and tokenizes every row, on all processors. Errors: a row cannot be read, or there are
/// too many to read them all.
Result<std::shared_ptr<const MeasuredRows>> measure_rows(const jobspec::Job& job,
                                                         const layout::ModelConfig& model,
                                                         const data::JobRows& open);

/// Sets the largest micro-batches of the run in `input`.
void count_with(const MeasuredRows& rows, const jobspec::Job& job, plan::MemoryInput& input);

/// What activations were predicted from, for the plan. If `rows` is null, the longest row that
/// maxSeqLength allows; `why` gives the reason.
nlohmann::json rows_json(const MeasuredRows* rows, const std::string& why,
                         const plan::MemoryInput& input);

}  // namespace dsj::cli
