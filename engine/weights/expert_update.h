// What an adapter of all experts, or of a router, adds to one tensor of its base. For merge_adapter().
// Tested by: tests/engine/weights/merge_test.cc
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/weights/weight_source.h"
#include "job/layout/model_config.h"
#include "job/lora_args.h"

namespace dsj::weights {

struct ExpertChange {
  /// The adapter's tensors: [experts r, in] and [out, r experts] (layout::Adapter).
  std::string a, b;
  int64_t experts = 1;
  double scaling = 1;
  int64_t expert = -1;  ///< whose tensor it is; -1: it has all experts, in order
  int64_t first = 0;    ///< the first of the adapter's outputs that the tensor has
  bool in_out = false;  ///< the tensor has inputs before outputs
};

/// By name of a weight in the model's files, of the adapters that `lora.target_parameters` names.
/// Errors: BadInput as resolve_lora().
Result<std::map<std::string, ExpertChange>> expert_changes(const layout::ModelConfig& model,
                                                           const LoraArgs& lora);

struct Matrix {
  std::vector<float> values;
  int64_t rows = 0, columns = 0;
};
/// Refuses nan and infinity, which PEFT would merge.
Status check_finite(std::span<const float> values, const std::string& name,
                    const WeightSource& source);
/// Reads a tensor in fp32. Errors: BadInput if it is missing, is not a matrix, or is not finite.
Result<Matrix> read_matrix(const WeightSource& source, const std::string& name);

/// Each expert's tensors need the same two matrices: keeps the last few that were read.
class MatrixReader {
 public:
  explicit MatrixReader(const WeightSource& source) : source_(source) {}
  Result<std::shared_ptr<const Matrix>> read(const std::string& name);

 private:
  const WeightSource& source_;
  std::vector<std::pair<std::string, std::shared_ptr<const Matrix>>> recent_;
};

class ExpertUpdate {
 public:
  /// Error: BadInput if the adapter's shapes are not those of `weight`.
  static Result<ExpertUpdate> open(MatrixReader& adapter, const ExpertChange& change,
                                   const TensorInfo& weight);
  /// Adds to elements [first, first + values.size()) of the weight.
  void add(int64_t first, std::span<float> values) const;

 private:
  ExpertChange change_;
  std::shared_ptr<const Matrix> a_, b_;
  int64_t rank_ = 0, rows_ = 0, columns_ = 0;  ///< of one expert's matrix
};

}  // namespace dsj::weights
