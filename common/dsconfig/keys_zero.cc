// The table's part on ZeRO. See keys.h.
#include "common/dsconfig/keys.h"

namespace dsj::dsconfig {
namespace {

void add_offload(std::vector<Key>& keys, const std::string& section, const char* what) {
  using enum Type;
  keys.push_back({.path = section, .type = Section});
  keys.push_back({.path = section + ".device",
                  .type = String,
                  .fallback = "none",
                  .state = State::Unsupported,
                  .reason = std::string(what) + " offload is not built in this version",
                  .choices = {"none", "cpu", "nvme"}});
  keys.push_back({.path = section + ".nvme_path", .type = String});
  keys.push_back({.path = section + ".buffer_count", .type = Int, .min = 0});
  keys.push_back(
      {.path = section + ".pin_memory", .type = Bool, .fallback = true, .fallback_013 = false});
}

}  // namespace

std::vector<Key> zero_keys() {
  using enum Type;
  using enum State;
  const std::string zero = "zero_optimization.";
  const char* plus_plus = "ZeRO++ is not built in this version";
  const char* mics = "MiCS is not built in this version";
  const char* offload = "offload is not built in this version";
  std::vector<Key> keys = {
      {.path = "zero_optimization", .type = Section},
      {.path = zero + "stage", .type = Int, .fallback = 0, .min = 0, .max = 3},
      {.path = zero + "contiguous_gradients",
       .type = Bool,
       .fallback = true,
       .state = Inert,
       .reason = "gradients are always in one flat buffer"},
      {.path = zero + "reduce_scatter",
       .type = Bool,
       .fallback = true,
       .state = Inert,
       .reason = "gradients are always reduced to their owner"},
      {.path = zero + "reduce_bucket_size",
       .type = Int,
       .fallback = 500'000'000,
       .min = 0,
       .auto_rule = "hidden_size^2"},
      {.path = zero + "use_multi_rank_bucket_allreduce",
       .type = Bool,
       .fallback = true,
       .state = Inert,
       .reason = "gradients are always reduced to their owner"},
      {.path = zero + "allgather_partitions",
       .type = Bool,
       .fallback = true,
       .state = Inert,
       .reason = "updated parameters are always all-gathered"},
      {.path = zero + "allgather_bucket_size", .type = Int, .fallback = 500'000'000, .min = 0},
      {.path = zero + "overlap_comm", .type = Bool},
      {.path = zero + "load_from_fp32_weights",
       .type = Bool,
       .fallback = true,
       .state = Unsupported,
       .reason = "a resume always starts from the fp32 master"},
      {.path = zero + "elastic_checkpoint",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "every checkpoint is readable at any world size"},
      {.path = zero + "sub_group_size", .type = Int, .fallback = 1'000'000'000, .min = 0},
      {.path = zero + "stage3_prefetch_bucket_size",
       .type = Int,
       .fallback = 50'000'000,
       .aliases = {"prefetch_bucket_size"},
       .min = 0,
       .auto_rule = "int(0.9 x hidden_size^2)"},
      {.path = zero + "stage3_param_persistence_threshold",
       .type = Int,
       .fallback = 100'000,
       .aliases = {"param_persistence_threshold"},
       .min = 0,
       .auto_rule = "10 x hidden_size"},
      {.path = zero + "stage3_model_persistence_threshold",
       .type = Int,
       .fallback = INT64_MAX,
       .aliases = {"model_persistence_threshold"},
       .min = 0},
      {.path = zero + "stage3_max_live_parameters",
       .type = Int,
       .fallback = 1'000'000'000,
       .aliases = {"max_live_parameters"},
       .min = 0},
      {.path = zero + "stage3_max_reuse_distance",
       .type = Int,
       .fallback = 1'000'000'000,
       .aliases = {"max_reuse_distance"},
       .min = 0},
      {.path = zero + "stage3_gather_16bit_weights_on_model_save",
       .type = Bool,
       .fallback = false,
       .aliases = {"gather_16bit_weights_on_model_save",
                   "stage3_gather_fp16_weights_on_model_save"},
       .auto_rule = "false"},
      {.path = zero + "ignore_unused_parameters", .type = Bool, .fallback = true},
      {.path = zero + "round_robin_gradients",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "it spreads copies of CPU offload"},
      {.path = zero + "legacy_stage1", .type = Bool, .fallback = false},  // check.cc: an error
      {.path = zero + "zero_hpz_partition_size",
       .type = Int,
       .fallback = 1,
       .state = Unsupported,
       .reason = plus_plus,
       .min = 0},
      {.path = zero + "zero_quantized_weights",
       .type = Bool,
       .fallback = false,
       .state = Unsupported,
       .reason = plus_plus},
      {.path = zero + "zero_quantized_nontrainable_weights",
       .type = Bool,
       .fallback = false,
       .state = Unsupported,
       .reason = plus_plus},
      {.path = zero + "zero_quantized_gradients",
       .type = Bool,
       .fallback = false,
       .state = Unsupported,
       .reason = plus_plus},
      {.path = zero + "zeropp_loco_param",
       .type = Section,
       .state = Unsupported,
       .reason = plus_plus,
       .gate = Gate::Presence},
      {.path = zero + "zeropp_loco_param.err_beta", .type = Float},
      {.path = zero + "zeropp_loco_param.reset_T", .type = Int},
      {.path = zero + "mics_shard_size",
       .type = Int,
       .fallback = -1,
       .state = Unsupported,
       .reason = mics},
      {.path = zero + "mics_hierarchical_params_gather",
       .type = Bool,
       .fallback = false,
       .state = Unsupported,
       .reason = mics},
      {.path = zero + "memory_efficient_linear", .type = Bool, .fallback = true},
      {.path = zero + "override_module_apply", .type = Bool, .fallback = true},
      {.path = zero + "pipeline_loading_checkpoint", .type = Bool, .fallback = false},
      {.path = zero + "stage3_module_granularity_threshold",
       .type = Int,
       .fallback = 0,
       .aliases = {"module_granularity_threshold"}},
      {.path = zero + "stage3_use_all_reduce_for_fetch_params",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "parameters are fetched by all-gather",
       .aliases = {"use_all_reduce_for_fetch_params"}},
      {.path = zero + "stage3_allgather_sequential",
       .type = Bool,
       .fallback = false,
       .aliases = {"allgather_sequential"}},
      {.path = zero + "log_trace_cache_warnings", .type = Bool, .fallback = false},
      {.path = zero + "enable_sanity_checks", .type = Bool, .fallback = false},
      {.path = zero + "leaf_module", .type = Section, .open = true},
      {.path = zero + "zenflow",
       .type = Section,
       .state = Unsupported,
       .reason = "ZenFlow is not built in this version",
       .gate = Gate::Presence,
       .open = true},
      {.path = zero + "save_muon_momentum_buffer_in_memory", .type = Bool, .fallback = false},
      {.path = zero + "cpu_offload",
       .type = Bool,
       .fallback = false,
       .state = Unsupported,
       .reason = std::string(offload) + " (cpu_offload is the old name of offload_optimizer)"},
      {.path = zero + "cpu_offload_params",
       .type = Bool,
       .fallback = false,
       .state = Unsupported,
       .reason = std::string(offload) + " (cpu_offload_params is the old name of offload_param)",
       .aliases = {"cpu_offload_param"}},
      {.path = zero + "cpu_offload_use_pin_memory", .type = Bool, .fallback = false},
  };
  add_offload(keys, zero + "offload_param", "parameter");
  keys.push_back({.path = zero + "offload_param.buffer_size", .type = Int, .min = 0});
  keys.push_back({.path = zero + "offload_param.max_in_cpu", .type = Int, .min = 0});
  add_offload(keys, zero + "offload_optimizer", "optimizer");
  for (const char* name :
       {"pipeline", "pipeline_read", "pipeline_write", "fast_init", "super_offload"})
    keys.push_back({.path = zero + "offload_optimizer." + name, .type = Bool, .fallback = false});
  keys.push_back({.path = zero + "offload_optimizer.ratio", .type = Float, .min = 0, .max = 1});
  keys.push_back(
      {.path = zero + "offload_optimizer.cpuadam_cores_perc", .type = Float, .min = 0, .max = 1});
  return keys;
}

}  // namespace dsj::dsconfig
