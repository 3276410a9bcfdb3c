// Completion of token ids with a key-value cache: the whole model on one rank, in fp32. For
// `dsj-train generate`, `dsj-train chat` and tests. Prompts of several lengths lie end to end; none
// is padded. Left out: 16-bit inference.
#pragma once

#include <cstdint>
#include <functional>
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

  /// Chooses the token of a row from its logits [vocabulary]; `completion`: the ids after its prompt.
  using Choose = std::function<int32_t(size_t row, std::span<const float> logits,
                                       std::span<const int32_t> completion)>;
  /// The first of the best tokens.
  static int32_t best(size_t row, std::span<const float> logits,
                      std::span<const int32_t> completion);

  /// Up to `fresh` ids after each prompt, until one of `stops` (not part of the result) or until
  /// learned positions run out. Each prompt has 1 token or more, up to the last learned position.
  /// takes_one_length(): all have one length.
  std::vector<std::vector<int32_t>> complete(std::span<const std::vector<int32_t>> prompts,
                                             int64_t fresh, std::span<const int32_t> stops,
                                             const Choose& choose = best);
  /// The same for the one prompt of a conversation: what it begins with as the one before (and its
  /// completion) did is not computed again; with the delta rule, if it is all of that. `heard` gets the ids so far after each; false ends the
  /// completion.
  std::vector<int32_t> go_on(const std::vector<int32_t>& prompt, int64_t fresh,
                             std::span<const int32_t> stops, const Choose& choose,
                             const std::function<bool(std::span<const int32_t>)>& heard);
  /// Dynamic rope scaling makes frequencies depend on the longest row of a call: rows of other
  /// lengths would change a completion.
  static bool takes_one_length(const layout::ModelConfig& model);

 private:
  using Cache = std::vector<models::LayerCache>;  ///< per layer
  Cache make_cache(int64_t rows, int64_t length) const;
  /// Makes room for `length` tokens in the conversation's cache; its first `kept` are kept.
  void reserve(int64_t length, int64_t kept);
  /// ids [N] of `rows` → the logits of what follows each row [rows, vocabulary], fp32.
  at::Tensor next(const at::Tensor& ids, const models::RowBounds& rows, Cache& cache);

  const layout::ModelConfig& model_;
  const dsconfig::ResolvedConfig config_;  ///< stage 0, fp32
  zero::ModelState state_;
  const std::unique_ptr<const models::Layer> layer_;
  models::ops::Ropes ropes_;
  Cache conversation_;          ///< of go_on(): one row
  int64_t room_ = 0;            ///< tokens that it has room for
  std::vector<int32_t> known_;  ///< the ids that it holds
};

}  // namespace dsj::train
