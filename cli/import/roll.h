// ROLL's pipelines: a role whose strategy is deepspeed_train becomes a DeepSpeedJob that fine-tunes
// the role's model on the role's data with the role's ds_config and arguments. What a pipeline does
// besides (rollouts, rewards, other roles) has no place in a job and is named.
//
// Where the values come from, as ROLL (alibaba/ROLL, roll/configs and deepspeed_strategy.py) takes
// them: ranks from device_mapping and num_gpus_per_node (8), the model from model_args or from the
// pipeline's pretrain (student_pretrain, teacher_pretrain, reward_pretrain for those roles), bf16
// and fp16 from model_args.dtype (bf16), seed, max_grad_norm and sequence_length (or prompt_length
// + response_length) from the pipeline; train_batch_size, micro batch and gradient_clipping of the
// ds_config are overwritten, an optimizer or scheduler in it is replaced.
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
  std::string strategy;  ///< "deepspeed_train", "vllm", ...; empty: none is named
  int ranks = 0;         ///< 0: not stated, or not readable
  bool imports() const { return strategy == "deepspeed_train"; }
};

struct RollPipeline {
  nlohmann::json value;                 ///< composed, references not yet followed
  std::string source;                   ///< the file
  std::vector<std::string> sources;     ///< it and the files of its defaults
  std::vector<Substitute> substitutes;  ///< predefined files in the place of some of them
  std::vector<std::string> notes;
  std::vector<RollRole> roles;  ///< in the order of their names; empty: a file of settings only
};

/// "deepspeed_zero3: configs/roll/deepspeed_zero3.yaml, because ... is not there".
std::string to_line(const Substitute& substitute);

/// Reads and composes (compose.h), with the files of predefined.h where the pipeline's own are not
/// there. Errors: what is not YAML, defaults that lead nowhere.
Result<RollPipeline> read_roll(Files& files, const std::string& path,
                               const std::vector<std::string>& search_paths);

/// The role's job. BadInput: no such role (with those there are), another strategy, a reference to
/// nothing, a device_mapping that is no list.
Result<Imported> import_role(const RollPipeline& pipeline, const std::string& role);

}  // namespace dsj::jobimport
