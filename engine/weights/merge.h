// An adapter added into its base: a whole model directory, for programs that know no adapters. It
// takes one tensor at a time, a few rows at a time. The sum is fp32, rounded once to the base's
// type. Without libtorch. Called by `dsj merge`. Left out: adapters of embeddings and of lm_head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/safetensors_writer.h"

namespace dsj::weights {

struct MergeOptions {
  std::string base;     ///< a model directory
  std::string adapter;  ///< a directory in PEFT's layout
  std::string output;   ///< the merged model; must not exist yet
  int64_t shard_bytes_max = kShardBytesMax;
};

struct Merged {
  int64_t tensors = 0;                ///< written
  int64_t updated = 0, replaced = 0;  ///< of these: W + s B A; replaced by modules to save
  std::vector<std::string> left_out;  ///< buffers of the base that are not weights
};

/// Computes W += s B A for every adapter and replaces modules to save; config.json and tokenizer
/// are the base's. BadInput, with the tensor's name: the base has no place for a tensor of the
/// adapter, a shape does not fit, an A has no B.
Result<Merged> merge_adapter(Files& files, const MergeOptions& options);

}  // namespace dsj::weights
