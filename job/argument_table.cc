#include "job/argument_table.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "common/text.h"

namespace dsj {
namespace {

using enum ArgumentVerdict;

constexpr std::string_view kTrackers = "only tensorboard is written";
constexpr std::string_view kHub = "nothing is sent to the hub";
constexpr std::string_view kReader = "rows are read by the rank itself";
constexpr std::string_view kDataFile = "no data set is downloaded: write --data_path FILE";
constexpr std::string_view kModelsOwn = "it is read from the model's directory: leave it out";
constexpr std::string_view kWrap = "a ZeRO unit is a layer";
constexpr std::string_view kDdp = "ZeRO has no DistributedDataParallel";
constexpr std::string_view kNoLogits = "an evaluation computes only the loss and keeps no logits";
constexpr std::string_view kLevels = "the log has one level";
constexpr std::string_view kEightBits =
    "a base in 8 bits (LLM.int8()) is not built: write --load_in_4bit True, or leave it out";
constexpr std::string_view kKernels = "the engine has its own kernels";

/// The fields of transformers 5.24's TrainingArguments, in their order.
constexpr std::array kTrainer = {
    ArgumentRow{"output_dir", Taken, ""},
    ArgumentRow{"per_device_train_batch_size", Taken, ""},
    ArgumentRow{"num_train_epochs", Taken, ""},
    ArgumentRow{"max_steps", Taken, ""},
    ArgumentRow{"learning_rate", Taken, ""},
    ArgumentRow{"lr_scheduler_type", Taken, ""},
    ArgumentRow{"lr_scheduler_kwargs", Taken, ""},
    ArgumentRow{"warmup_steps", Taken, "below 1 it is a share of the run"},
    ArgumentRow{"optim", Taken, ""},
    ArgumentRow{"optim_args", Refused,
                "arguments of optimizers are not read from a string: write an "
                "\"optimizer\" section into the ds_config"},
    ArgumentRow{"weight_decay", Taken,
                "without an \"optimizer\" section biases and norms have none, as in Trainer"},
    ArgumentRow{"adam_beta1", Taken, ""},
    ArgumentRow{"adam_beta2", Taken, ""},
    ArgumentRow{"adam_epsilon", Taken, ""},
    ArgumentRow{"optim_target_modules", Refused, "GaLore and APOLLO are not built: leave it out"},
    ArgumentRow{"gradient_accumulation_steps", Taken, ""},
    ArgumentRow{"average_tokens_across_devices", Taken,
                "true or false: loss_normalization token or rank"},
    ArgumentRow{"max_grad_norm", Taken, ""},
    ArgumentRow{"label_smoothing_factor", Taken, ""},
    ArgumentRow{"router_aux_loss_coef", Taken, "of mixtures of experts"},
    ArgumentRow{"moe_aux_loss_coef",
                Taken,
                "router_aux_loss_coef (LLaMA-Factory's)",
                {},
                "routerAuxLossCoef"},
    ArgumentRow{"bf16", Taken, ""},
    ArgumentRow{"fp16", Taken, ""},
    ArgumentRow{"bf16_full_eval", Taken, "with DeepSpeed it switches bf16 on, also for training"},
    ArgumentRow{"fp16_full_eval", Taken, "with DeepSpeed it switches fp16 on, also for training"},
    ArgumentRow{"tf32", NoEffect, "there is no TF32 on a CPU"},
    ArgumentRow{
        "activation_checkpointing", Taken, "gradient_checkpointing", {}, "gradientCheckpointing"},
    ArgumentRow{"activation_checkpointing_kwargs", NoEffect, "there is one way to recompute"},
    ArgumentRow{"gradient_checkpointing", Taken, ""},
    ArgumentRow{"gradient_checkpointing_kwargs", NoEffect, "there is one way to recompute"},
    ArgumentRow{"torch_compile", NoEffect, "nothing is compiled"},
    ArgumentRow{"torch_compile_backend", NoEffect, "nothing is compiled"},
    ArgumentRow{"torch_compile_mode", NoEffect, "nothing is compiled"},
    ArgumentRow{"use_liger_kernel", NoEffect, kKernels},
    ArgumentRow{"liger_kernel_config", NoEffect, kKernels},
    ArgumentRow{"use_cache", NoEffect, "training keeps no cache of keys and values"},
    ArgumentRow{"neftune_noise_alpha", Taken, ""},
    ArgumentRow{"torch_empty_cache_steps", NoEffect, "memory is planned before the first step"},
    ArgumentRow{"auto_find_batch_size", Refused,
                "the batch is not changed during a run: `dsj tune` looks for one that fits"},
    ArgumentRow{"logging_strategy", Taken, ""},
    ArgumentRow{"logging_steps", Taken, "1 by default; below 1 it is a share of the run"},
    ArgumentRow{"logging_first_step", Taken, ""},
    ArgumentRow{"log_on_each_node", NoEffect, "each rank has a log of its own"},
    ArgumentRow{"logging_nan_inf_filter", NoEffect, "a loss is logged as it is"},
    ArgumentRow{"include_num_input_tokens_seen", NoEffect,
                "metrics.jsonl has the tokens of each step"},
    ArgumentRow{"log_level", NoEffect, kLevels},
    ArgumentRow{"log_level_replica", NoEffect, kLevels},
    ArgumentRow{"disable_tqdm", NoEffect, "the bar shows on a terminal only"},
    ArgumentRow{"report_to", Taken,
                "tensorboard and all switch the monitor on; docs/watching.md shows how other "
                "trackers get metrics.jsonl"},
    ArgumentRow{"run_name", Taken, "names tensorboard's folder"},
    ArgumentRow{"project", NoEffect, kTrackers},
    ArgumentRow{"trackio_space_id", NoEffect, kTrackers},
    ArgumentRow{"trackio_bucket_id", NoEffect, kTrackers},
    ArgumentRow{"trackio_static_space_id", NoEffect, kTrackers},
    ArgumentRow{"eval_strategy", Taken, "", {}, "evaluationStrategy"},
    ArgumentRow{"eval_steps", Taken, "below 1 it is a share of the run"},
    ArgumentRow{"eval_delay", Taken, ""},
    ArgumentRow{"per_device_eval_batch_size", Taken, ""},
    ArgumentRow{"prediction_loss_only", NoEffect, kNoLogits},
    ArgumentRow{"eval_on_start", Taken, ""},
    ArgumentRow{"eval_do_concat_batches", NoEffect, kNoLogits},
    ArgumentRow{"eval_use_gather_object", NoEffect, kNoLogits},
    ArgumentRow{"eval_accumulation_steps", NoEffect, kNoLogits},
    ArgumentRow{"include_for_metrics", NoEffect, kNoLogits},
    ArgumentRow{"batch_eval_metrics", NoEffect, kNoLogits},
    ArgumentRow{"save_only_model", Taken,
                "models/checkpoint-STEP in place of checkpoints; a stop saves a whole checkpoint"},
    ArgumentRow{"save_strategy", Taken, ""},
    ArgumentRow{"save_steps", Taken, "below 1 it is a share of the run"},
    ArgumentRow{"save_on_each_node", Refused,
                "a checkpoint is on storage that all ranks share: leave it out"},
    ArgumentRow{"save_total_limit", Taken, "0 keeps all"},
    ArgumentRow{"enable_jit_checkpoint", NoEffect, "a run saves at SIGTERM anyway"},
    ArgumentRow{"push_to_hub", Refused,
                "nothing is sent to the hub: leave it out, and upload model/"},
    ArgumentRow{"hub_token", NoEffect, kHub},
    ArgumentRow{"hub_private_repo", NoEffect, kHub},
    ArgumentRow{"hub_model_id", NoEffect, kHub},
    ArgumentRow{"hub_strategy", NoEffect, kHub},
    ArgumentRow{"hub_always_push", NoEffect, kHub},
    ArgumentRow{"hub_revision", NoEffect, kHub},
    ArgumentRow{"load_best_model_at_end", Taken, ""},
    ArgumentRow{"metric_for_best_model", Taken, "loss is the only metric"},
    ArgumentRow{"greater_is_better", Taken, ""},
    ArgumentRow{"ignore_data_skip", Taken, "acts where a resume finds other data"},
    ArgumentRow{"restore_callback_states_from_checkpoint", NoEffect,
                "early stopping always continues its count"},
    ArgumentRow{"full_determinism", NoEffect, "a run on CPUs is deterministic"},
    ArgumentRow{"seed", Taken, ""},
    ArgumentRow{"data_seed", Taken, ""},
    ArgumentRow{"use_cpu", Taken, "device: cpu"},
    ArgumentRow{"accelerator_config", Refused, "accelerate is not used: leave it out", "{}"},
    ArgumentRow{"parallelism_config", Refused,
                "sp_size is sequence_parallel_size of ds_config; tensor and context parallelism "
                "are not built: leave it out",
                "{}"},
    ArgumentRow{"dataloader_drop_last", Taken,
                "an epoch leaves out what does not fill a micro-batch of every rank"},
    ArgumentRow{"dataloader_num_workers", NoEffect, kReader},
    ArgumentRow{"dataloader_pin_memory", NoEffect, kReader},
    ArgumentRow{"dataloader_persistent_workers", NoEffect, kReader},
    ArgumentRow{"dataloader_prefetch_factor", NoEffect, kReader},
    ArgumentRow{"dataloader_multiprocessing_context", NoEffect, kReader},
    ArgumentRow{"dataloader_in_order", NoEffect, kReader},
    ArgumentRow{"remove_unused_columns", NoEffect, "other columns are not read"},
    ArgumentRow{"label_names", NoEffect,
                "the targets are made from the row, or are its \"labels\""},
    ArgumentRow{"train_sampling_strategy", Taken, "random, sequential or group_by_length"},
    ArgumentRow{"length_column_name", NoEffect, "lengths are counted, not read"},
    ArgumentRow{"ddp_find_unused_parameters", NoEffect, kDdp},
    ArgumentRow{"ddp_bucket_cap_mb", NoEffect, kDdp},
    ArgumentRow{"ddp_broadcast_buffers", NoEffect, kDdp},
    ArgumentRow{"ddp_static_graph", NoEffect, kDdp},
    ArgumentRow{"ddp_backend", Refused, "the backend follows the device: leave it out",
                "nccl gloo"},
    ArgumentRow{"ddp_timeout", NoEffect, "the engine has its own time limits"},
    ArgumentRow{
        "fsdp", Taken,
        "ZeRO in its place: full_shard is stage 3, shard_grad_op 2, no_shard 0, with offload "
        "to the host; hybrid_shard is refused"},
    ArgumentRow{"fsdp_config", NoEffect, kWrap},
    ArgumentRow{"deepspeed", Taken,
                "the ds_config's file; a line without it trains at ZeRO stage 0, or as fsdp says"},
    ArgumentRow{"debug", NoEffect, "a gradient that is not finite is named anyway"},
    ArgumentRow{"skip_memory_metrics", NoEffect, "memory is in metrics.jsonl"},
    ArgumentRow{"do_train", Refused, "training is what `dsj run` does: leave it out", "true"},
    ArgumentRow{"do_eval", NoEffect, "eval_strategy says when"},
    ArgumentRow{"do_predict", Refused, "`dsj generate` answers questions: leave it out"},
    ArgumentRow{"resume_from_checkpoint", Taken, ""},
    ArgumentRow{"local_rank", NoEffect, "the agent sets the ranks"},
};

/// Arguments that transformers 5 has removed and command lines for 4.x still use.
constexpr std::array kBefore5 = {
    ArgumentRow{"evaluation_strategy", Taken, "eval_strategy"},
    ArgumentRow{"warmup_ratio", Taken, "warmup_steps below 1"},
    ArgumentRow{"group_by_length", Taken, "train_sampling_strategy group_by_length"},
    ArgumentRow{"logging_dir", Taken, "tensorboard's folder"},
    ArgumentRow{"per_gpu_train_batch_size",
                Taken,
                "per_device_train_batch_size",
                {},
                "perDeviceTrainBatchSize"},
    ArgumentRow{"per_gpu_eval_batch_size",
                Taken,
                "per_device_eval_batch_size",
                {},
                "perDeviceEvalBatchSize"},
    ArgumentRow{"overwrite_output_dir", Taken, "dsj run only"},
    ArgumentRow{"save_safetensors", Refused, "only safetensors are written: leave it out", "true"},
    ArgumentRow{"no_cuda", Taken, "device: cpu"},
    ArgumentRow{"use_mps_device", Refused, "there is no MPS device: leave it out"},
    ArgumentRow{"adafactor", Taken, "optim: adafactor"},
    ArgumentRow{"fp16_opt_level", NoEffect, "apex's level is \"amp\" in the ds_config"},
    ArgumentRow{"fp16_backend", NoEffect, "the ds_config says how 16 bits are used"},
    ArgumentRow{"half_precision_backend", NoEffect, "the ds_config says how 16 bits are used"},
    ArgumentRow{"include_inputs_for_metrics", NoEffect, kNoLogits},
    ArgumentRow{"include_tokens_per_second", NoEffect, "metrics.jsonl has it for each step"},
    ArgumentRow{"evaluate_during_training", Refused, "write --eval_strategy steps"},
    ArgumentRow{"past_index", Refused, "recurrent state is not built: leave it out", "-1"},
    ArgumentRow{"jit_mode_eval", NoEffect, "nothing is compiled"},
    ArgumentRow{"use_ipex", NoEffect, kKernels},
    ArgumentRow{"torchdynamo", NoEffect, "nothing is compiled"},
    ArgumentRow{"ray_scope", NoEffect, "no hyper-parameters are searched; `dsj tune` tunes speed"},
    ArgumentRow{"mp_parameters", NoEffect, "SageMaker's launcher reads it"},
    ArgumentRow{"xpu_backend", NoEffect, "the backend follows the device"},
    ArgumentRow{"sharded_ddp", Refused, "ZeRO shards here: write the stage into the ds_config"},
    ArgumentRow{"fsdp_min_num_params", NoEffect, kWrap},
    ArgumentRow{"fsdp_transformer_layer_cls_to_wrap", NoEffect, kWrap},
    ArgumentRow{"split_batches", Refused, "a batch size is per rank: leave it out"},
    ArgumentRow{"dispatch_batches", NoEffect, kReader},
    ArgumentRow{"tpu_num_cores", NoEffect, "there is no TPU"},
    ArgumentRow{"tpu_metrics_debug", NoEffect, "there is no TPU"},
    ArgumentRow{"use_legacy_prediction_loop", NoEffect, kNoLogits},
    ArgumentRow{"push_to_hub_model_id", NoEffect, kHub},
    ArgumentRow{"push_to_hub_organization", NoEffect, kHub},
    ArgumentRow{"push_to_hub_token", NoEffect, kHub},
};

/// Arguments of the scripts of FastChat, LLaMA-Factory, TRL, Qwen and PEFT.
constexpr std::array kScripts = {
    ArgumentRow{"model_name_or_path", Taken, ""},
    ArgumentRow{"data_path", Taken, ""},
    ArgumentRow{"eval_data_path", Taken, ""},
    ArgumentRow{"validation_split_percentage", Taken, ""},
    ArgumentRow{"train_file", Taken, "data_path", {}, "dataPath"},
    ArgumentRow{"validation_file", Taken, "eval_data_path", {}, "evalDataPath"},
    ArgumentRow{"dataset", Taken, "names in dataset_dir/dataset_info.json (LLaMA-Factory's)"},
    ArgumentRow{
        "dataset_dir", Taken, "data_path: a directory with dataset_info.json", {}, "dataPath"},
    ArgumentRow{"dataset_columns", Taken, "what the rows call their fields (docs/data.md)"},
    ArgumentRow{"dataset_text_field",
                Taken,
                "dataset_columns: the column \"text\" (TRL's)",
                {},
                "datasetColumns",
                "text"},
    ArgumentRow{"dataset_name", Refused, kDataFile},
    ArgumentRow{"eval_dataset", Taken, "names in dataset_dir/dataset_info.json (LLaMA-Factory's)"},
    ArgumentRow{"mix_strategy", Taken, "concat, interleave_under, interleave_over"},
    ArgumentRow{"dataset_weights", Taken, "numbers with commas between, for interleaving"},
    ArgumentRow{"interleave_probs", Taken, "the same (LLaMA-Factory's)", {}, "datasetWeights"},
    ArgumentRow{"val_size", Taken, "rows held out at random; below 1 a share"},
    ArgumentRow{"val_set_size", Taken, "the same (axolotl's)", {}, "valSize"},
    ArgumentRow{"max_samples", Taken, "of each data set"},
    ArgumentRow{"max_train_samples", Taken, "max_samples", {}, "maxSamples"},
    ArgumentRow{"max_eval_samples", Taken, ""},
    ArgumentRow{"truncation_side", Taken, "right or left"},
    ArgumentRow{"skip_bad_rows", Taken, "leaves out rows that cannot be read, and counts them"},
    ArgumentRow{"truncation_mode", Taken, "keep_start or keep_end (TRL's)"},
    ArgumentRow{"template", Refused, "write --chat_template, with a name or a .jinja file"},
    ArgumentRow{"tokenizer_name", Refused, kModelsOwn},
    ArgumentRow{"config_name", Refused, kModelsOwn},
    ArgumentRow{"use_slow_tokenizer", NoEffect, "there is one tokenizer"},
    ArgumentRow{"preprocessing_batch_size", NoEffect, kReader},
    ArgumentRow{"max_seq_length", Taken, ""},
    ArgumentRow{"model_max_length", Taken, "max_seq_length", {}, "maxSeqLength"},
    ArgumentRow{"max_length", Taken, "max_seq_length", {}, "maxSeqLength"},
    ArgumentRow{"cutoff_len", Taken, "max_seq_length", {}, "maxSeqLength"},
    ArgumentRow{"max_seq_len", Taken, "max_seq_length", {}, "maxSeqLength"},
    ArgumentRow{"block_size", Refused,
                "write --max_seq_length, --packing and --packing_strategy wrapped"},
    ArgumentRow{"num_warmup_steps", Taken, "warmup_steps", {}, "warmupSteps"},
    ArgumentRow{"zero_stage", Refused, "write zero_optimization.stage into the ds_config"},
    ArgumentRow{"print_loss", NoEffect, "each step's loss is printed"},
    ArgumentRow{"packing", Taken, ""},
    ArgumentRow{"use_lora", Taken, "docs/models.md"},
    ArgumentRow{"use_peft", Taken, "use_lora"},
    ArgumentRow{"lora_r", Taken, ""},
    ArgumentRow{"lora_rank", Taken, "lora_r"},
    ArgumentRow{"lora_target", Taken, "lora_target_modules; all is all-linear"},
    ArgumentRow{"lora_alpha", Taken, ""},
    ArgumentRow{"lora_dropout", Taken, ""},
    ArgumentRow{"lora_target_modules", Taken, ""},
    ArgumentRow{"lora_target_parameters", Taken, "parameters of all experts, and routers"},
    ArgumentRow{"target_parameters", Taken, "lora_target_parameters (ms-swift's)"},
    ArgumentRow{"lora_modules_to_save", Taken, ""},
    ArgumentRow{"ensure_weight_tying", Taken,
                "lora_modules_to_save may name the embedding and lm_head of a model that has one "
                "weight for both"},
    ArgumentRow{"peft_ensure_weight_tying", Taken, "ensure_weight_tying (axolotl's)"},
    ArgumentRow{"lora_bias", Taken, "none"},
    ArgumentRow{"use_rslora", Taken, ""},
    ArgumentRow{"adapter_name_or_path", Taken,
                "a directory in PEFT's layout: training continues from it"},
    ArgumentRow{"lora_model_dir", Taken, "adapter_name_or_path (axolotl's)"},
    ArgumentRow{"lora_weight_path", Taken, "adapter_name_or_path (LLaVA's)"},
    ArgumentRow{"use_dora", Taken, "DoRA; not on a base in 4 bits"},
    ArgumentRow{"peft_use_dora", Taken, "use_dora (axolotl's)"},
    ArgumentRow{"init_lora_weights", Taken, "true, false or gaussian"},
    ArgumentRow{"peft_init_lora_weights", Taken, "init_lora_weights (axolotl's)"},
    ArgumentRow{"layers_to_transform", Taken, "numbers of layers, commas between"},
    ArgumentRow{"peft_layers_to_transform", Taken, "layers_to_transform (axolotl's)"},
    ArgumentRow{"rank_pattern", Taken, "an object: ranks of modules"},
    ArgumentRow{"alpha_pattern", Taken, "an object: alphas of modules"},
    ArgumentRow{"loraplus_lr_ratio", Taken, "LoRA+: the rate of B is so many times learning_rate"},
    ArgumentRow{"lorap_lr_ratio", Taken, "loraplus_lr_ratio (ms-swift's)"},
    ArgumentRow{"loraplus_lr_embedding", NoEffect,
                "the rate of adapters on embeddings, which are not built"},
    ArgumentRow{"lorap_emb_lr", NoEffect, "loraplus_lr_embedding (ms-swift's)"},
    ArgumentRow{"early_stopping_patience", Taken, "EarlyStoppingCallback's"},
    ArgumentRow{"early_stopping_threshold", Taken, "EarlyStoppingCallback's"},
    ArgumentRow{"packing_strategy", Taken, ""},
    ArgumentRow{"eval_packing", Refused, "an evaluation is never packed: leave it out"},
    ArgumentRow{"padding_free", NoEffect, "rows are never padded"},
    ArgumentRow{"pad_to_multiple_of", NoEffect, "rows are never padded"},
    ArgumentRow{"dataset_num_proc", NoEffect, kReader},
    ArgumentRow{"preprocessing_num_workers", NoEffect, kReader},
    ArgumentRow{"lazy_preprocess", NoEffect, "rows are tokenized when they are needed"},
    ArgumentRow{"overwrite_cache", NoEffect, "a changed data file is read anew"},
    ArgumentRow{"torch_dtype", Refused, "expected auto, float32, bfloat16 or float16",
                "auto float32 bfloat16 float16"},
    ArgumentRow{"dtype", Refused, "expected auto, float32, bfloat16 or float16",
                "auto float32 bfloat16 float16"},
    ArgumentRow{"low_cpu_mem_usage", NoEffect, "each rank reads its own bytes of the weights"},
    ArgumentRow{"cache_dir", NoEffect,
                "nothing is downloaded; HF_HUB_CACHE=DIR names the cache that holds the model"},
    ArgumentRow{"trust_remote_code", NoEffect, "no remote code is run"},
    ArgumentRow{"use_fast_tokenizer", NoEffect, "there is one tokenizer"},
    ArgumentRow{"use_auth_token", NoEffect, "nothing is downloaded"},
    ArgumentRow{"model_revision", Refused,
                "nothing is downloaded: name the directory of that revision", "main"},
    ArgumentRow{"use_flash_attn", NoEffect, "the engine has its own attention"},
    ArgumentRow{"flash_attn", NoEffect, "the engine has its own attention"},
    ArgumentRow{"attn_implementation", NoEffect, "the engine has its own attention"},
    ArgumentRow{"use_unsloth", NoEffect, kKernels},
    ArgumentRow{"enable_liger_kernel", NoEffect, kKernels},
    ArgumentRow{"load_in_4bit", Taken, "with use_peft: LoRA on a base in 4 bits (docs/models.md)"},
    ArgumentRow{"load_in_8bit", Refused, kEightBits},
    ArgumentRow{"bnb_4bit_quant_type", Taken, "nf4"},
    ArgumentRow{"use_bnb_nested_quant", Taken, "the scales of a base in 4 bits in 8 bits (TRL's)"},
    ArgumentRow{"bnb_4bit_use_double_quant", Taken, "use_bnb_nested_quant (BitsAndBytesConfig's)"},
    ArgumentRow{"bnb_4bit_compute_dtype", Taken, "the type that products run in anyway"},
    ArgumentRow{"bnb_4bit_quant_storage", NoEffect, "codes are stored as bytes"},
    ArgumentRow{"quantization_bit", Taken,
                "4: load_in_4bit, double_quantization unless it is given"},
    ArgumentRow{"quantization_method", Refused,
                "bitsandbytes' rule is what is built: write bnb, or leave it out",
                "bnb bitsandbytes"},
    ArgumentRow{"quantization_type", Taken, "bnb_4bit_quant_type (LLaMA-Factory's)"},
    ArgumentRow{"double_quantization", Taken, "use_bnb_nested_quant (LLaMA-Factory's)"},
    ArgumentRow{"quantization_device_map", NoEffect, "each rank has one device"},
    ArgumentRow{"bits", Taken, "quantization_bit (QLoRA's); 16 and 32: no quantisation"},
    ArgumentRow{"quant_type", Taken, "bnb_4bit_quant_type (QLoRA's)"},
    ArgumentRow{"double_quant", Taken, "use_bnb_nested_quant (QLoRA's)"},
    ArgumentRow{"q_lora", Taken, "load_in_4bit with use_bnb_nested_quant (FastChat's)"},
    ArgumentRow{"freeze_vision_tower", NoEffect, "these models have no vision tower"},
    ArgumentRow{"trainable_parameters", Taken, "docs/models.md"},
    ArgumentRow{"trainable_layers", Taken, "docs/models.md"},
    ArgumentRow{"freeze_trainable_layers",
                Taken,
                "trainable_layers (LLaMA-Factory's)",
                {},
                "trainableLayers"},
    ArgumentRow{"finetuning_type", Refused,
                "lora is use_lora True, freeze is trainable_layers; other types are not built",
                "full lora"},
    ArgumentRow{"objective", Taken, "docs/objectives.md"},
    ArgumentRow{"stage", Taken, "sft, dpo, kto, rm or pt: the objective (LLaMA-Factory's)"},
    ArgumentRow{"loss_type", Taken, "of dpo and kto; nll and dft are those of sft"},
    ArgumentRow{"use_dft_loss", Taken, "loss_type dft (LLaMA-Factory's)"},
    ArgumentRow{"enable_dft_loss", Taken, "loss_type dft (ms-swift's)"},
    ArgumentRow{"pref_loss", Taken, "loss_type (LLaMA-Factory's)", {}, "lossType"},
    ArgumentRow{"beta", Taken, "of dpo, kto and orpo"},
    ArgumentRow{"pref_beta", Taken, "beta (LLaMA-Factory's)", {}, "beta"},
    ArgumentRow{"label_smoothing", Taken, "of dpo"},
    ArgumentRow{
        "dpo_label_smoothing", Taken, "label_smoothing (LLaMA-Factory's)", {}, "labelSmoothing"},
    ArgumentRow{"max_prompt_length", Taken, "a longer prompt keeps its last tokens, as in TRL 0.x"},
    ArgumentRow{"desirable_weight", Taken, "of kto"},
    ArgumentRow{"undesirable_weight", Taken, "of kto"},
    ArgumentRow{
        "kto_chosen_weight", Taken, "desirable_weight (LLaMA-Factory's)", {}, "desirableWeight"},
    ArgumentRow{"kto_rejected_weight",
                Taken,
                "undesirable_weight (LLaMA-Factory's)",
                {},
                "undesirableWeight"},
    ArgumentRow{"max_completion_length", Refused, "write --max_length, of prompt and answer"},
    ArgumentRow{
        "precompute_ref_log_probs", NoEffect,
        "the reference's log-probabilities are always computed once, before the first step"},
    ArgumentRow{"precompute_ref_batch_size", NoEffect, "it is per_device_train_batch_size"},
    ArgumentRow{"reference_free", Refused, "the reference is the model that the run starts from"},
    ArgumentRow{"force_use_ref_model", NoEffect, "the reference is the model without adapters"},
    ArgumentRow{"ref_model", Refused,
                "the reference is the model that the run starts from: leave it out"},
    ArgumentRow{"ref_model_adapters", Refused,
                "the reference is the model that the run starts from: leave it out"},
    ArgumentRow{"model_adapter_name", Refused, "a run has one adapter: leave it out"},
    ArgumentRow{"ref_adapter_name", Refused, "a run has one adapter: leave it out"},
    ArgumentRow{"sync_ref_model", Refused, "the reference stays as it is: leave it out"},
    ArgumentRow{"ref_model_mixup_alpha", NoEffect, "it acts with sync_ref_model only"},
    ArgumentRow{"ref_model_sync_steps", NoEffect, "it acts with sync_ref_model only"},
    ArgumentRow{"f_divergence_type", Refused, "the divergence is reverse_kl", "reverse_kl"},
    ArgumentRow{"f_alpha_divergence_coef", NoEffect, "it acts with f_divergence_type only"},
    ArgumentRow{"ld_alpha", Refused, "LD-DPO's weights of tokens are not built: leave it out"},
    ArgumentRow{"use_weighting", Refused, "WPO's weights of pairs are not built: leave it out"},
    ArgumentRow{"discopop_tau", NoEffect, "it acts with loss_type discopop only"},
    ArgumentRow{
        "loss_weights", Refused,
        "one loss is trained; for loss_type sigmoid,sft write --rpo_alpha and sft's weight"},
    ArgumentRow{"rpo_alpha", Taken, "the weight of the chosen answers' loss beside dpo's"},
    ArgumentRow{"pref_ftx", Refused, "a loss of the chosen answer beside it is not built", "0 0.0"},
    ArgumentRow{"simpo_gamma", NoEffect, "it acts with pref_loss simpo only"},
    ArgumentRow{"center_rewards_coefficient", Taken,
                "the weight of a pair's squared sum of scores"},
    ArgumentRow{"disable_dropout", Refused,
                "dpo, kto, orpo and reward train without dropout: leave it out", "true"},
    ArgumentRow{"generate_during_eval", Refused, "`dsj generate` answers questions: leave it out"},
    ArgumentRow{"label_pad_token_id", NoEffect, "rows are never padded"},
    ArgumentRow{"padding_value", NoEffect, "rows are never padded"},
    ArgumentRow{"is_encoder_decoder", Refused, "models are decoders: leave it out"},
    ArgumentRow{"train_on_inputs", Taken, "true: every token of a row is a target (axolotl's)"},
    ArgumentRow{"train_on_prompt", Taken, "the same (LLaMA-Factory's)", {}, "trainOnInputs"},
    ArgumentRow{"mask_history", Taken, "true: only the last answer of a row is a target"},
    ArgumentRow{"train_on_eos", Taken,
                "turn: answers with the token that ends each; all: also that of other turns; last: "
                "only that of the row's last turn; none"},
    ArgumentRow{"chat_date", Taken, "YYYY-MM-DD: the day that a template's strftime_now shows"},
    ArgumentRow{"default_system", Taken,
                "the system text of alpaca and chat rows that have none (LLaMA-Factory's)"},
    ArgumentRow{"neat_packing", Taken, "packing: rows never attend to each other", {}, "packing"},
    ArgumentRow{"assistant_only_loss", Taken,
                "true: only answers are targets (the default here); false: every token"},
    ArgumentRow{"completion_only_loss", Taken, "the same"},
    ArgumentRow{"activation_offloading", Refused,
                "set activation_checkpointing.cpu_checkpointing in the ds_config"},
    ArgumentRow{"plot_loss", NoEffect, "`dsj plot OUT` draws it"},
    ArgumentRow{"lora_task_type", Refused,
                "the objective decides: SEQ_CLS of reward, CAUSAL_LM of the others",
                "causal_lm CAUSAL_LM seq_cls SEQ_CLS"},
};

constexpr char kPissa[] =
    "PiSSA takes the adapter out of the base's weights, and a run leaves them as they are: make "
    "the "
    "residual model and its first adapter with LLaMA-Factory's pissa_init.py, and name them as "
    "model_name_or_path and adapter_name_or_path";
constexpr char kNewTokens[] =
    "write a model with new tokens first: `dsj add-tokens --model M --tokens A,B --output DIR`";
/// Training methods that are not built, by the names that tools use for them.
constexpr std::array kMethods = {
    ArgumentRow{"pissa_init", Refused, kPissa},
    ArgumentRow{"pissa_iter", Refused, kPissa, "16"},
    ArgumentRow{"pissa_convert", Refused, kPissa},
    ArgumentRow{"create_new_adapter", Refused,
                "a new adapter on top of another is not built: dsj merge that into its base"},
    ArgumentRow{"new_special_tokens", Refused, kNewTokens},
    ArgumentRow{"add_special_tokens", Refused, kNewTokens, "true"},
    ArgumentRow{"add_tokens", Refused, kNewTokens},
    ArgumentRow{"tokens", Refused, kNewTokens},
    ArgumentRow{"use_llama_pro", Refused, "LLaMA Pro's blocks are not built: leave it out"},
    ArgumentRow{"use_galore", Refused, "GaLore is not built: leave it out"},
    ArgumentRow{"use_apollo", Refused, "APOLLO is not built: leave it out"},
    ArgumentRow{"use_badam", Refused, "BAdam is not built: leave it out"},
    ArgumentRow{"use_muon", Refused, "write optimizer.type Muon into the ds_config"},
    ArgumentRow{"use_adam_mini", Refused, "Adam-mini is not built: leave it out"},
    ArgumentRow{"use_eaft_loss", Refused, "EAFT's weights of tokens are not built: leave it out"},
    ArgumentRow{"use_eaft", Refused, "EAFT's weights of tokens are not built: leave it out"},
    ArgumentRow{"use_asft_loss", Refused, "ASFT's loss is not built: leave it out"},
    ArgumentRow{"fp8", Refused, "products in 8 bits are not built: leave it out"},
    ArgumentRow{"qat", Refused, "training for a quantised model is not built: leave it out"},
    ArgumentRow{"use_onebitllms", Refused, "1-bit weights are not built: leave it out"},
    ArgumentRow{"diffusion", Refused,
                "the objective of diffusion models is not built: leave it out"},
    ArgumentRow{"reinit_weights", Refused, "a run starts from the model's files: leave it out"},
    ArgumentRow{"cosine_constant_lr_ratio", Refused,
                "a cosine with a constant end is not built: leave it out"},
    ArgumentRow{"lr_quadratic_warmup", Refused, "warm-ups are linear: leave it out"},
    ArgumentRow{"lisa_n_layers", Refused, "LISA is not built: leave it out", "0"},
    ArgumentRow{"lisa_activated_layers", Refused, "LISA is not built: leave it out", "0"},
    ArgumentRow{"relora", Refused, "ReLoRA is not built: leave it out"},
    ArgumentRow{"relora_steps", Refused, "ReLoRA is not built: leave it out", "0"},
    ArgumentRow{"shift_attn", Refused, "LongLoRA's attention is not built: leave it out"},
    ArgumentRow{"s2_attention", Refused, "LongLoRA's attention is not built: leave it out"},
    ArgumentRow{"mixture_of_depths", Refused, "mixture of depths is not built: leave it out"},
    ArgumentRow{"rope_scaling", Refused,
                "the model's config.json says how rope scales: leave it out"},
};

constexpr std::array kTorchrun = {
    ArgumentRow{"nproc_per_node", Taken, "a number; auto, gpu or cpu: as many as this machine has"},
    ArgumentRow{"num_gpus", Taken, "nproc_per_node (the deepspeed launcher's)"},
    ArgumentRow{"max_restarts", Taken, ""},
    ArgumentRow{"nnodes", Taken,
                "a number of machines; each runs the same line with its own --node_rank"},
    ArgumentRow{"node_rank", Taken, "which of them this machine is, from 0"},
    ArgumentRow{"num_nodes", Refused, "dsj run uses this machine only", "1"},
    ArgumentRow{"hostfile", Refused,
                "dsj run uses this machine only; `dsj import hostfile` reads it"},
    ArgumentRow{"include", Refused, "write --num_gpus with the number of ranks"},
    ArgumentRow{"exclude", Refused, "write --num_gpus with the number of ranks"},
    ArgumentRow{"standalone", NoEffect, "the agent hosts the rendezvous"},
    ArgumentRow{"master_addr", Taken, "of several nodes: the machine of node 0"},
    ArgumentRow{"master_port", Taken, "of several nodes: the port of node 0's agent"},
    ArgumentRow{"rdzv_backend", NoEffect, "the agent hosts the rendezvous"},
    ArgumentRow{"rdzv_endpoint", Taken, "master_addr and master_port in one"},
    ArgumentRow{"rdzv_id", NoEffect, "the agent hosts the rendezvous"},
    ArgumentRow{"rdzv_conf", Taken,
                "timeout or join_timeout: the seconds that nodes wait for each other (900)"},
    ArgumentRow{"monitor_interval", NoEffect, "the agent sees at once that a rank has ended"},
    ArgumentRow{"start_method", NoEffect, "ranks are programs of their own"},
    ArgumentRow{"log_dir", NoEffect, "logs are in OUTPUT/logs"},
    ArgumentRow{"redirects", NoEffect, "logs are in OUTPUT/logs"},
    ArgumentRow{"tee", NoEffect, "logs are in OUTPUT/logs"},
};

constexpr std::array kMeanings = {
    ArgumentMeaning{"bf16_full_eval", "true", "bf16", "true"},
    ArgumentMeaning{"bf16_full_eval", "false", "", ""},
    ArgumentMeaning{"fp16_full_eval", "true", "fp16", "true"},
    ArgumentMeaning{"fp16_full_eval", "false", "", ""},
    ArgumentMeaning{"average_tokens_across_devices", "true", "lossNormalization", "token"},
    ArgumentMeaning{"average_tokens_across_devices", "false", "lossNormalization", "rank"},
    ArgumentMeaning{"use_cpu", "true", "device", "cpu"},
    ArgumentMeaning{"use_cpu", "false", "", ""},
    ArgumentMeaning{"no_cuda", "true", "device", "cpu"},
    ArgumentMeaning{"no_cuda", "false", "", ""},
    ArgumentMeaning{"adafactor", "true", "optim", "adafactor"},
    ArgumentMeaning{"adafactor", "false", "", ""},
    ArgumentMeaning{"assistant_only_loss", "true", "", ""},
    ArgumentMeaning{"assistant_only_loss", "false", "trainOnInputs", "true"},
    ArgumentMeaning{"completion_only_loss", "true", "", ""},
    ArgumentMeaning{"completion_only_loss", "false", "trainOnInputs", "true"},
    ArgumentMeaning{"truncation_mode", "keep_start", "truncationSide", "right"},
    ArgumentMeaning{"truncation_mode", "keep_end", "truncationSide", "left"},
    ArgumentMeaning{"use_dft_loss", "true", "lossType", "dft"},
    ArgumentMeaning{"use_dft_loss", "false", "", ""},
    ArgumentMeaning{"enable_dft_loss", "true", "lossType", "dft"},
    ArgumentMeaning{"enable_dft_loss", "false", "", ""},
    ArgumentMeaning{"stage", "sft", "", ""},
    ArgumentMeaning{"stage", "pt", "objective", "pretrain"},
    ArgumentMeaning{"stage", "dpo", "objective", "dpo"},
    ArgumentMeaning{"stage", "kto", "objective", "kto"},
    ArgumentMeaning{"stage", "rm", "objective", "reward"},
    ArgumentMeaning{"train_sampling_strategy", "random", "", ""},
    ArgumentMeaning{"train_sampling_strategy", "sequential", "shuffle", "false"},
    ArgumentMeaning{"train_sampling_strategy", "group_by_length", "groupByLength", "true"},
};

std::string lower(std::string_view word) {
  std::string out(word);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

}  // namespace

const char* name_of(ArgumentVerdict verdict) {
  return verdict == Taken ? "taken" : verdict == NoEffect ? "no effect" : "refused";
}

const std::vector<ArgumentGroup>& argument_groups() {
  static const std::vector<ArgumentGroup> groups = {
      {"TrainingArguments of transformers 5", kTrainer},
      {"Arguments that transformers 5 has removed", kBefore5},
      {"Arguments of fine-tuning scripts", kScripts},
      {"Ways to train that are not built", kMethods},
      {"Arguments of torchrun", kTorchrun}};
  return groups;
}

const ArgumentRow* argument_row(std::string_view name) {
  for (const ArgumentGroup& group : argument_groups()) {
    const auto found = std::ranges::find(group.rows, name, &ArgumentRow::name);
    if (found != group.rows.end()) return &*found;
  }
  return nullptr;
}

bool is_method(std::string_view name) {
  return std::ranges::find(kMethods, name, &ArgumentRow::name) != kMethods.end();
}

const ArgumentRow* argument_row_of_field(std::string_view camel) {
  for (const ArgumentGroup& group : argument_groups())
    for (const ArgumentRow& row : group.rows)
      if (camel_case(row.name) == camel) return &row;
  return nullptr;
}

const ArgumentMeaning* argument_meaning(std::string_view name, std::string_view value) {
  std::string word = lower(value);
  if (const auto yes = text::parse_bool(word)) word = *yes ? "true" : "false";
  const auto found = std::ranges::find_if(kMeanings, [&](const ArgumentMeaning& one) {
    return one.name == name && (one.value == word || one.value == lower(value));
  });
  return found == kMeanings.end() ? nullptr : &*found;
}

bool has_meanings(std::string_view name) {
  return std::ranges::find(kMeanings, name, &ArgumentMeaning::name) != kMeanings.end();
}

bool asks_for_nothing(const ArgumentRow& row, std::string_view value) {
  const std::string word = lower(value);
  if (word.empty() || word == "none" || word == "null") return true;
  const auto yes = text::parse_bool(word);
  const auto number = text::parse_double(word);
  if (yes == false && row.neutral != "true") return true;
  for (size_t begin = 0; begin < row.neutral.size();) {
    const size_t end = std::min(row.neutral.find(' ', begin), row.neutral.size());
    const std::string neutral = lower(row.neutral.substr(begin, end - begin));
    if (word == neutral || (yes == true && neutral == "true")) return true;
    if (number && number == text::parse_double(neutral)) return true;
    begin = end + 1;
  }
  return false;
}

std::string snake_case(std::string_view camel) {
  std::string name;
  for (char c : camel) {
    if (std::isupper(static_cast<unsigned char>(c))) name += '_';
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string camel_case(std::string_view snake) {
  std::string name;
  bool up = false;
  for (char c : snake) {
    if (c == '_') {
      up = true;
      continue;
    }
    name += up ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    up = false;
  }
  return name;
}

std::string argument_table_markdown() {
  std::string page =
      "# Arguments\n\n"
      "How each argument of a torchrun line is handled, for anyone who moves one here. `dsj "
      "validate --arguments` prints this page\nfrom the table that the programs read: never edit "
      "it by hand. In a manifest the same argument is in `spec.training`,\nin camelCase.\n\n"
      "- **taken**: it takes effect.\n"
      "- **no effect**: accepted with a warning, because no value can change a result here.\n"
      "- **refused**: a value that would change the result stops the run. `none`, `null`, `false` "
      "and the values in brackets are\n  accepted.\n";
  for (const ArgumentGroup& group : argument_groups()) {
    page += "\n## " + std::string(group.title) + "\n\n| argument | verdict | |\n|---|---|---|\n";
    for (const ArgumentRow& row : group.rows) {
      page += "| `" + std::string(row.name) + "` | " + name_of(row.verdict);
      if (!row.neutral.empty()) page += " (" + std::string(row.neutral) + ")";
      page += " | " + std::string(row.reason) + " |\n";
    }
  }
  return page;
}

}  // namespace dsj
