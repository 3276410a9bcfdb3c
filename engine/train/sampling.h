// Which token follows: the best one, or one drawn from the probabilities that temperature, top-k, top-p,
// min-p and the repetition penalty leave. The rules and their order are those of transformers'
// generate(): penalty, temperature, top-k, top-p, min-p.
// Tested by: tests/engine/train/sampling_test.cc
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "job/generate_arguments.h"

namespace dsj::train {

/// The probabilities [V] that are left of `logits` [V]: 0 for a token that is dropped. `seen`: the
/// ids of prompt and completion, which the penalty concerns.
/// temperature 0: all of it on the first of the best tokens.
std::vector<double> token_probabilities(const Sampling& sampling, std::span<const float> logits,
                                        std::span<const int32_t> seen);

/// The token that `uniform` (at least 0, below 1) falls on.
int32_t draw_token(std::span<const double> probabilities, double uniform);

/// A number that follows from these alone: neither from the batch nor from the order of calls. At
/// least 0, below 1. `stream`: the prompt's or the turn's number; `position`: the token's.
double token_uniform(uint64_t seed, uint64_t stream, uint64_t position);

/// The next token of a prompt's completion. `stream`: see token_uniform().
int32_t choose_token(const Sampling& sampling, std::span<const float> logits,
                     std::span<const int32_t> prompt, std::span<const int32_t> completion,
                     uint64_t stream);

}  // namespace dsj::train
