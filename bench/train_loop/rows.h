// The models and rows of the training benches, and a micro-batch of them as a plain loop has it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::bench {

/// Writes DIR/model and DIR/data.json. `kind`:
/// - "fixed": 24 M parameters, rows of 256 tokens;
/// - "alpaca": the same model, rows with alpaca's lengths, no loss on the prompt;
/// - "vocabulary": alpaca's rows, 2 layers of 256 and a vocabulary of 151,936 as Qwen2 has it, 80 M parameters.
/// BadInput: another kind. Returns the number of parameters.
Result<int64_t> prepare(const std::string& directory, const std::string& kind);

struct Row {
  std::vector<int64_t> ids, labels;  ///< labels: -100 where there is no loss
};
std::vector<Row> read_rows(const std::string& path);

/// Rows as one rectangle, padded to the longest as Hugging Face's collator does.
struct Padded {
  at::Tensor ids, labels;  ///< [rows, longest] int64
  int64_t tokens = 0;      ///< without padding
};
/// `count` rows from number `first` on, around the end.
Padded padded(const std::vector<Row>& rows, int64_t first, int64_t count);

}  // namespace dsj::bench
