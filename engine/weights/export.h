// Exports model/: a Hugging Face directory that transformers loads. Weights are written tensor by
// tensor; configuration and tokenizer files are copied from the initial model. Readers of model/
// see the old one or the new one, complete. Foreign files there are never removed
// (export_record.h). Several ranks write a model of several files, each some of these. Called by
// engine/train and merge.h. A run with LoRA exports its adapters (adapter.h) instead of a model.
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
#include "engine/weights/eos_token.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "engine/weights/new_vocabulary.h"

namespace dsj::weights {

/// What transformers needs for a reward model: its class, and the padding token, after which no
/// score is read.
struct RewardModel {
  std::string architecture;
  int32_t pad = 0;
};

struct ExportOptions {
  std::string source_dir;    ///< the initial model
  std::string target_dir;    ///< OUT/model; its parent must exist
  DType dtype = DType::F32;  ///< of the weights; also written to config.json
  int64_t shard_bytes_max = kShardBytesMax;
  /// If set, exports an adapter in PEFT's layout: no config.json; tensors get kAdapterPrefix, in
  /// one file.
  std::optional<AdapterConfig> adapter = {};
  /// If set, the model's new eos token; else the source's is kept.
  std::optional<EosToken> eos = {};
  /// If set, the tokens that the source's tokenizer lacks.
  std::optional<NewVocabulary> vocabulary = {};
  /// If set, config.json becomes a reward model's.
  std::optional<RewardModel> reward = {};
  /// If set, the model's new chat template; else the source's is kept.
  std::optional<std::string> chat_template = {};
  /// README.md, the model card, or empty. Not copied from the source, whose card describes another
  /// model.
  std::string card = {};
  /// Whether a later export may replace this one: then it is recorded.
  bool is_replaced_later = true;
  /// This rank's share of a joint export.
  Share share = {};
};

struct ExportTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::optional<DType> dtype = {};  ///< if it differs from the model's
};

class ModelExport {
 public:
  /// Starts an export in ".TARGET.staging" beside the target. Call clear_dead_export() first. Rank
  /// 0 copies config.json (which must exist) with its dtype updated, generation_config.json and the
  /// tokenizer's files if they exist, each with the options' eos token. The other ranks write
  /// nothing here, and may continue when rank 0 has returned. `files` must outlive the export.
  static Result<ModelExport> begin(Files& files, const ExportOptions& options,
                                   const std::vector<ExportTensor>& tensors);

  /// Whether ranks other than 0 have files to write.
  bool is_dealt() const;
  /// Whether this rank sees the staging directory of rank 0's begin().
  bool sees_staging();
  /// Assigns all files to rank 0. All ranks call it, before the first append().
  void write_alone();
  /// Whether the tensor is in one of this rank's files.
  bool writes(const std::string& name) const;

  /// Writes the next values of the next tensor of this rank, in begin()'s order
  /// (DSJ_CHECK).
  Status append(const std::string& name, std::span<const float> values);
  /// Makes this rank's files durable. All values must be complete (DSJ_CHECK).
  Status finish();

  /// Call it on rank 0 when every rank has finished. Publishes by swapping directories. If the file
  /// system cannot swap, it uses two renames: between them there is no model/, and if the process
  /// dies there, the next export or recover_export() restores the old one. An earlier export is
  /// removed; any other content is renamed to TARGET.kept. If the name is not available (a mount),
  /// the model is TARGET.new. Environment: a file of another rank is missing.
  Status publish();
  /// The path of the published model.
  const std::string& published_path() const { return published_path_; }
  /// Problems that did not prevent the publication. On rank 0.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Status make_staging();
  Status take_place(const std::string& target);

  Files* files_ = nullptr;
  ExportOptions options_;
  std::unique_ptr<ModelWriter> writer_;         ///< null: for an adapter
  std::unique_ptr<SafetensorsWriter> adapter_;  ///< of rank 0, for an adapter
  std::string published_path_;
  std::vector<std::string> warnings_;
};

/// Restores the model that a dead export had renamed between its two renames, if there is one.
Status recover_export(Files& files, const std::string& target_dir);

/// recover_export(), then removes leftovers of a dead export beside the target. Returns failures as
/// warnings.
std::vector<std::string> clear_dead_export(Files& files, const std::string& target_dir);

}  // namespace dsj::weights
