// Rows of curriculum learning and random-LTD; data_efficiency.cc reads them. See keys.h.
#include "job/dsconfig/keys/keys.h"

namespace dsj::dsconfig {
namespace {

using enum Type;

constexpr char kCurriculumTests[] =
    "dsconfig_tests:CurriculumConfigTest.EveryKeyCounts "
    "train_tests:CurriculumGolden.EveryRecordedRun";
constexpr char kMetricsTests[] =
    "dsconfig_tests:CurriculumConfigTest.EveryKeyCounts "
    "dsconfig_tests:MetricCurriculumTest.EveryKeyCounts "
    "train_tests:CurriculumGolden.EveryRecordedRun "
    "data_tests:ClustersGolden.EveryRecordedRowIsInThePool";
constexpr char kLtdTests[] =
    "dsconfig_tests:RandomLtdConfigTest.EveryKeyCounts "
    "train_tests:RandomLtd.APlainLoopOfTheSameDrawHasTheSameLosses";
constexpr char kReadAhead[] = "one thread reads ahead, regardless of this key";
constexpr char kSwitches[] =
    "DeepSpeed never looks at it: the keys \"enabled\" of curriculum_learning and of random_ltd "
    "switch them";

void add_curriculum(std::vector<Key>& keys, const std::string& section) {
  const std::string schedule = section + ".schedule_config";
  keys.insert(
      keys.end(),
      {{.path = section, .type = Section, .gate = Gate::Enabled, .test = kCurriculumTests},
       {.path = section + ".enabled", .type = Bool, .fallback = false, .test = kCurriculumTests},
       {.path = section + ".curriculum_type",
        .type = String,
        .fallback = "seqlen",
        .test = kCurriculumTests},
       {.path = section + ".min_difficulty", .type = Int, .min = 1, .test = kCurriculumTests},
       {.path = section + ".max_difficulty", .type = Int, .min = 1, .test = kCurriculumTests},
       {.path = section + ".schedule_type", .type = String, .test = kCurriculumTests},
       {.path = schedule, .type = Section, .test = kCurriculumTests},
       {.path = schedule + ".total_curriculum_step",
        .type = Int,
        .min = 1,
        .test = kCurriculumTests},
       {.path = schedule + ".difficulty_step", .type = Int, .min = 1, .test = kCurriculumTests},
       {.path = schedule + ".root_degree", .type = Float, .test = kCurriculumTests},
       {.path = schedule + ".difficulty", .type = List, .test = kCurriculumTests},
       {.path = schedule + ".max_step", .type = List, .test = kCurriculumTests}});
}

void add_sampling(std::vector<Key>& keys) {
  const std::string section = "data_efficiency.data_sampling";
  const std::string curriculum = section + ".curriculum_learning";
  keys.insert(
      keys.end(),
      {{.path = section, .type = Section},
       {.path = section + ".enabled",
        .type = Bool,
        .fallback = false,
        .state = State::Moot,
        .reason = kSwitches},
       {.path = section + ".num_epochs",
        .type = Int,
        .fallback = 1000,
        .state = State::Inert,
        .reason = "training.maxSteps or numTrainEpochs end a run"},
       {.path = section + ".num_workers",
        .type = Int,
        .fallback = 0,
        .state = State::Moot,
        .reason = kReadAhead},
       {.path = section + ".pin_memory",
        .type = Bool,
        .fallback = false,
        .state = State::Moot,
        .reason = kReadAhead},
       {.path = curriculum, .type = Section, .gate = Gate::Enabled, .test = kCurriculumTests},
       {.path = curriculum + ".enabled", .type = Bool, .fallback = false, .test = kCurriculumTests},
       {.path = curriculum + ".data_cluster_path",
        .type = String,
        .state = State::Moot,
        .reason = "no clusters are written: the order of rows is computed"},
       {.path = curriculum + ".curriculum_metrics", .type = Any, .test = kMetricsTests},
       {.path = section + ".dynamic_batching",
        .type = Section,
        .state = State::Unsupported,
        .reason = "batches by tokens are not built in this version; rows are never padded, so "
                  "short ones cost what they have",
        .gate = Gate::Enabled,
        .open = true}});
}

void add_routing(std::vector<Key>& keys) {
  const std::string section = "data_efficiency.data_routing", ltd = section + ".random_ltd";
  const std::string schedule = ltd + ".random_ltd_schedule";
  const char* layout =
      "it names the layout and the mask of a wrapped Python module; here attention is causal, and "
      "there are no padded rows";
  const char* filled = "DeepSpeed itself writes it";
  keys.insert(
      keys.end(),
      {{.path = section, .type = Section},
       {.path = section + ".enabled",
        .type = Bool,
        .fallback = false,
        .state = State::Moot,
        .reason = kSwitches},
       {.path = ltd, .type = Section, .gate = Gate::Enabled, .test = kLtdTests},
       {.path = ltd + ".enabled", .type = Bool, .fallback = false, .test = kLtdTests},
       {.path = ltd + ".total_layer_num",
        .type = Int,
        .state = State::Moot,
        .reason = "DeepSpeed counts tokens with it; the model says how many layers there are",
        .min = 1},
       {.path = ltd + ".random_ltd_layer_num", .type = Int, .min = 1, .test = kLtdTests},
       {.path = ltd + ".random_ltd_layer_id", .type = List, .test = kLtdTests},
       {.path = ltd + ".model_mask_name", .type = String, .state = State::Moot, .reason = layout},
       {.path = ltd + ".model_type",
        .type = String,
        .fallback = "decoder",
        .state = State::Unsupported,
        .reason = "the models that this engine trains are decoders",
        .choices = {"decoder", "encoder"}},
       {.path = ltd + ".hidden_state_order",
        .type = String,
        .state = State::Moot,
        .reason = layout,
        .choices = {"batch_seq_dim", "seq_batch_dim"}},
       {.path = ltd + ".global_batch_size", .type = Int, .state = State::Moot, .reason = filled},
       {.path = ltd + ".micro_batch_size", .type = Int, .state = State::Moot, .reason = filled},
       {.path = ltd + ".layer_token_lr_schedule",
        .type = Section,
        .state = State::Unsupported,
        .reason = "DeepSpeed has not built it either",
        .gate = Gate::Enabled,
        .open = true},
       {.path = schedule, .type = Section, .test = kLtdTests},
       {.path = schedule + ".min_value", .type = Int, .min = 1, .test = kLtdTests},
       {.path = schedule + ".max_value", .type = Int, .min = 1, .test = kLtdTests},
       {.path = schedule + ".schedule_type", .type = String, .test = kLtdTests},
       {.path = schedule + ".schedule_config", .type = Section, .test = kLtdTests},
       {.path = schedule + ".schedule_config.require_steps",
        .type = Int,
        .min = 1,
        .test = kLtdTests},
       {.path = schedule + ".schedule_config.seq_per_step",
        .type = Int,
        .min = 1,
        .test = kLtdTests}});
}

}  // namespace

std::vector<Key> data_keys() {
  std::vector<Key> keys;
  add_curriculum(keys, "curriculum_learning");
  keys.insert(keys.end(),
              {{.path = "data_efficiency", .type = Section},
               {.path = "data_efficiency.enabled",
                .type = Bool,
                .fallback = false,
                .state = State::Moot,
                .reason = kSwitches},
               {.path = "data_efficiency.seed",
                .type = Int,
                .fallback = 1234,
                .state = State::Inert,
                .reason = "training.seed decides the order of rows and random-LTD's draws"}});
  add_curriculum(keys, "data_efficiency.curriculum_learning");
  add_sampling(keys);
  add_routing(keys);
  return keys;
}

}  // namespace dsj::dsconfig
