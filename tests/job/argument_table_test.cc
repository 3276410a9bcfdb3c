#include "job/argument_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "job/training_args.h"
#include "test_paths.h"

namespace dsj {
namespace {

/// The fields of transformers 5.24's TrainingArguments, read from its class.
const std::vector<std::string> kFields = {
    "output_dir",
    "per_device_train_batch_size",
    "num_train_epochs",
    "max_steps",
    "learning_rate",
    "lr_scheduler_type",
    "lr_scheduler_kwargs",
    "warmup_steps",
    "optim",
    "optim_args",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "optim_target_modules",
    "gradient_accumulation_steps",
    "average_tokens_across_devices",
    "max_grad_norm",
    "label_smoothing_factor",
    "router_aux_loss_coef",
    "moe_aux_loss_coef",
    "bf16",
    "fp16",
    "bf16_full_eval",
    "fp16_full_eval",
    "tf32",
    "activation_checkpointing",
    "activation_checkpointing_kwargs",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "torch_compile",
    "torch_compile_backend",
    "torch_compile_mode",
    "use_liger_kernel",
    "liger_kernel_config",
    "use_cache",
    "neftune_noise_alpha",
    "torch_empty_cache_steps",
    "auto_find_batch_size",
    "logging_strategy",
    "logging_steps",
    "logging_first_step",
    "log_on_each_node",
    "logging_nan_inf_filter",
    "include_num_input_tokens_seen",
    "log_level",
    "log_level_replica",
    "disable_tqdm",
    "report_to",
    "run_name",
    "project",
    "trackio_space_id",
    "trackio_bucket_id",
    "trackio_static_space_id",
    "eval_strategy",
    "eval_steps",
    "eval_delay",
    "per_device_eval_batch_size",
    "prediction_loss_only",
    "eval_on_start",
    "eval_do_concat_batches",
    "eval_use_gather_object",
    "eval_accumulation_steps",
    "include_for_metrics",
    "batch_eval_metrics",
    "save_only_model",
    "save_strategy",
    "save_steps",
    "save_on_each_node",
    "save_total_limit",
    "enable_jit_checkpoint",
    "push_to_hub",
    "hub_token",
    "hub_private_repo",
    "hub_model_id",
    "hub_strategy",
    "hub_always_push",
    "hub_revision",
    "load_best_model_at_end",
    "metric_for_best_model",
    "greater_is_better",
    "ignore_data_skip",
    "restore_callback_states_from_checkpoint",
    "full_determinism",
    "seed",
    "data_seed",
    "use_cpu",
    "accelerator_config",
    "parallelism_config",
    "dataloader_drop_last",
    "dataloader_num_workers",
    "dataloader_pin_memory",
    "dataloader_persistent_workers",
    "dataloader_prefetch_factor",
    "dataloader_multiprocessing_context",
    "dataloader_in_order",
    "remove_unused_columns",
    "label_names",
    "train_sampling_strategy",
    "length_column_name",
    "ddp_find_unused_parameters",
    "ddp_bucket_cap_mb",
    "ddp_broadcast_buffers",
    "ddp_static_graph",
    "ddp_backend",
    "ddp_timeout",
    "fsdp",
    "fsdp_config",
    "deepspeed",
    "debug",
    "skip_memory_metrics",
    "do_train",
    "do_eval",
    "do_predict",
    "resume_from_checkpoint",
    "local_rank",
};

bool is_field(const std::string& camel) {
  const auto& names = training_arg_names();
  return std::ranges::find(names, camel) != names.end();
}

TEST(ArgumentTable, HasEveryFieldOfTransformers5) {
  const auto& rows = argument_groups().front().rows;
  ASSERT_EQ(rows.size(), kFields.size());
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].name, kFields[i]);
}

TEST(ArgumentTable, ANameHasOneRow) {
  std::set<std::string_view> seen;
  for (const ArgumentGroup& group : argument_groups())
    for (const ArgumentRow& row : group.rows) EXPECT_TRUE(seen.insert(row.name).second) << row.name;
}

/// What is taken is taken by something; what is not has a reason.
TEST(ArgumentTable, EveryVerdictHasItsGround) {
  const std::set<std::string_view> elsewhere = {// job/spec/arguments.cc
                                                "deepspeed",
                                                "fsdp",
                                                "nproc_per_node",
                                                "num_gpus",
                                                "max_restarts",
                                                "nnodes",  // cli/run/run_nodes.cc
                                                "node_rank",
                                                "master_addr",
                                                "master_port",
                                                "rdzv_endpoint",
                                                "rdzv_conf",
                                                "use_lora",
                                                "use_peft",
                                                "lora_r",
                                                "lora_rank",
                                                "lora_target",
                                                "lora_alpha",
                                                "lora_dropout",
                                                "lora_target_modules",
                                                "lora_target_parameters",
                                                "target_parameters",
                                                "lora_modules_to_save",
                                                "ensure_weight_tying",
                                                "peft_ensure_weight_tying",
                                                "lora_bias",
                                                "use_rslora",
                                                "loraplus_lr_ratio",
                                                "lorap_lr_ratio",
                                                "adapter_name_or_path",
                                                "lora_model_dir",
                                                "lora_weight_path",
                                                "use_dora",
                                                "peft_use_dora",
                                                "init_lora_weights",
                                                "peft_init_lora_weights",
                                                "layers_to_transform",
                                                "peft_layers_to_transform",
                                                "rank_pattern",
                                                "alpha_pattern",
                                                "load_in_4bit",
                                                "q_lora",
                                                "quantization_bit",
                                                "bits",
                                                "bnb_4bit_quant_type",
                                                "quantization_type",
                                                "quant_type",
                                                "bnb_4bit_use_double_quant",
                                                "use_bnb_nested_quant",
                                                "double_quantization",
                                                "double_quant",
                                                "bnb_4bit_compute_dtype"};
  for (const ArgumentGroup& group : argument_groups()) {
    for (const ArgumentRow& row : group.rows) {
      if (row.verdict != ArgumentVerdict::Taken) {
        EXPECT_FALSE(row.reason.empty()) << row.name;
        continue;
      }
      const std::string field(row.field.empty() ? camel_case(row.name) : row.field);
      EXPECT_TRUE(is_field(field) || field == "modelMaxLength" || has_meanings(row.name) ||
                  elsewhere.contains(row.name))
          << row.name;
    }
  }
}

TEST(ArgumentTable, MeaningsAreFields) {
  const auto* cpu = argument_meaning("use_cpu", "True");
  ASSERT_NE(cpu, nullptr);
  EXPECT_EQ(cpu->field, "device");
  EXPECT_EQ(cpu->becomes, "cpu");
  EXPECT_TRUE(argument_meaning("use_cpu", "0")->field.empty());
  EXPECT_EQ(argument_meaning("use_cpu", "maybe"), nullptr);
  EXPECT_EQ(argument_meaning("train_sampling_strategy", "sequential")->field, "shuffle");
  EXPECT_FALSE(has_meanings("seed"));
}

TEST(ArgumentTable, WhatAsksForNothing) {
  const auto nothing = [](const char* name, const char* value) {
    return asks_for_nothing(*argument_row(name), value);
  };
  for (const char* value : {"0", "0.0", "False", "none", "None", ""})
    EXPECT_TRUE(nothing("pref_ftx", value)) << value;
  EXPECT_FALSE(nothing("pref_ftx", "0.1"));
  EXPECT_FALSE(nothing("load_in_8bit", "True"));
  EXPECT_FALSE(nothing("save_safetensors", "False")) << "its neutral value is true";
  EXPECT_TRUE(nothing("save_safetensors", "True"));
  EXPECT_TRUE(nothing("ddp_backend", "nccl"));
  EXPECT_FALSE(nothing("ddp_backend", "mpi"));
}

TEST(ArgumentTable, NamesOfBothForms) {
  EXPECT_EQ(snake_case("perDeviceTrainBatchSize"), "per_device_train_batch_size");
  EXPECT_EQ(camel_case("per_device_train_batch_size"), "perDeviceTrainBatchSize");
  EXPECT_EQ(snake_case(camel_case("bf16_full_eval")), "bf16_full_eval");
}

TEST(ArgumentTable, ThePageIsTheTable) {
  std::ifstream file(DSJ_SOURCE_DIR "/docs/arguments.md");
  std::stringstream committed;
  committed << file.rdbuf();
  EXPECT_TRUE(committed.str() == argument_table_markdown())
      << "docs/arguments.md is not the table: run `make docs`";
}

}  // namespace
}  // namespace dsj
