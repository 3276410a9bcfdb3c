// Greedy completion of token ids with a key-value cache: the whole model on one rank, in fp32. For
// `dsj-train generate` and tests. Left out: sampling, 16-bit inference, batches of unequal lengths
// (the caller groups prompts by length).
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
  /// learned positions run out. The prompts have one length, from 1 to the last learned position.
  std::vector<std::vector<int32_t>> complete(std::span<const std::vector<int32_t>> prompts,
                                             int64_t fresh, std::span<const int32_t> stops);

 private:
  struct Cache {
    std::vector<at::Tensor> keys, values;  ///< per layer [batch, kv_heads, length, head_dim]
  };
  /// ids [batch, new] at positions `first` and up → the best next id of each row [batch].
  at::Tensor next(const at::Tensor& ids, int64_t first, Cache& cache);

  const layout::ModelConfig& model_;
  const dsconfig::ResolvedConfig config_;  ///< stage 0, fp32
  zero::ModelState state_;
  const std::unique_ptr<const models::Layer> layer_;
};

}  // namespace dsj::train
