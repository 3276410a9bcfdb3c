// Imports ROLL's pipelines: a role whose strategy is deepspeed_train becomes a DeepSpeedJob
// that fine-tunes the role's model on its data with its ds_config and arguments. Other parts of
// a pipeline (rollouts, rewards, other roles) do not fit into a job and are reported.
//
// Sources of the values, as in ROLL (alibaba/ROLL, roll/configs and deepspeed_strategy.py): ranks
// come from device_mapping and num_gpus_per_node (8); the model from model_args or from the
// pipeline's pretrain (student_pretrain, teacher_pretrain, reward_pretrain for those roles); bf16
// and fp16 from model_args.dtype (bf16); seed, max_grad_norm and sequence_length (or prompt_length
// + response_length) from the pipeline. train_batch_size, micro batch and gradient_clipping of the
// ds_config are overwritten, and an optimizer or scheduler in it is replaced.
#pragma once

#include <string>
#include <vector>

#include "cli/import/compose.h"
#include "cli/import/imported.h"
#include "common/files/files.h"
#include "common/result.h"

namespace dsj::jobimport {

struct RollRole {
  std::string path;      ///< "actor_train", "rewards.llm_judge"
  std::string strategy;  ///< "deepspeed_train", "vllm", ...; empty if none is named
  int ranks = 0;         ///< 0 if not stated or not readable
  bool imports() const { return strategy == "deepspeed_train"; }
};

struct RollPipeline {
  nlohmann::json value;                 ///< composed, with unresolved references
  std::string source;                   ///< the file
  std::vector<std::string> sources;     ///< this file and the files of its defaults
  std::vector<Substitute> substitutes;  ///< predefined files that replace missing ones
  std::vector<std::string> notes;
  std::vector<RollRole> roles;  ///< sorted by name; empty for a file with settings only
};

/// "deepspeed_zero3: configs/roll/deepspeed_zero3.yaml, because ... is not there".
std::string to_line(const Substitute& substitute);

/// Reads and composes a pipeline (compose.h), with the files of predefined.h in place of
/// missing ones. Errors: a file is not YAML, or its defaults refer to missing files.
Result<RollPipeline> read_roll(Files& files, const std::string& path,
                               const std::vector<std::string>& search_paths);

/// The role's job. Errors: BadInput if there is no such role (the message lists the roles), if
/// its strategy is another one, if a reference has no target, or if device_mapping is not a list.
Result<Imported> import_role(const RollPipeline& pipeline, const std::string& role);

}  // namespace dsj::jobimport
