// Greedy completion of token ids with a key-value cache: the whole model on one rank, in fp32. For
// `dsj-train generate` and tests. Prompts of several lengths lie end to end; none is padded. Left
// out: sampling, 16-bit inference.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/models/unit.h"
#include "engine/weights/weight_source.h"

namespace dsj::train {

class Generator {
 public:
  /// `collectives`: of world size 1. Both references must outlive it.
  Generator(const layout::ModelConfig& model, comm::Collectives& collectives,
            const std::optional<LoraArgs>& lora = {});

  /// `adapter`: the LoRA weights in PEFT's layout, if there is LoRA. Error: see ModelState::load.
  Status load(const weights::WeightSource& source, const weights::WeightSource* adapter = nullptr);

  /// Up to `fresh` ids after each prompt, until one of `stops` (not part of the result) or until
  /// learned positions run out. Each prompt has 1 token or more, up to the last learned position.
  /// takes_one_length(): all have one length.
  std::vector<std::vector<int32_t>> complete(std::span<const std::vector<int32_t>> prompts,
                                             int64_t fresh, std::span<const int32_t> stops);
  /// Dynamic rope scaling makes frequencies depend on the longest row of a call: rows of other
  /// lengths would change a completion.
  static bool takes_one_length(const layout::ModelConfig& model);

 private:
  struct Cache {
    std::vector<at::Tensor> keys, values;  ///< per layer [rows, kv_heads, length, head_dim]
  };
  Cache make_cache(int64_t rows, int64_t length) const;
  /// ids [N] of `rows` → the best next id of each row [rows].
  at::Tensor next(const at::Tensor& ids, const models::RowBounds& rows, Cache& cache);

  const layout::ModelConfig& model_;
  const dsconfig::ResolvedConfig config_;  ///< stage 0, fp32
  zero::ModelState state_;
  const std::unique_ptr<const models::Layer> layer_;
  models::ops::Ropes ropes_;
};

}  // namespace dsj::train
