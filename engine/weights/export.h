// The exported model/: a Hugging Face directory that transformers loads. Weights are written tensor
// by tensor; configuration and tokenizer files come from the directory that the run started from.
// Readers of model/ see the old one or the new one, whole. What another program or person put there
// is never removed (export_record.h). A model of several files is written by
// several ranks, each its files. Called by engine/train and by merge.h. A run with LoRA exports its
// adapters (adapter.h) instead of a model.
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
#include "engine/weights/safetensors_writer.h"

namespace dsj::weights {

/// What transformers needs to know of a reward model: its class, and the token behind which it reads no
/// score.
struct RewardModel {
  std::string architecture;
  int32_t pad = 0;
};

struct ExportOptions {
  std::string source_dir;    ///< the model that the run started from
  std::string target_dir;    ///< OUT/model; its parent must exist
  DType dtype = DType::F32;  ///< of the weights; config.json gets it
  int64_t shard_bytes_max = kShardBytesMax;
  /// Set: exports an adapter in PEFT's layout. No config.json; tensors get kAdapterPrefix, in one
  /// file.
  std::optional<AdapterConfig> adapter = {};
  /// Set: the model's eos token from now on. Unset: the source's.
  std::optional<EosToken> eos = {};
  /// Set: config.json becomes a reward model's.
  std::optional<RewardModel> reward = {};
  /// Set: the text of the model's chat template from now on. Unset: the source's.
  std::optional<std::string> chat_template = {};
  /// README.md, the model card; empty: there is none. The source's card is not copied: it is of another model.
  std::string card = {};
  /// Another export to the same place may follow, and replaces this one: it is recorded.
  bool is_replaced_later = true;
  /// Which of the ranks that export together this is.
  Share share = {};
};

struct ExportTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::optional<DType> dtype = {};  ///< if another than the model's
};

class ModelExport {
 public:
  /// Starts beside the target, in ".TARGET.staging". First clear_dead_export(). Copies config.json
  /// with its dtype updated (it must exist), generation_config.json and the tokenizer's files if they
  /// exist, each with another eos token if the options name one. All of that is
  /// rank 0's; the other ranks touch nothing, and go on when it has done it. `files` must outlive
  /// the export.
  static Result<ModelExport> begin(Files& files, const ExportOptions& options,
                                   const std::vector<ExportTensor>& tensors);

  /// Whether ranks other than 0 have files to write.
  bool is_dealt() const;
  /// Whether this rank finds what rank 0's begin() made.
  bool sees_staging();
  /// All files become rank 0's. All ranks call it, before the first append().
  void write_alone();
  /// Whether the tensor is in one of this rank's files.
  bool writes(const std::string& name) const;

  /// Takes the next values of the next tensor that this rank writes, in begin()'s order
  /// (DSJ_CHECK).
  Status append(const std::string& name, std::span<const float> values);
  /// Makes this rank's files durable. All its values must be there (DSJ_CHECK).
  Status finish();

  /// Rank 0 only, when every rank has finished. Publishes by one swap of directories. Where the
  /// file system cannot swap it takes two renames: between them there is no model/, and if the
  /// process dies there, the next export or recover_export() puts the old one back. An earlier
  /// export is removed; anything else that lies there is renamed to TARGET.kept. If the name cannot
  /// be had (a mount), the model is TARGET.new. Environment: a file of another rank is not there.
  Status publish();
  /// Where publish() put the model.
  const std::string& published_path() const { return published_path_; }
  /// What did not go as it should, though the model is published. Of rank 0.
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

/// Puts back the model that a dead export had moved aside between its two renames, if there is one.
Status recover_export(Files& files, const std::string& target_dir);

/// recover_export(), then removes what a dead export left beside the target. Returns what failed, as
/// warnings.
std::vector<std::string> clear_dead_export(Files& files, const std::string& target_dir);

}  // namespace dsj::weights
