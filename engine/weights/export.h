// The exported model/: a Hugging Face directory that transformers loads. Weights tensor by tensor,
// configuration and tokenizer files from the directory the run started from. Readers of model/ see
// the old one or the new one, whole. Called by engine/train on rank 0, and by merge.h. A run with
// LoRA exports its adapters (adapter.h) instead of a model.
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
  std::string source_dir;    ///< the model the run started from
  std::string target_dir;    ///< OUT/model; its parent must exist
  DType dtype = DType::F32;  ///< of the weights; written into config.json
  int64_t shard_bytes_max = kShardBytesMax;
  /// Set: an adapter in PEFT's layout. No config.json; tensors get kAdapterPrefix, in one file.
  std::optional<AdapterConfig> adapter = {};
};

struct ExportTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::optional<DType> dtype = {};  ///< another than the model's
};

class ModelExport {
 public:
  /// Starts beside the target, in ".TARGET.staging" (a leftover of a dead export is removed, and a
  /// model that a dead export had renamed aside is put back). Copies what is there of config.json
  /// (its dtype updated; it must be there), generation_config.json and the tokenizer's files.
  /// `files` must outlive the export.
  static Result<ModelExport> begin(Files& files, const ExportOptions& options,
                                   const std::vector<ExportTensor>& tensors);

  /// The next values of the next tensor, in the order given to begin() (DSJ_CHECK).
  Status append(const std::string& name, std::span<const float> values);

  /// All values are there (DSJ_CHECK): durable, then published by one swap of the directories, or,
  /// where the file system cannot swap, by two renames (between them there is no model/ for a
  /// moment; if the process dies there, the next export or recover_export() puts the old one back).
  Status publish();

 private:
  Files* files_ = nullptr;
  ExportOptions options_;
  std::unique_ptr<ModelWriter> writer_;
  std::unique_ptr<SafetensorsWriter> adapter_;  ///< instead of writer_
};

/// Puts back the model that an export which died between its two renames had moved aside. Nothing
/// to do is fine.
Status recover_export(Files& files, const std::string& target_dir);

}  // namespace dsj::weights
