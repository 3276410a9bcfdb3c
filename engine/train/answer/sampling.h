// Chooses the next token: the best one, or one drawn from the probabilities that temperature,
// top-k, top-p, min-p and the repetition penalty leave. Rules and order are those of transformers'
// generate(): penalty, temperature, top-k, top-p, min-p.
// Tested by: tests/engine/train/answer/sampling_test.cc
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "job/generate_arguments.h"

namespace dsj::train {

/// The probabilities [V] for `logits` [V]; 0 for a dropped token. `seen`: the ids of prompt and
/// completion, to which the penalty applies.
/// With temperature 0, the first of the best tokens has probability 1.
std::vector<double> token_probabilities(const Sampling& sampling, std::span<const float> logits,
                                        std::span<const int32_t> seen);

/// The token at which the cumulated probabilities exceed `uniform`, which is in [0, 1).
int32_t draw_token(std::span<const double> probabilities, double uniform);

/// A number in [0, 1) that depends only on the arguments, not on the batch or the order of calls.
/// `stream`: the prompt's or the turn's number; `position`: the token's.
double token_uniform(uint64_t seed, uint64_t stream, uint64_t position);

/// The next token of a prompt's completion. `stream`: see token_uniform().
int32_t choose_token(const Sampling& sampling, std::span<const float> logits,
                     std::span<const int32_t> prompt, std::span<const int32_t> completion,
                     uint64_t stream);

}  // namespace dsj::train
