// spec.training: Hugging Face's TrainingArguments, in camelCase in a manifest and in snake_case on
// a command line. A field without a value was not given: "auto" in ds_config then takes Hugging
// Face's default, which the comments name.
#pragma once

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
  std::optional<int64_t> max_steps;                    ///< above 0 it wins over num_train_epochs
  std::optional<double> num_train_epochs;              ///< 3.0
  std::optional<int64_t> per_device_train_batch_size;  ///< 8
  std::optional<int64_t> gradient_accumulation_steps;  ///< 1
  std::optional<std::string> optim;     ///< adamw_torch; read if ds_config has no optimizer
  std::optional<double> learning_rate;  ///< 5e-5
  std::optional<double> weight_decay;   ///< 0
  std::optional<double> adam_beta1, adam_beta2, adam_epsilon;  ///< 0.9, 0.999, 1e-8
  std::optional<double> max_grad_norm;                         ///< 1.0
  std::optional<double> warmup_ratio;                          ///< 0
  std::optional<double> warmup_steps;  ///< 0; above 0 it wins; below 1: a share of the run
  std::optional<std::string> lr_scheduler_type;       ///< linear
  std::optional<nlohmann::json> lr_scheduler_kwargs;  ///< an object, or its text
  std::optional<int64_t> seed;                        ///< 42
  std::optional<bool> bf16, fp16;
  std::optional<int64_t> data_seed;             ///< of the order of rows; seed
  std::optional<std::string> logging_strategy;  ///< steps; no, epoch
  /// Ours: 1; metrics.jsonl has every step anyway. As save_steps and eval_steps: a whole number, or
  /// below 1 a share of the run (Cadence, job/dsconfig/observe.cc).
  std::optional<double> logging_steps;
  std::optional<bool> logging_first_step;      ///< false
  std::optional<std::string> save_strategy;    ///< steps; no, epoch, best
  std::optional<double> save_steps;            ///< 500
  std::optional<int64_t> save_total_limit;     ///< 0: all
  std::optional<bool> load_best_model_at_end;  ///< false; the best checkpoint's model is exported
  std::optional<std::string> metric_for_best_model;  ///< loss, the only one
  std::optional<bool> greater_is_better;             ///< false, for a loss
  std::optional<int64_t> early_stopping_patience;    ///< evaluations; unset: no early stopping
  std::optional<double> early_stopping_threshold;    ///< 0
  std::optional<std::string> report_to;    ///< none; tensorboard, all: words with commas between
  std::optional<std::string> logging_dir;  ///< of tensorboard: OUTPUT/runs
  std::optional<std::string> run_name;     ///< of tensorboard's folder: run
  std::optional<std::string> evaluation_strategy;     ///< no, steps, epoch
  std::optional<double> eval_steps;                   ///< logging_steps
  std::optional<double> eval_delay;                   ///< 0; steps or epochs before the first one
  std::optional<bool> eval_on_start;                  ///< false
  std::optional<int64_t> per_device_eval_batch_size;  ///< 8
  std::optional<std::string> eval_data_path;          ///< a data file; unset: none
  /// LLaMA-Factory's: of data_path/dataset_info.json the data sets to evaluate on.
  std::optional<std::string> eval_dataset;
  /// Instead of eval_data_path: the share of data_path, from its first row on, that is held out.
  std::optional<double> validation_split_percentage;
  /// LLaMA-Factory's, instead of both: rows held out at random by `seed`; below 1 a share.
  std::optional<double> val_size;
  /// LLaMA-Factory's: of data_path/dataset_info.json the data sets of these names, commas between.
  std::optional<std::string> dataset;
  /// What a row's fields are called: dataset_info.json's "columns" and "tags" in one object.
  std::optional<nlohmann::json> dataset_columns;
  std::optional<int64_t> max_samples;       ///< LLaMA-Factory's: the first rows of each data set
  std::optional<int64_t> max_eval_samples;  ///< Hugging Face's: the first rows of eval_data_path
  /// LLaMA-Factory's, for several data sets: concat, interleave_under, interleave_over.
  std::optional<std::string> mix_strategy;
  std::optional<std::string> dataset_weights;         ///< of interleaving: numbers, commas between
  std::optional<bool> gradient_checkpointing;         ///< recompute
  std::optional<int64_t> max_seq_length;              ///< 2048 (model_max_length)
  std::optional<bool> save_only_model;                ///< between the steps; a stop saves all
  std::optional<bool> skip_bad_rows;                  ///< rows that cannot be read are left out
  std::optional<std::string> truncation_side;         ///< right: what is cut of a longer row; left
  std::optional<std::string> resume_from_checkpoint;  ///< a path; unset: the newest, if any
  /// false: a resume beside other data is refused; true: it begins the order of the new ones.
  std::optional<bool> ignore_data_skip;
  /// false; an epoch leaves out the rows that do not fill a micro-batch of every rank.
  std::optional<bool> dataloader_drop_last;
  std::optional<bool> overwrite_output_dir;  ///< false; `dsj run` alone reads it
  std::optional<bool> shuffle;               ///< ours: true
  std::optional<bool> packing;  ///< TRL's: false; rows end to end in max_seq_length tokens
  std::optional<std::string> packing_strategy;  ///< TRL's: bfd; bfd_split, wrapped
  std::optional<bool> group_by_length;          ///< false; rows of similar length in a batch
  /// Ours, for `messages` rows: auto (the model's), chatml, qwen, llama3 ...
  std::optional<std::string> chat_template;
  /// Ours: the day that strftime_now shows, YYYY-MM-DD; unset: today.
  std::optional<std::string> chat_date;
  std::optional<bool> train_on_inputs;  ///< axolotl's: false; true: every token is a target
  std::optional<bool> mask_history;     ///< LLaMA-Factory's: false; the last answer alone is one
  std::optional<std::string> train_on_eos;  ///< axolotl's: turn; all, last, none
  std::optional<std::string> eos_token;     ///< the token that ends answers; unset: the model's own
  std::optional<std::string> loss_normalization;  ///< token (docs/data.md)
  /// What is learned (job/dsconfig/objective.h): sft; dpo, orpo, kto, reward, pretrain.
  std::optional<std::string> objective;
  std::optional<double> beta;  ///< 0.1; TRL's, of dpo, kto and orpo
  /// TRL's, of dpo: sigmoid; hinge, ipo, robust ... Of sft: nll, the only one.
  std::optional<std::string> loss_type;
  std::optional<double> label_smoothing;             ///< 0; TRL's, of dpo
  std::optional<double> rpo_alpha;                   ///< 0; TRL's before 1.0, of dpo
  std::optional<double> center_rewards_coefficient;  ///< 0; TRL's, of reward
  std::optional<int64_t> max_prompt_length;          ///< TRL's before 1.0; unset: none
  std::optional<double> desirable_weight;            ///< 1; TRL's, of kto
  std::optional<double> undesirable_weight;          ///< 1; the same
  std::optional<double> label_smoothing_factor;      ///< 0; Trainer's, of sft
  std::optional<double> neftune_noise_alpha;         ///< unset: no noise
  /// Ours: 20; so many steps in a row whose loss or gradient is not finite end the run. 0: none do.
  /// With fp16 the loss scale's own rules (engine/train/finite_guard.h).
  std::optional<int64_t> max_skipped_steps;
  std::optional<bool> export_not_finite;  ///< ours: false; exports weights that are not finite, too
  /// Ours: auto (a GPU where there is one), cpu, cuda (a GPU, or the run is refused).
  std::optional<std::string> device;
  std::optional<LoraArgs> lora;  ///< unset: whole weights are trained
  /// Without lora, what is trained of the model (layout/trained_part.h); unset: everything.
  std::optional<std::string> trainable_parameters;  ///< a regular expression over names
  std::optional<int64_t> trainable_layers;          ///< so many last ones; below 0: first ones
};

/// Reads the camelCase object of a manifest or of job.json. A number may be a string ("1e-6").
/// Where evaluation rows of their own are, and the names of data sets there. No path: there are none.
struct EvalSource {
  std::string path, dataset;
};
inline EvalSource eval_source(const TrainingArgs& args) {
  if (args.eval_dataset && !args.eval_dataset->empty()) return {args.data_path, *args.eval_dataset};
  return {args.eval_data_path.value_or(""), ""};
}

/// BadInput, with its path: an unknown key ("spec.training.learningRat": did you mean
/// "learningRate"?), a wrong type.
Result<TrainingArgs> training_args_from_json(const nlohmann::json& object, const std::string& path);
/// Writes only the fields that were given, in camelCase.
nlohmann::json to_json(const TrainingArgs& args);
/// The camelCase name of every field, in the order of the struct.
const std::vector<std::string>& training_arg_names();
/// Whether a field is true or false, so that a command line may leave its value out.
bool is_training_switch(const std::string& name);

}  // namespace dsj
