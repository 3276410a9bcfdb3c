// spec.training: Hugging Face's TrainingArguments, in camelCase in a manifest and in snake_case on
// a command line. A field without a value was not given; Hugging Face's default, which the comments
// name first, then holds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "job/lora_args.h"

namespace dsj {

struct TrainingArgs {
  std::string model_name_or_path;
  std::string data_path;
  std::string output_dir;
  std::optional<int64_t> max_steps;                    ///< if above 0, overrides num_train_epochs
  std::optional<double> num_train_epochs;              ///< 3.0
  std::optional<int64_t> per_device_train_batch_size;  ///< 8
  std::optional<int64_t> gradient_accumulation_steps;  ///< 1
  std::optional<std::string> optim;     ///< adamw_torch; used if ds_config has no optimizer
  std::optional<double> learning_rate;  ///< 5e-5
  std::optional<double> weight_decay;   ///< 0
  std::optional<double> adam_beta1, adam_beta2, adam_epsilon;  ///< 0.9, 0.999, 1e-8
  std::optional<double> max_grad_norm;                         ///< 1.0
  std::optional<double> warmup_ratio;                          ///< 0
  std::optional<double> warmup_steps;  ///< 0; if above 0, overrides the ratio; below 1: a share
  std::optional<std::string> lr_scheduler_type;       ///< linear
  std::optional<nlohmann::json> lr_scheduler_kwargs;  ///< an object, or its text
  std::optional<int64_t> seed;                        ///< 42
  std::optional<bool> bf16, fp16;
  std::optional<int64_t> data_seed;             ///< of the order of rows; default: seed
  std::optional<std::string> logging_strategy;  ///< steps; or no, epoch
  /// Ours: 1; metrics.jsonl has every step anyway. As for save_steps and eval_steps: a whole
  /// number, or below 1 a share of the run (Cadence, job/dsconfig/sections/observe.cc).
  std::optional<double> logging_steps;
  std::optional<bool> logging_first_step;      ///< false
  std::optional<std::string> save_strategy;    ///< steps; or no, epoch, best
  std::optional<double> save_steps;            ///< 500
  std::optional<int64_t> save_total_limit;     ///< 0: all
  std::optional<bool> load_best_model_at_end;  ///< false; true exports the best checkpoint's model
  std::optional<std::string> metric_for_best_model;  ///< loss, the only choice
  std::optional<bool> greater_is_better;             ///< false, for a loss
  std::optional<int64_t> early_stopping_patience;    ///< evaluations; unset: no early stopping
  std::optional<double> early_stopping_threshold;    ///< 0
  std::optional<std::string> report_to;    ///< none; or tensorboard, all, separated by commas
  std::optional<std::string> logging_dir;  ///< for tensorboard; OUTPUT/runs
  std::optional<std::string> run_name;     ///< for tensorboard's folder; run
  std::optional<std::string> evaluation_strategy;     ///< no, steps, epoch
  std::optional<double> eval_steps;                   ///< logging_steps
  std::optional<double> eval_delay;                   ///< 0; steps or epochs before the first one
  std::optional<bool> eval_on_start;                  ///< false
  std::optional<int64_t> per_device_eval_batch_size;  ///< 8
  std::optional<std::string> eval_data_path;          ///< a data file; unset: none
  /// LLaMA-Factory's: the data sets to evaluate on, by names in data_path/dataset_info.json.
  std::optional<std::string> eval_dataset;
  /// Instead of eval_data_path: hold out this percentage of data_path, from the first row on.
  std::optional<double> validation_split_percentage;
  /// LLaMA-Factory's, instead of both: rows held out at random with `seed`; below 1 a share.
  std::optional<double> val_size;
  /// LLaMA-Factory's: the data sets, by names in data_path/dataset_info.json, with commas.
  std::optional<std::string> dataset;
  /// Names of a row's fields: "columns" and "tags" of dataset_info.json in one object.
  std::optional<nlohmann::json> dataset_columns;
  std::optional<int64_t> max_samples;       ///< LLaMA-Factory's: the first rows of each data set
  std::optional<int64_t> max_eval_samples;  ///< Hugging Face's: the first rows of eval_data_path
  /// LLaMA-Factory's, for several data sets: concat, interleave_under, interleave_over.
  std::optional<std::string> mix_strategy;
  std::optional<std::string> dataset_weights;         ///< for interleaving: numbers, with commas
  std::optional<bool> gradient_checkpointing;         ///< recompute activations
  std::optional<int64_t> max_seq_length;              ///< 2048 (model_max_length)
  std::optional<bool> save_only_model;                ///< at save_steps; a stop saves everything
  std::optional<bool> skip_bad_rows;                  ///< leaves out rows that cannot be read
  std::optional<std::string> truncation_side;         ///< right: the side that is cut off; or left
  std::optional<std::string> resume_from_checkpoint;  ///< a path; unset: the newest, if any
  /// false: refuses to resume with other data; true: starts the order of the new data.
  std::optional<bool> ignore_data_skip;
  /// false; true: an epoch omits the rows that do not fill a micro-batch on every rank.
  std::optional<bool> dataloader_drop_last;
  std::optional<bool> overwrite_output_dir;  ///< false; only `dsj run` reads it
  std::optional<bool> shuffle;               ///< ours: true
  std::optional<bool> packing;  ///< TRL's: false; rows end to end in max_seq_length tokens
  std::optional<std::string> packing_strategy;  ///< TRL's: bfd; or bfd_split, wrapped
  std::optional<bool> group_by_length;          ///< false; rows of similar length in a batch
  /// Ours, for `messages` rows: auto (the model's), chatml, qwen, llama3 ...
  std::optional<std::string> chat_template;
  /// Ours: the date that strftime_now shows, YYYY-MM-DD; unset: today.
  std::optional<std::string> chat_date;
  /// LLaMA-Factory's: the system text of alpaca and chat rows that have none.
  std::optional<std::string> default_system;
  std::optional<bool> train_on_inputs;      ///< axolotl's: false; true: every token is a target
  std::optional<bool> mask_history;         ///< LLaMA-Factory's: false; true: only the last one
  std::optional<std::string> train_on_eos;  ///< axolotl's: turn; or all, last, none
  std::optional<std::string> eos_token;     ///< the token that ends answers; unset: the model's own
  std::optional<std::string> loss_normalization;  ///< token (docs/data.md)
  /// The objective (job/dsconfig/config/objective.h): sft; or dpo, orpo, kto, reward, pretrain.
  std::optional<std::string> objective;
  std::optional<double> beta;  ///< 0.1; TRL's, for dpo, kto and orpo
  /// TRL's, for dpo: sigmoid; or hinge, ipo, robust ... For sft: nll or dft.
  std::optional<std::string> loss_type;
  std::optional<double> label_smoothing;             ///< 0; TRL's, for dpo
  std::optional<double> rpo_alpha;                   ///< 0; TRL's before 1.0, for dpo
  std::optional<double> center_rewards_coefficient;  ///< 0; TRL's, for reward
  std::optional<int64_t> max_prompt_length;          ///< TRL's before 1.0; unset: none
  std::optional<double> desirable_weight;            ///< 1; TRL's, for kto
  std::optional<double> undesirable_weight;          ///< 1; TRL's, for kto
  std::optional<double> label_smoothing_factor;      ///< 0; Trainer's, for sft
  std::optional<double> router_aux_loss_coef;        ///< ms-swift's; unset: as config.json says
  std::optional<double> neftune_noise_alpha;         ///< unset: no noise
  /// Ours: 20; this many steps in a row with a non-finite loss or gradient end the run; 0: never.
  /// With fp16 the loss scale's own rules hold (engine/train/step/finite_guard.h).
  std::optional<int64_t> max_skipped_steps;
  std::optional<bool> export_not_finite;  ///< ours: false; true exports weights that are not finite
  /// Ours: auto (a GPU if there is one), cpu, cuda (a GPU, or the run is refused).
  std::optional<std::string> device;
  std::optional<LoraArgs> lora;  ///< unset: full weights are trained
  /// Without lora: the part of the model to train (layout/trained_part.h); unset: everything.
  std::optional<std::string> trainable_parameters;  ///< a regular expression over names
  std::optional<int64_t> trainable_layers;          ///< the last n layers; below 0: the first
};

/// The path of a separate set of evaluation rows (empty if there is none), and the names of its
/// data sets.
struct EvalSource {
  std::string path, dataset;
};
inline EvalSource eval_source(const TrainingArgs& args) {
  if (args.eval_dataset && !args.eval_dataset->empty()) return {args.data_path, *args.eval_dataset};
  return {args.eval_data_path.value_or(""), ""};
}

/// The number of rows at the start of a data file of `rows` rows that are held out for evaluation.
inline int64_t held_out_rows(int64_t rows, const TrainingArgs& args) {
  const double size = args.val_size.value_or(0), all = static_cast<double>(rows);
  if (size > 0)  // as datasets' train_test_split: from 1 on, rows
    return static_cast<int64_t>(std::min(1e15, std::ceil(size < 1 ? all * size : size)));
  const auto& percentage = args.validation_split_percentage;
  return percentage ? std::llround(static_cast<double>(rows) * (*percentage / 100)) : 0;
}

/// Reads the camelCase object of a manifest or of job.json. A number may be a string ("1e-6").
/// Errors: BadInput with the path if a key is unknown (with the nearest name) or a type is wrong.
Result<TrainingArgs> training_args_from_json(const nlohmann::json& object, const std::string& path);
/// Writes only the fields that were given, in camelCase.
nlohmann::json to_json(const TrainingArgs& args);
/// The camelCase name of every field, in the order of the struct.
const std::vector<std::string>& training_arg_names();
/// Whether a field is boolean, so that a command line may leave out its value.
bool is_training_switch(const std::string& name);

}  // namespace dsj
