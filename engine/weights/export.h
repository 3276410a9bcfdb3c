// The exported model/: a Hugging Face directory that transformers loads. Weights are written tensor
// by tensor; configuration and tokenizer files come from the directory that the run started from.
// Readers of model/ see the old one or the new one, whole. Called by engine/train on rank 0 and by
// merge.h. A run with LoRA exports its adapters (adapter.h) instead of a model.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/adapter.h"
#include "engine/weights/safetensors_writer.h"

namespace dsj::weights {

struct ExportOptions {
  std::string source_dir;    ///< the model that the run started from
  std::string target_dir;    ///< OUT/model; its parent must exist
  DType dtype = DType::F32;  ///< of the weights; config.json gets it
  int64_t shard_bytes_max = kShardBytesMax;
  /// Set: exports an adapter in PEFT's layout. No config.json; tensors get kAdapterPrefix, in one
  /// file.
  std::optional<AdapterConfig> adapter = {};
};

struct ExportTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::optional<DType> dtype = {};  ///< if another than the model's
};

class ModelExport {
 public:
  /// Starts beside the target, in ".TARGET.staging". First removes a dead export's leftover, and
  /// puts back a model that it had renamed aside. Copies config.json with its dtype updated (it
  /// must exist), generation_config.json and the tokenizer's files if they exist. `files` must
  /// outlive the export.
  static Result<ModelExport> begin(Files& files, const ExportOptions& options,
                                   const std::vector<ExportTensor>& tensors);

  /// Takes the next values of the next tensor, in begin()'s order (DSJ_CHECK).
  Status append(const std::string& name, std::span<const float> values);

  /// All values must be there (DSJ_CHECK). Makes them durable and publishes them by one swap of
  /// directories. Where the file system cannot swap it takes two renames: between them there is no
  /// model/, and if the process dies there, the next export or recover_export() puts the old one
  /// back.
  Status publish();

 private:
  Files* files_ = nullptr;
  ExportOptions options_;
  std::unique_ptr<ModelWriter> writer_;
  std::unique_ptr<SafetensorsWriter> adapter_;  ///< for an adapter, instead of writer_
};

/// Puts back the model that a dead export had moved aside between its two renames, if there is one.
Status recover_export(Files& files, const std::string& target_dir);

}  // namespace dsj::weights
