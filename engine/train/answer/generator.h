// Completes token ids with a key-value cache: the whole model on one rank and device, in fp32. For
// `dsj-train generate`, `dsj-train chat` and tests. Prompts of different lengths are concatenated
// without padding. Not supported: 16-bit inference.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/models/unit/unit.h"
#include "engine/weights/weight_source.h"

namespace dsj::train {

class Generator {
 public:
  /// `collectives` must have world size 1. Both references must outlive it.
  Generator(const layout::ModelConfig& model, comm::Collectives& collectives,
            const std::optional<LoraArgs>& lora = {}, at::Device place = at::kCPU);

  /// `adapter`: LoRA weights in PEFT's layout, with LoRA only. Errors: see ModelState::load.
  Status load(const weights::WeightSource& source, const weights::WeightSource* adapter = nullptr);

  /// Chooses the token of a row from its logits [vocabulary]; `completion`: the ids after its
  /// prompt.
  using Choose = std::function<int32_t(size_t row, std::span<const float> logits,
                                       std::span<const int32_t> completion)>;
  /// Chooses the best token; the first one of equals.
  static int32_t best(size_t row, std::span<const float> logits,
                      std::span<const int32_t> completion);

  /// Returns up to `fresh` ids after each prompt, until one of `stops` (not part of the result) or
  /// the last learned position. Each prompt has at least 1 token and fits the learned positions. If
  /// takes_one_length(), all must have the same length.
  std::vector<std::vector<int32_t>> complete(std::span<const std::vector<int32_t>> prompts,
                                             int64_t fresh, std::span<const int32_t> stops,
                                             const Choose& choose = best);
  /// The same for the prompt of a conversation. Ids that it shares with the start of the previous
  /// call's prompt and completion are not computed again (with the delta rule, only if it has all
  /// of them). `heard` gets the ids so far after each; returning false ends the completion.
  std::vector<int32_t> go_on(const std::vector<int32_t>& prompt, int64_t fresh,
                             std::span<const int32_t> stops, const Choose& choose,
                             const std::function<bool(std::span<const int32_t>)>& heard);
  /// Whether all rows of a call must have one length. With dynamic rope scaling, frequencies depend
  /// on the longest row, so rows of other lengths would change a completion.
  static bool takes_one_length(const layout::ModelConfig& model);

 private:
  using Cache = std::vector<models::LayerCache>;  ///< per layer
  Cache make_cache(int64_t rows, int64_t length) const;
  /// Grows the conversation's cache to `length` tokens and keeps the first `kept`.
  void reserve(int64_t length, int64_t kept);
  /// From ids [N] of `rows` to the logits of each row's next token [rows, vocabulary], fp32. Both
  /// tensors are on the host.
  at::Tensor next(const at::Tensor& ids, const models::RowBounds& rows, Cache& cache);

  const layout::ModelConfig& model_;
  const at::Device place_;
  const dsconfig::ResolvedConfig config_;  ///< stage 0, fp32
  zero::ModelState state_;
  const std::unique_ptr<const models::Layer> layer_;
  models::ops::Ropes ropes_;
  Cache conversation_;          ///< go_on()'s, of one row
  int64_t room_ = 0;            ///< its capacity in tokens
  std::vector<int32_t> known_;  ///< the ids in it
};

}  // namespace dsj::train
