// An adapter added into its base: a whole model directory, for programs that know no adapters. One
// tensor at a time, a few rows at a time; the sum in fp32, rounded once to the base's type. Without
// libtorch; called by `dsj merge`. Left out: adapters of embeddings and of the output layer.
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
  std::string output;   ///< the merged model; nothing of that name may be there
  int64_t shard_bytes_max = kShardBytesMax;
};

struct Merged {
  int64_t tensors = 0;                ///< written
  int64_t updated = 0, replaced = 0;  ///< of these: W + s B A; modules to save
  std::vector<std::string> left_out;  ///< buffers of the base that are no weights
};

/// W += s B A for every adapter, modules to save replaced; config.json and tokenizer are the
/// base's. BadInput, naming the tensor: one of the adapter that the base has no place for, a shape
/// that does not fit, an A without its B.
Result<Merged> merge_adapter(Files& files, const MergeOptions& options);

}  // namespace dsj::weights
