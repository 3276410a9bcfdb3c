// Rows of settings that only observe a run, and of mechanisms of other engines. See keys.h.
#include <sstream>

#include "job/dsconfig/config/elasticity.h"
#include "job/dsconfig/keys/keys.h"

namespace dsj::dsconfig {
namespace {

/// Adds keys written as "enabled:b=false output_path:s": name, type and DeepSpeed's default, for
/// sections whose keys need nothing else.
void add(std::vector<Key>& keys, const std::string& section, const std::string& names,
         State state = State::WithSection, const std::string& reason = {},
         const std::string& test = {}) {
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    const size_t colon = word.find(':'), equals = word.find('=', colon);
    Key key{.path = section + "." + word.substr(0, colon), .state = state, .reason = reason};
    key.test = test;
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
    if (equals != std::string::npos) key.fallback = nlohmann::json::parse(word.substr(equals + 1));
    keys.push_back(std::move(key));
  }
}

void add_switched(std::vector<Key>& keys, const std::string& section, const std::string& reason,
                  const std::string& names, State state = State::Unsupported) {
  keys.push_back({.path = section,
                  .type = Type::Section,
                  .state = state,
                  .reason = reason,
                  .gate = Gate::Enabled});
  add(keys, section, names);
}

/// A working key of a section, and its field.
struct Working {
  const char* name;
  Field (*field)(ResolvedConfig&);
};

Type type_of(const Field& field) {
  if (std::holds_alternative<bool*>(field)) return Type::Bool;
  if (std::holds_alternative<double*>(field)) return Type::Float;
  return std::holds_alternative<std::string*>(field) ? Type::String : Type::Int;
}

void add_fields(std::vector<Key>& keys, const std::string& section,
                std::initializer_list<Working> fields, const std::string& test) {
  ResolvedConfig config;
  for (const auto& [name, field] : fields)
    keys.push_back({.path = section + "." + name,
                    .type = type_of(field(config)),
                    .field = field,
                    .test = test});
}

/// A section that this engine has; its keys act if its "enabled" is true.
void add_working(std::vector<Key>& keys, const std::string& section,
                 std::initializer_list<Working> fields, const std::string& test) {
  keys.push_back({.path = section, .type = Type::Section, .gate = Gate::Enabled, .test = test});
  add_fields(keys, section, fields, test);
}

template <auto kMonitor, auto kMember>
constexpr auto to_monitor = to<&ResolvedConfig::observe, kMonitor, kMember>;

template <auto kMonitor>
void add_monitor(std::vector<Key>& keys, const char* section) {
  add_working(keys, section,
              {{"enabled", to_monitor<kMonitor, &MonitorConfig::enabled>},
               {"output_path", to_monitor<kMonitor, &MonitorConfig::output_path>},
               {"job_name", to_monitor<kMonitor, &MonitorConfig::job_name>}},
              "run_tests:WatchRun.MonitorsWriteEveryStep");
}

template <auto kMember>
constexpr auto to_comms = to<&ResolvedConfig::observe, &ObserveConfig::comms, kMember>;
template <auto kMember>
constexpr auto to_flops = to<&ResolvedConfig::observe, &ObserveConfig::flops, kMember>;

void add_open(std::vector<Key>& keys, const std::string& section, const std::string& reason,
              Gate gate, State state = State::Unsupported) {
  keys.push_back({.path = section,
                  .type = Type::Section,
                  .state = state,
                  .reason = reason,
                  .gate = gate,
                  .open = true});
}

/// Keys that elasticity.cc reads.
void add_elasticity(std::vector<Key>& keys) {
  using enum Type;
  const std::string section = "elasticity.";
  const char* every = "dsconfig_tests:ElasticityConfigTest.EveryKeyCounts";
  const char* decides =
      "dsconfig_tests:ElasticityTest.AThousandDrawnSectionsAreDeepSpeeds "
      "dsconfig_tests:ElasticityConfigTest.TheSectionDecidesTheBatch";
  keys.insert(
      keys.end(),
      {{.path = "elasticity", .type = Section, .gate = Gate::Enabled, .test = decides},
       {.path = section + "enabled", .type = Bool, .fallback = false, .test = decides},
       {.path = section + "max_train_batch_size",
        .type = Int,
        .min = 1,
        .max = static_cast<double>(kElasticBatchMax),
        .test = every},
       {.path = section + "micro_batch_sizes", .type = List, .test = every},
       {.path = section + "min_gpus", .type = Int, .fallback = 1, .min = 1, .test = every},
       {.path = section + "max_gpus", .type = Int, .fallback = 10000, .min = 1, .test = every},
       {.path = section + "num_gpus_per_node", .type = Int, .fallback = 1, .min = 1, .test = every},
       {.path = section + "model_parallel_size",
        .type = Int,
        .fallback = 1,
        .min = 1,
        .test = every},
       {.path = section + "min_time",
        .type = Int,
        .fallback = 0,
        .state = State::Moot,
        .reason = "minutes between two changes of the world size, for a scheduler; training does "
                  "not read it",
        .min = 0},
       {.path = section + "prefer_larger_batch", .type = Bool, .fallback = true, .test = every},
       {.path = section + "ignore_non_elastic_batch_info",
        .type = Bool,
        .fallback = false,
        .test = "dsconfig_tests:ElasticityConfigTest.BatchKeysBesideItAreRefusedOrOverridden"},
       {.path = section + "version", .type = Float, .fallback = 0.2, .test = every}});
}

/// Keys that autotuning.cc reads.
void add_autotuning(std::vector<Key>& keys) {
  const std::string section = "autotuning";
  const char* every =
      "dsconfig_tests:AutotuningTest.EveryKeyCounts cli_tests:TuneLoop.EverySettingActs";
  const size_t first = keys.size();
  keys.push_back({.path = section, .type = Type::Section, .gate = Gate::Enabled, .test = every});
  add(keys, section,
      "enabled:b=false fast:b=true results_dir:s=\"autotuning_results\" "
      "exps_dir:s=\"autotuning_exps\" overwrite:b=true start_profile_step:i=3 "
      "end_profile_step:i=5 metric:s=\"throughput\" tuner_type:s=\"gridsearch\" "
      "tuner_early_stopping:i=5 tuner_num_trials:i=50 max_train_batch_size:i "
      "min_train_batch_size:i=1 max_train_micro_batch_size_per_gpu:i=1024 "
      "min_train_micro_batch_size_per_gpu:i=1 num_tuning_micro_batch_sizes:i=3",
      State::Works, {}, every);
  add(keys, section, "mp_size:i=1", State::Unsupported, "there is no model parallelism");
  add(keys, section, "arg_mappings:o", State::Moot,
      "no script's arguments have to change: dsj tune changes spec.training itself");
  add(keys, section, "model_info:o model_info_path:s", State::Moot,
      "the model's config.json sets it, and the plan counts with it");
  add(keys, section, "metric_path:s", State::Moot,
      "each trial's metrics.json is in its folder; DeepSpeed's tuner also replaces this path");
  for (size_t i = first; i < keys.size(); ++i) {
    Key& key = keys[i];
    if (key.type == Type::Int) key.min = 1;
    if (key.path == "autotuning.metric")
      key.choices = {"throughput", "latency", "flops", "FLOPS_per_gpu"};
    if (key.path == "autotuning.tuner_type") key.choices = {"gridsearch", "random", "model_based"};
  }
}

}  // namespace

std::vector<Key> observation_keys() {
  using enum Type;
  using enum State;
  std::vector<Key> keys = {
      {.path = "wall_clock_breakdown",
       .type = Bool,
       .field = to<&ResolvedConfig::observe, &ObserveConfig::wall_clock_breakdown>,
       .test = "run_tests:WatchRun.BreakdownsArePrintedEveryStepsPerPrint"},
      {.path = "memory_breakdown",
       .type = Bool,
       .field = to<&ResolvedConfig::observe, &ObserveConfig::memory_breakdown>,
       .test = "run_tests:WatchRun.BreakdownsArePrintedEveryStepsPerPrint"},
      {.path = "dump_state",
       .type = Bool,
       .field = to<&ResolvedConfig::observe, &ObserveConfig::dump_state>,
       .test = "run_tests:WatchRun.BreakdownsArePrintedEveryStepsPerPrint"},

      {.path = "activation_checkpointing", .type = Section},
      {.path = "activation_checkpointing.cpu_checkpointing",
       .type = Bool,
       .field = to<&ResolvedConfig::cpu_checkpointing>,
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "train_tests:LongRows.InputsInAFileOrInHostMemoryChangeNoBit"},
      {.path = "activation_checkpointing.partition_activations",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "it splits a layer's input over the ranks that share the layer's weights (tensor "
                 "parallelism); here each rank has rows of its own, so its part is the whole"},
      {.path = "activation_checkpointing.number_checkpoints",
       .type = Int,
       .state = Inert,
       .reason =
           "it sizes contiguous_memory_optimization's buffer; here each layer keeps its input"},
      {.path = "activation_checkpointing.contiguous_memory_optimization",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "it prevents fragmentation by inputs that come and go; here the allocator keeps "
                 "freed pages for the next tensor of any size"},
      {.path = "activation_checkpointing.synchronize_checkpoint_boundary",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "it makes a GPU wait at each layer, for a debugger; results are the same"},
      {.path = "activation_checkpointing.profile",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "wall_clock_breakdown has the times of forward and backward, recomputation in it"},

      {.path = "checkpoint", .type = Section},
      {.path = "checkpoint.tag_validation",
       .type = String,
       .fallback = "Warn",
       .state = Moot,
       .reason = "ranks that see different checkpoints always stop, regardless of this key",
       .choices = {"Ignore", "Warn", "Fail"}},
      {.path = "checkpoint.load_universal",
       .type = Bool,
       .field = to<&ResolvedConfig::load_universal>,
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "deepspeed_tests:Folder.OfBothLatestTheKeyDecides"},
      {.path = "checkpoint.use_node_local_storage",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "all ranks write below one output directory, which every node must reach"},
      {.path = "checkpoint.parallel_write", .type = Section},
      {.path = "checkpoint.parallel_write.pipeline_stage",
       .type = Bool,
       .fallback = false,
       .state = Moot,
       .reason = "all ranks always write their part at once; there are no pipeline stages"},
      {.path = "checkpoint.checkpoint_serialization",
       .type = Bool,
       .fallback = true,
       .state = Moot,
       .reason = "it chooses between two encodings of torch.save, which is not used"},
      {.path = "checkpoint.writer",
       .type = Section,
       .state = Inert,
       .reason = "checkpoints are written by this engine",
       .gate = Gate::Presence,
       .open = true},
      {.path = "datastates_ckpt",
       .type = Section,
       .state = Inert,
       .reason = "checkpoints are written by this engine",
       .gate = Gate::Presence,
       .open = true},

      {.path = "timers", .type = Section},
      {.path = "timers.throughput", .type = Section},
  };
  add(keys, "timers.throughput", "enabled:b=true synchronized:b=true", Moot,
      "metrics.jsonl always has the time of every step");
  const std::string no_monitor =
      "nothing is sent to a server; metrics.jsonl has every step, and docs/watching.md shows how "
      "to send it";
  add_monitor<&ObserveConfig::tensorboard>(keys, "tensorboard");
  add_monitor<&ObserveConfig::csv>(keys, "csv_monitor");
  add_switched(keys, "wandb", no_monitor, "enabled:b=false group:s team:s project:s=\"deepspeed\"",
               State::Inert);
  add_open(keys, "comet", no_monitor, Gate::Enabled, State::Inert);
  const char* flops =
      "observe_tests:Flops.EveryKeyChangesTheReport "
      "run_tests:WatchRun.FlopsAreProfiledAtTheirStep";
  add_working(keys, "flops_profiler",
              {{"enabled", to_flops<&FlopsProfilerConfig::enabled>},
               {"recompute_fwd_factor", to_flops<&FlopsProfilerConfig::recompute_fwd_factor>},
               {"profile_step", to_flops<&FlopsProfilerConfig::profile_step>},
               {"module_depth", to_flops<&FlopsProfilerConfig::module_depth>},
               {"top_modules", to_flops<&FlopsProfilerConfig::top_modules>},
               {"detailed", to_flops<&FlopsProfilerConfig::detailed>}},
              flops);
  add(keys, "flops_profiler", "output_file:s", Works, {}, flops);
  const char* operations =
      "observe_tests:CommsLog.ProfOpsCountWithoutProfAll "
      "run_tests:WatchRun.CommunicationIsLogged";
  add_working(keys, "comms_logger",
              {{"enabled", to_comms<&CommsLoggerConfig::enabled>},
               {"prof_all", to_comms<&CommsLoggerConfig::prof_all>}},
              operations);
  add(keys, "comms_logger", "prof_ops:l=[]", Works, {}, operations);
  add_fields(keys, "comms_logger",
             {{"verbose", to_comms<&CommsLoggerConfig::verbose>},
              {"debug", to_comms<&CommsLoggerConfig::debug>}},
             "observe_tests:CommsLog.VerboseTellsEachCallAndDebugWhatItIsFor "
             "run_tests:WatchRun.CommunicationIsLogged");
  return keys;
}

std::vector<Key> other_engine_keys() {
  const std::string missing = " is not built in this version";
  std::vector<Key> keys;
  add_elasticity(keys);
  add_autotuning(keys);
  add_switched(keys, "progressive_layer_drop", "progressive layer drop" + missing,
               "enabled:b=false theta:f=1.0 gamma:f=0.001");
  add_switched(keys, "eigenvalue", "it serves quantised training, which is not built",
               "enabled:b=false verbose:b=false max_iter:i=100 tol:f=0.01 stability:f=0.000001 "
               "gas_boundary_resolution:i=1 layer_name:s=\"bert.encoder.layer\" layer_num:i=0");
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
