// Rows of number formats. See keys.h.
#include "job/dsconfig/keys/keys.h"

namespace dsj::dsconfig {

std::vector<Key> precision_keys() {
  using enum Type;
  using enum State;
  const char* no_scale = "bf16 is not scaled";
  const char* fp16_test =
      "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig train_tests:Fp16.AnOverflow"
      "SkipsTheStepAndHalvesTheScale";
  const char* scale_test =
      "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
      "optim_tests:LossScaler.EveryTraceOfDeepSpeedsOwnClass";
  const char* master_test =
      "dsconfig_tests:MasterTypes.AreTheModelsWhereTheFileSaysSo "
      "train_tests:SixteenBitStates.AreRoundedOncePerUpdate";
  const char* amp_test =
      "dsconfig_tests:Amp.LevelsAreModesOfTheEngine "
      "train_tests:Autocast.Fp16IsScaledAndSkipsAnOverflow";
  const char* autocast_test =
      "dsconfig_tests:Autocast.IsOnWithItsType train_tests:Autocast.ProductsRunInTheType";
  std::vector<std::string> dtypes = {"fp32",           "fp16",     "bf16",          "float32",
                                     "float16",        "bfloat16", "torch.float32", "torch.float16",
                                     "torch.bfloat16", "float",    "half"};
  std::vector<Key> keys = {
      {.path = "fp16", .type = Section},
      {.path = "fp16.enabled",
       .type = Bool,
       .fallback = false,
       .auto_rule = "fp16",
       .test = fp16_test},
      {.path = "fp16.auto_cast",
       .type = Bool,
       .fallback = false,
       .state = Moot,
       .reason = "the inputs are token ids: there is nothing to cast"},
      {.path = "fp16.loss_scale",
       .type = Float,
       .min = 0,
       .field = to<&ResolvedConfig::loss_scale, &LossScaleConfig::fixed>,
       .test = scale_test},
      {.path = "fp16.initial_scale_power",
       .type = Int,
       .fallback = 16,
       .min = 0,
       .max = 1000,
       .test = scale_test},
      {.path = "fp16.loss_scale_window",
       .type = Int,
       .min = 0,
       .field = to<&ResolvedConfig::loss_scale, &LossScaleConfig::window>,
       .test = scale_test},
      {.path = "fp16.hysteresis",
       .type = Int,
       .min = 0,
       .field = to<&ResolvedConfig::loss_scale, &LossScaleConfig::hysteresis>,
       .test = scale_test},
      {.path = "fp16.consecutive_hysteresis",
       .type = Bool,
       .field = to<&ResolvedConfig::loss_scale, &LossScaleConfig::consecutive_hysteresis>,
       .test = scale_test},
      {.path = "fp16.min_loss_scale",
       .type = Float,
       .min = 0,
       .field = to<&ResolvedConfig::loss_scale, &LossScaleConfig::minimum>,
       .test = scale_test},
      {.path = "fp16.fp16_master_weights_and_grads",
       .type = Bool,
       .fallback = false,
       .aliases = {"fp16_master_weights_and_gradients"},
       .test = master_test},
      // DeepSpeed's older examples contain it; DeepSpeed does not read it.
      {.path = "fp16.opt_level", .type = Any, .state = Inert, .reason = "it is a setting of amp"},

      {.path = "bf16", .type = Section, .aliases = {"bfloat16"}},
      {.path = "bf16.enabled",
       .type = Bool,
       .fallback = false,
       .auto_rule = "bf16",
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "train_tests:EngineKeys.Bf16HalvesTheWorkingCopy"},
      {.path = "bf16.immediate_grad_update",
       .type = Bool,
       .fallback = false,
       .state = Moot,
       .reason = "a gradient is always processed as soon as its unit is complete"},
      {.path = "bf16.check_grad_overflow",
       .type = Bool,
       .fallback_013 = false,
       .field = to<&ResolvedConfig::bf16_check_grad_overflow>,
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "train_tests:EngineKeys.Bf16OverflowIsSkippedOnlyWhenChecked"},
      {.path = "bf16.bf16_master_weights_and_grads",
       .type = Bool,
       .fallback = false,
       .test = master_test},
      {.path = "bf16.bf16_optimizer_states", .type = Bool, .fallback = false, .test = master_test},

      {.path = "data_types", .type = Section},
      {.path = "data_types.grad_accum_dtype",
       .type = String,
       .choices = dtypes,
       .test = "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
               "train_tests:EngineKeys.GradAccumDtypeIsTheSumsType"},
      {.path = "data_types.param_dtype",
       .type = String,
       .choices = dtypes,
       .test = "dsconfig_tests:Precision.ParamDtypeMustBeTheModels"},
      {.path = "data_types.buffer_dtype",
       .type = String,
       .state = Unsupported,
       .reason = "buffers keep their type",
       .choices = dtypes},

      {.path = "amp", .type = Section, .gate = Gate::Enabled},
      {.path = "amp.enabled",
       .type = Bool,
       .fallback = false,
       .auto_rule = "false: there is no apex",
       .test = amp_test},
      {.path = "amp.opt_level",
       .type = String,
       .fallback = "O1",
       .choices = {"O0", "O1", "O2", "O3"},
       .auto_rule = "O1",
       .test = amp_test},
      {.path = "amp.loss_scale", .type = Any, .fallback = "dynamic", .test = amp_test},
      {.path = "amp.min_loss_scale", .type = Float, .min = 0, .test = amp_test},
      {.path = "amp.max_loss_scale",
       .type = Float,
       .fallback = 16777216.0,
       .min = 0,
       .test = amp_test},
      {.path = "amp.keep_batchnorm_fp32",
       .type = Any,
       .state = Moot,
       .reason = "no model here has a batch norm"},
      {.path = "amp.num_losses", .type = Int, .state = Moot, .reason = "a step has one loss"},
      {.path = "amp.verbosity", .type = Int, .state = Moot, .reason = "apex's own messages"},
      {.path = "amp.cast_model_type",
       .type = Any,
       .state = Unsupported,
       .reason = "it changes what the level means; choose the level that has it"},
      {.path = "amp.patch_torch_functions",
       .type = Any,
       .state = Unsupported,
       .reason = "it changes what the level means; choose the level that has it"},
      {.path = "amp.master_weights",
       .type = Any,
       .state = Unsupported,
       .reason = "it changes what the level means; choose the level that has it"},
      {.path = "amp.cast_model_outputs",
       .type = Any,
       .state = Unsupported,
       .reason = "it changes what the level means; choose the level that has it"},
      {.path = "torch_autocast", .type = Section, .gate = Gate::Enabled},
      {.path = "torch_autocast.enabled", .type = Bool, .fallback = false, .test = autocast_test},
      {.path = "torch_autocast.dtype", .type = String, .choices = dtypes, .test = autocast_test},
      {.path = "torch_autocast.lower_precision_safe_modules",
       .type = List,
       .stages = "1, 2, 3",
       .test =
           "dsconfig_tests:Autocast.SafeModules train_tests:Autocast.SafeModulesTravelInTheirType"},
  };
  for (const char* name : {"auto_cast", "loss_scale", "loss_scale_window", "initial_scale_power",
                           "hysteresis", "consecutive_hysteresis", "min_loss_scale"})
    keys.push_back(
        {.path = std::string("bf16.") + name, .type = Any, .state = Inert, .reason = no_scale});
  return keys;
}

}  // namespace dsj::dsconfig
