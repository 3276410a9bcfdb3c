// Merges an adapter into its base model, for programs that do not support adapters. Processes one
// tensor at a time, a few rows at a time. The sum is fp32, rounded once to the base's type. Without
// libtorch. Called by `dsj merge`. Not supported: adapters of embeddings and of lm_head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/formats/safetensors_writer.h"

namespace dsj::weights {

struct MergeOptions {
  std::string base;     ///< a model directory
  std::string adapter;  ///< a directory in PEFT's layout
  std::string output;   ///< the merged model; must not exist yet
  int64_t shard_bytes_max = kShardBytesMax;
};

struct Merged {
  int64_t tensors = 0;                ///< written
  int64_t updated = 0, replaced = 0;  ///< of these: adapted; replaced by modules to save
  std::vector<std::string> left_out;  ///< the base's buffers that are not weights
};

/// Computes W += s B A for every adapter and replaces modules to save; config.json and tokenizer
/// are the base's. BadInput, with the tensor's name: the base lacks a tensor of the adapter, shapes
/// do not match, an A has no B.
Result<Merged> merge_adapter(Files& files, const MergeOptions& options);

}  // namespace dsj::weights
