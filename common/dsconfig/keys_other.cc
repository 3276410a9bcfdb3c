// The table's parts on what only observes a run, and on mechanisms of other engines. See keys.h.
#include <sstream>

#include "common/dsconfig/keys.h"

namespace dsj::dsconfig {
namespace {

/// "enabled:b output_path:s": names and types of a section whose keys need no more than that.
void add(std::vector<Key>& keys, const std::string& section, const std::string& names) {
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    const size_t colon = word.find(':');
    Key key{.path = section + "." + word.substr(0, colon)};
    switch (word[colon + 1]) {
      case 'b':
        key.type = Type::Bool;
        break;
      case 'i':
        key.type = Type::Int;
        break;
      case 'f':
        key.type = Type::Float;
        break;
      case 's':
        key.type = Type::String;
        break;
      case 'l':
        key.type = Type::List;
        break;
      case 'o':
        key.type = Type::Section;
        key.open = true;
        break;
      default:
        break;
    }
    keys.push_back(std::move(key));
  }
}

void add_switched(std::vector<Key>& keys, const std::string& section, const std::string& reason,
                  const std::string& names) {
  keys.push_back({.path = section,
                  .type = Type::Section,
                  .state = State::Unsupported,
                  .reason = reason,
                  .gate = Gate::Enabled});
  add(keys, section, names);
}

void add_open(std::vector<Key>& keys, const std::string& section, const std::string& reason,
              Gate gate, State state = State::Unsupported) {
  keys.push_back({.path = section,
                  .type = Type::Section,
                  .state = state,
                  .reason = reason,
                  .gate = gate,
                  .open = true});
}

}  // namespace

std::vector<Key> observation_keys() {
  using enum Type;
  using enum State;
  const char* own_flag =
      "it acts on models that call DeepSpeed's checkpointing; a Hugging Face "
      "model recomputes by training.gradientCheckpointing";
  std::vector<Key> keys = {
      {.path = "wall_clock_breakdown",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "no breakdown is printed; metrics.jsonl has the time of every step"},
      {.path = "memory_breakdown",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "no breakdown is printed; metrics.jsonl has the memory of every step"},
      {.path = "dump_state",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "the state is not printed"},

      {.path = "activation_checkpointing", .type = Section, .state = Inert, .reason = own_flag},
      {.path = "activation_checkpointing.partition_activations", .type = Bool, .fallback = false},
      {.path = "activation_checkpointing.number_checkpoints", .type = Int},
      {.path = "activation_checkpointing.contiguous_memory_optimization",
       .type = Bool,
       .fallback = false},
      {.path = "activation_checkpointing.synchronize_checkpoint_boundary",
       .type = Bool,
       .fallback = false},
      {.path = "activation_checkpointing.profile", .type = Bool, .fallback = false},
      {.path = "activation_checkpointing.cpu_checkpointing", .type = Bool, .fallback = false},

      {.path = "checkpoint", .type = Section},
      {.path = "checkpoint.tag_validation",
       .type = String,
       .fallback = "Warn",
       .choices = {"Ignore", "Warn", "Fail"}},
      {.path = "checkpoint.load_universal",
       .type = Bool,
       .fallback = false,
       .state = Unsupported,
       .reason = "universal checkpoints are not read in this version; ours "
                 "are readable at any world size"},
      {.path = "checkpoint.use_node_local_storage",
       .type = Bool,
       .fallback = false,
       .state = Unsupported,
       .reason = "all ranks write below one output directory"},
      {.path = "checkpoint.parallel_write", .type = Section},
      {.path = "checkpoint.parallel_write.pipeline_stage", .type = Bool, .fallback = false},
      {.path = "checkpoint.checkpoint_serialization", .type = Bool, .fallback = true},
      {.path = "checkpoint.writer", .type = Section, .open = true},
      {.path = "datastates_ckpt",
       .type = Section,
       .state = Inert,
       .reason = "checkpoints are written by this engine",
       .gate = Gate::Presence,
       .open = true},

      {.path = "timers", .type = Section},
      {.path = "timers.throughput", .type = Section},
      {.path = "timers.throughput.enabled", .type = Bool, .fallback = true},
      {.path = "timers.throughput.synchronized", .type = Bool, .fallback = true},
  };
  const std::string no_monitor =
      "monitors are not built in this version; metrics.jsonl has the "
      "values of every step";
  add_switched(keys, "tensorboard", no_monitor, "enabled:b output_path:s job_name:s");
  add_switched(keys, "csv_monitor", no_monitor, "enabled:b output_path:s job_name:s");
  add_switched(keys, "wandb", no_monitor, "enabled:b group:s team:s project:s");
  add_open(keys, "comet", no_monitor, Gate::Enabled);
  add_switched(keys, "flops_profiler", "the FLOPS profiler is not built in this version",
               "enabled:b recompute_fwd_factor:f profile_step:i module_depth:i top_modules:i "
               "detailed:b output_file:s");
  add_switched(keys, "comms_logger",
               "the communication logger is not built in this version; metrics.jsonl has the "
               "bytes of every step",
               "enabled:b prof_all:b prof_ops:l verbose:b debug:b");
  return keys;
}

std::vector<Key> other_engine_keys() {
  const std::string missing = " is not built in this version";
  std::vector<Key> keys;
  keys.push_back({.path = "aio", .type = Type::Section});  // acts with NVMe offload only
  add(keys, "aio",
      "block_size:i queue_depth:i thread_count:i intra_op_parallelism:i single_submit:b "
      "overlap_events:b use_gds:b");
  add_switched(keys, "elasticity", "elastic batch sizes are not built in this version",
               "enabled:b max_train_batch_size:i micro_batch_sizes:l min_gpus:i max_gpus:i "
               "num_gpus_per_node:i model_parallel_size:i min_time:i prefer_larger_batch:b "
               "ignore_non_elastic_batch_info:b version:f");
  add_switched(keys, "autotuning", "the autotuner" + missing,
               "enabled:b fast:b results_dir:s exps_dir:s overwrite:b start_profile_step:i "
               "end_profile_step:i metric:s tuner_type:s tuner_early_stopping:i "
               "tuner_num_trials:i max_train_batch_size:i min_train_batch_size:i "
               "max_train_micro_batch_size_per_gpu:i min_train_micro_batch_size_per_gpu:i "
               "num_tuning_micro_batch_sizes:i mp_size:i arg_mappings:o metric_path:s "
               "model_info:o model_info_path:s");
  add_open(keys, "data_efficiency", "curriculum data sampling" + missing, Gate::Enabled);
  add_switched(keys, "curriculum_learning", "curriculum learning" + missing,
               "enabled:b curriculum_type:s min_difficulty:i max_difficulty:i schedule_type:s "
               "schedule_config:o");
  add_switched(keys, "progressive_layer_drop", "progressive layer drop" + missing,
               "enabled:b theta:f gamma:f");
  add_switched(keys, "eigenvalue", "it serves quantised training, which is not built",
               "enabled:b verbose:b max_iter:i tol:f stability:f gas_boundary_resolution:i "
               "layer_name:s layer_num:i");
  add_open(keys, "quantize_training", "quantised training" + missing, Gate::AnyEnabled);
  add_open(keys, "compression_training", "compression" + missing, Gate::AnyEnabled);
  add_open(keys, "sparse_attention", "sparse attention" + missing, Gate::Presence);
  add_open(keys, "pipeline", "there is no pipeline parallelism", Gate::Presence, State::Inert);
  add_open(keys, "hybrid_engine", "the hybrid engine" + missing, Gate::Enabled);
  add_open(keys, "nebula", "Nebula checkpoints are a service of Azure", Gate::Enabled);
  add_open(keys, "weight_quantization", "weight quantisation" + missing, Gate::Presence);
  add_open(keys, "tensor_parallel", "tensor parallelism" + missing, Gate::Presence);
  add_open(keys, "expert_parallel", "expert parallelism" + missing, Gate::Presence);
  add_open(keys, "compile", "nothing is compiled", Gate::Presence, State::Inert);
  return keys;
}

}  // namespace dsj::dsconfig
