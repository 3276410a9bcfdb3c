// The rows that a job will train on, tokenized and measured: what `dsj plan` predicts activations
// from, and what the number of steps of a packed job depends on.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/check/open_rows.h"
#include "engine/data/batches/packs.h"
#include "engine/data/long_rows.h"
#include "engine/data/row_sizes.h"
#include "job/plan/memory_input.h"
#include "job/spec/job.h"

namespace dsj::cli {

struct MeasuredRows {
  std::vector<data::RowSize> rows;   ///< all that are trained on, at least one
  std::optional<data::Packs> packs;  ///< training.packing
  data::LongRows longer;             ///< than what is trained on of a row
  /// What the sampler deals: rows, or packs.
  const std::vector<data::RowSize>& dealt() const { return packs ? packs->sizes() : rows; }
};

/// Reads and tokenizes every row, on all processors. Error: a row cannot be read, or there are too
/// many to look at each.
Result<std::shared_ptr<const MeasuredRows>> measure_rows(const jobspec::Job& job,
                                                         const layout::ModelConfig& model,
                                                         const OpenRows& open);

/// Makes `input` count with the largest micro-batches that the run will have.
void count_with(const MeasuredRows& rows, const jobspec::Job& job, plan::MemoryInput& input);

/// What activations were predicted from, for the plan. `rows` null: from the longest row that
/// maxSeqLength allows, because of `why`.
nlohmann::json rows_json(const MeasuredRows* rows, const std::string& why,
                         const plan::MemoryInput& input);

}  // namespace dsj::cli
