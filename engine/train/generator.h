// Greedy completion of token ids with a key-value cache: a whole model on one rank, in fp32. Used
// by `dsj-train generate` and by tests. Left out: sampling, 16-bit inference, batches of unequal
// lengths (the caller groups them).
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
  /// `collectives` of world 1; both references outlive it.
  Generator(const layout::ModelConfig& model, comm::Collectives& collectives,
            const std::optional<LoraArgs>& lora = {});

  /// `adapter`: where there is LoRA, its weights in PEFT's layout.
  Status load(const weights::WeightSource& source, const weights::WeightSource* adapter = nullptr);

  /// Up to `fresh` ids after each prompt, until one of `stops` (left out of the result), or until
  /// the model has no more learned positions. Prompts of one length, not empty, and no longer than
  /// those positions.
  std::vector<std::vector<int32_t>> complete(std::span<const std::vector<int32_t>> prompts,
                                             int64_t fresh, std::span<const int32_t> stops);

 private:
  struct Cache {
    std::vector<at::Tensor> keys, values;  ///< per layer [batch, kv_heads, length, head_dim]
  };
  /// ids [batch, new] at positions first.. → the best next id of each row [batch].
  at::Tensor next(const at::Tensor& ids, int64_t first, Cache& cache);

  const layout::ModelConfig& model_;
  const dsconfig::ResolvedConfig config_;  ///< stage 0, fp32
  zero::ModelState state_;
  const std::unique_ptr<const models::Layer> layer_;
};

}  // namespace dsj::train
