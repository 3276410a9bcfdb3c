// Rows of batch, clipping and communication. See keys.h.
#include "job/dsconfig/keys/keys.h"

namespace dsj::dsconfig {

std::vector<Key> training_keys() {
  using enum Type;
  using enum State;
  const char* averaging_test =
      "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
      "train_tests:Averaging.WhereItIsDividedDecidesWhatOverflows";
  return {
      {.path = "train_batch_size",
       .type = Int,
       .min = 1,
       .auto_rule = "world size x perDeviceTrainBatchSize x gradientAccumulationSteps",
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "train_tests:EngineKeys.BatchKeysDecideTheRowsOfAStep"},
      {.path = "train_micro_batch_size_per_gpu",
       .type = Int,
       .min = 1,
       .auto_rule = "perDeviceTrainBatchSize",
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "train_tests:EngineKeys.BatchKeysDecideTheRowsOfAStep"},
      {.path = "gradient_accumulation_steps",
       .type = Int,
       .min = 1,
       .auto_rule = "gradientAccumulationSteps",
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "train_tests:EngineKeys.BatchKeysDecideTheRowsOfAStep"},
      {.path = "managed_gradient_accumulation",
       .type = Bool,
       .fallback = true,
       .state = Unsupported,
       .reason = "the engine always owns the accumulation boundary"},
      {.path = "gradient_clipping",
       .type = Float,
       .fallback = 1.0,
       .auto_rule = "maxGradNorm",
       .fallback_013 = 0.0,
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "train_tests:EngineKeys.OptimizerKeysMoveTheWeightsAsTheFormulaSays"},
      {.path = "steps_per_print",
       .type = Int,
       .min = 0,
       .fallback_013 = 10,
       .test = "run_tests:WatchRun.BreakdownsArePrintedEveryStepsPerPrint"},
      {.path = "dataloader_drop_last",
       .type = Bool,
       .field = to<&ResolvedConfig::dataloader_drop_last>,
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "data_tests:Sampler.DropLastStartsTheNextEpochWithAWholeBatch"},

      {.path = "communication_data_type",
       .type = String,
       .choices = {"fp32", "fp16", "bf16", "bfp16"},
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "train_tests:EngineKeys.CommunicationDataTypeIsWhatTravels"},
      {.path = "seq_parallel_comm_data_type",
       .type = String,
       .fallback = "fp32",
       .state = Moot,
       .reason = "with sequence_parallel_size, too, communication_data_type sets the type of sent "
                 "gradients",
       .aliases = {"seq_parallel_communication_data_type"},
       .choices = {"fp32", "fp16", "bf16", "bfp16"}},
      {.path = "prescale_gradients",
       .type = Bool,
       .field = to<&ResolvedConfig::averaging, &AveragingConfig::prescale>,
       .test = averaging_test},
      {.path = "gradient_predivide_factor",
       .type = Float,
       .min = 0,
       .field = to<&ResolvedConfig::averaging, &AveragingConfig::predivide>,
       .test = averaging_test},
      {.path = "gradient_allreduce_op",
       .type = String,
       .fallback = "mean",
       .choices = {"mean", "sum"},
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "train_tests:Averaging.SumIsWorldTimesTheMean"},
      {.path = "sparse_gradients",
       .type = Bool,
       .stages = "0, 1, 2",
       .field = to<&ResolvedConfig::sparse_gradients>,
       .test = "train_tests:SparseGradients.LossesAreThoseOfDenseGradients "
               "zero_tests:RowGradients.SendOnlyTheRowsTouchedAtAFullVocabulary"},
      {.path = "disable_allgather",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "updated parameters are always all-gathered"},
      {.path = "zero_allow_untested_optimizer",
       .type = Bool,
       .fallback = false,
       .stages = "1, 2, 3",
       .test = "dsconfig_tests:OptimizerTest.ZeroTakesUntestedOptimizersWhenTold"},
      {.path = "zero_force_ds_cpu_optimizer",
       .type = Bool,
       .fallback = true,
       .state = Moot,
       .reason = "there is one optimizer, on every device"},
      {.path = "use_data_before_expert_parallelism",
       .type = Bool,
       .fallback = false,
       .state = Moot,
       .reason = "there is no expert parallelism",
       .aliases = {"use_data_before_expert_parallelism_"}},
      {.path = "sequence_parallel_size",
       .type = Int,
       .fallback = 1,
       .min = 1,
       .field = to<&ResolvedConfig::sequence_parallel_size>,
       .test = "dsconfig_tests:SequenceParallelTest.RowsOfAStepAreOfGroupsOfRanks "
               "train_tests:SequenceParallel.CutRowsTrainAsOneRankDoes"},
      {.path = "vocabulary_size",
       .type = Int,
       .state = Moot,
       .reason = "the model gives the size; DeepSpeed uses this key only for a warning",
       .min = 1},
      {.path = "graph_harvesting",
       .type = Bool,
       .fallback = false,
       .state = Inert,
       .reason = "there are no CUDA graphs to harvest"},
      {.path = "log_level",
       .type = String,
       .state = Inert,
       .reason = "the ranks' logs have one level"},
  };
}

}  // namespace dsj::dsconfig
