// The optimizers, with one descriptor each that has everything the rooms need. ds_config's reader
// takes names, parameters and defaults from it, the key table its rows, and the engine, its
// checkpoints and `dsj plan` the states. A new optimizer needs a kind and a descriptor here, a
// rule of the same kind in engine/optim/optimizer.h, and its tensor form in
// engine/device/aten_update.cc. Plain data, from the constructors of torch 2.11 and DeepSpeed
// 0.19.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dsj::dsconfig {

/// The formula (engine/optim/optimizer.h).
enum class OptimizerKind {
  Adam,  ///< Adam and AdamW, which decoupled_weight_decay tells apart
  Sgd,
  Adagrad,
  RMSprop,
  Lion,
  Lamb,
  Adadelta,
  Adamax,
  NAdam,
  RAdam,
  Asgd,
  Rprop,
  OneBitAdam,
  OneBitLamb,
  ZeroOneAdam,
  Muon,
};

/// How Muon orthogonalizes a matrix (engine/zero/methods/newton_schulz.h).
enum class NewtonSchulz { Gram, Standard };

/// The hyper-parameters of all kinds. Each kind reads those of its formula. The initial values are
/// Adam's defaults; a descriptor has its own.
struct OptimizerConfig {
  OptimizerKind kind = OptimizerKind::Adam;
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decoupled_weight_decay = true;  ///< Adam, NAdam, RAdam; false: L2 in the gradient
  /// False: Hugging Face's two groups, one of them without decay (job/plan/weight_decay.h).
  bool decays_all = true;
  /// LoRA+: the rate of adapters' B is this many times the optimizer's (job/plan/lora_plus.h).
  double lora_plus_ratio = 1;
  bool bias_correction = true;  ///< Adam, LAMB
  /// AdamW: moments in 8 bits, quantized by blocks (job/plan/eight_bit_plan.h).
  bool eight_bit = false;
  bool maximize = false;             ///< torch's optimizers: negates the gradient
  double momentum = 0.0;             ///< SGD, RMSprop
  double dampening = 0.0;            ///< SGD
  bool nesterov = false;             ///< SGD
  double alpha = 0.99;               ///< RMSprop's decay; ASGD's power of the step
  bool centered = false;             ///< RMSprop
  double rho = 0.9;                  ///< Adadelta
  double lr_decay = 0.0;             ///< Adagrad
  double initial_accumulator = 0.0;  ///< Adagrad
  double momentum_decay = 4e-3;      ///< NAdam
  double lambd = 1e-4, t0 = 1e6;     ///< ASGD
  double eta_minus = 0.5, eta_plus = 1.2, step_min = 1e-6, step_max = 50;  ///< Rprop
  double min_coeff = 0.01, max_coeff = 10.0;                               ///< LAMB
  bool eps_inside_sqrt = false;                                            ///< LAMB
  double coeff_beta = 0.9;                    ///< OneBitLamb, also the next two lines
  double factor_min = 0.5, factor_max = 4.0;  ///< limits of the frozen coefficients' factor
  double factor_threshold = 0.1;              ///< its largest relative change per step
  double freeze_step = 100000;                ///< OneBitAdam, OneBitLamb
  double var_freeze_step = 100000;            ///< ZeroOneAdam, also the next three
  double var_update_scaler = 16;              ///< variance updates at one interval
  double local_step_scaler = 32678, local_step_clipper = 16;  ///< steps at one interval; its limit
};

/// Muon's further parameters. OptimizerConfig's lr, momentum and weight_decay are for its matrices.
struct MuonConfig {
  double adam_lr = 3e-4;  ///< of the parameters that AdamW updates
  NewtonSchulz ns_method = NewtonSchulz::Gram;
  int64_t ns_steps = 5;
};

// ---- parameters ---------------------------------------------------------------------------------

/// A parameter that is a list of two numbers.
struct PairField {
  double OptimizerConfig::*first;
  double OptimizerConfig::*second;
  bool (*holds)(double first, double second);
  const char* expected;   ///< what `holds` requires, in words
  const char* hint = "";  ///< an example
};

/// A parameter of a formula: its field and its row in the key table. The default is the
/// descriptor's; the table shows that of the first optimizer that takes the parameter.
struct OptimizerParameter {
  std::string_view name;  ///< in optimizer.params
  std::variant<double OptimizerConfig::*, bool OptimizerConfig::*, PairField> field;
  double min = -1.7e308, max = 1.7e308;  ///< numbers, inclusive
  std::string_view auto_rule = {};       ///< Hugging Face's rule for "auto"
  std::string_view alias = {};           ///< another name in optimizer.params
  std::string_view shown = {};           ///< its name in the resolved config, if that differs
  std::string_view test = "zero_tests:OptimizersOracle.EqualTorchOver50Steps";  ///< Key::test
};

inline constexpr char kOptimizerKeyTests[] =
    "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
    "train_tests:EngineKeys.OptimizerKeysMoveTheWeightsAsTheFormulaSays";
inline constexpr char kZeroOneTests[] =
    "optim_tests:OneBit.ZeroOneAdamFollowsItsIntervals "
    "zero_tests:ZeroOne.EqualsItsOracleOver60Steps";
inline constexpr char kOneBitLambTests[] =
    "optim_tests:OneBit.OneBitLambFollowsItsCoefficients "
    "zero_tests:OneBitLamb.EqualsItsOracleOver60Steps";
inline constexpr char kMuonTests[] =
    "dsconfig_tests:OptimizerTest.MuonHasTwoRates train_tests:Muon.EqualsDeepSpeedsRuns";
inline constexpr char kAdamKeyTests[] =
    "dsconfig_tests:WorkingKeys.EachValueReachesTheResolvedConfig "
    "train_tests:EngineKeys.AdamWModeAndBiasCorrectionMoveTheWeights";

/// In the order of the table. Parameters that no formula reads have rows in
/// keys_optimizer.cc.
inline constexpr OptimizerParameter kOptimizerParameters[] = {
    {.name = "lr",
     .field = &OptimizerConfig::lr,
     .min = 0,
     .auto_rule = "learningRate",
     .test = kOptimizerKeyTests},
    {.name = "betas",
     .field = PairField{&OptimizerConfig::beta1, &OptimizerConfig::beta2,
                        [](double first, double second) {
                          return first >= 0 && first < 1 && second >= 0 && second < 1;
                        },
                        "two numbers from 0 to below 1", "for example [0.9, 0.999]"},
     .auto_rule = "[adamBeta1, adamBeta2]",
     .test = kOptimizerKeyTests},
    {.name = "eps",
     .field = &OptimizerConfig::eps,
     .min = 0,
     .auto_rule = "adamEpsilon",
     .test = kOptimizerKeyTests},
    {.name = "weight_decay",
     .field = &OptimizerConfig::weight_decay,
     .min = 0,
     .auto_rule = "weightDecay",
     .test = kOptimizerKeyTests},
    {.name = "adam_w_mode",
     .field = &OptimizerConfig::decoupled_weight_decay,
     .alias = "adamw_mode",
     .shown = "decoupled_weight_decay",
     .test = kAdamKeyTests},
    {.name = "bias_correction", .field = &OptimizerConfig::bias_correction, .test = kAdamKeyTests},
    {.name = "maximize", .field = &OptimizerConfig::maximize},
    {.name = "momentum", .field = &OptimizerConfig::momentum, .min = 0},
    {.name = "dampening", .field = &OptimizerConfig::dampening},
    {.name = "nesterov", .field = &OptimizerConfig::nesterov},
    {.name = "alpha", .field = &OptimizerConfig::alpha, .min = 0},
    {.name = "centered", .field = &OptimizerConfig::centered},
    {.name = "rho", .field = &OptimizerConfig::rho, .min = 0, .max = 1},
    {.name = "lr_decay", .field = &OptimizerConfig::lr_decay, .min = 0},
    {.name = "initial_accumulator_value", .field = &OptimizerConfig::initial_accumulator, .min = 0},
    {.name = "momentum_decay", .field = &OptimizerConfig::momentum_decay, .min = 0},
    {.name = "decoupled_weight_decay", .field = &OptimizerConfig::decoupled_weight_decay},
    {.name = "lambd", .field = &OptimizerConfig::lambd},
    {.name = "t0", .field = &OptimizerConfig::t0},
    {.name = "etas",
     .field =
         PairField{&OptimizerConfig::eta_minus, &OptimizerConfig::eta_plus,
                   [](double minus, double plus) { return 0 < minus && minus < 1 && 1 < plus; },
                   "a number between 0 and 1, and one above 1"}},
    {.name = "step_sizes",
     .field = PairField{&OptimizerConfig::step_min, &OptimizerConfig::step_max,
                        [](double least, double most) { return 0 <= least && least <= most; },
                        "the smallest and the largest step"}},
    {.name = "max_coeff", .field = &OptimizerConfig::max_coeff, .min = 0},
    {.name = "min_coeff", .field = &OptimizerConfig::min_coeff, .min = 0},
    {.name = "eps_inside_sqrt", .field = &OptimizerConfig::eps_inside_sqrt},
    {.name = "coeff_beta",
     .field = &OptimizerConfig::coeff_beta,
     .min = 0,
     .max = 1,
     .test = kOneBitLambTests},
    {.name = "factor_max",
     .field = &OptimizerConfig::factor_max,
     .min = 0,
     .test = kOneBitLambTests},
    {.name = "factor_min",
     .field = &OptimizerConfig::factor_min,
     .min = 0,
     .test = kOneBitLambTests},
    {.name = "factor_threshold",
     .field = &OptimizerConfig::factor_threshold,
     .min = 0,
     .test = kOneBitLambTests},
    {.name = "freeze_step",
     .field = &OptimizerConfig::freeze_step,
     .min = 0,
     .test = "optim_tests:OneBit.OneBitAdamFreezesAfterItsStep "
             "zero_tests:OneBit.EqualsItsOracleOver60Steps"},
    {.name = "var_freeze_step",
     .field = &OptimizerConfig::var_freeze_step,
     .min = 0,
     .test = kZeroOneTests},
    {.name = "var_update_scaler",
     .field = &OptimizerConfig::var_update_scaler,
     .min = 1,
     .test = kZeroOneTests},
    {.name = "local_step_scaler",
     .field = &OptimizerConfig::local_step_scaler,
     .min = 1,
     .test = kZeroOneTests},
    {.name = "local_step_clipper",
     .field = &OptimizerConfig::local_step_clipper,
     .min = 1,
     .test = kZeroOneTests},
};

// ---- descriptors --------------------------------------------------------------------------------

/// A vector that an optimizer keeps between updates: one fp32 number per element.
struct OptimizerState {
  std::string_view name;                           ///< in checkpoints of PyTorch and DeepSpeed
  bool (*kept)(const OptimizerConfig&) = nullptr;  ///< null: always
  double OptimizerConfig::*initial = nullptr;      ///< value before the first update; null: 0
};

struct Optimizer {
  std::string_view name;  ///< as ds_config writes it
  bool any_case = false;  ///< DeepSpeed lower-cases its own names; torch's must match exactly
  /// Hugging Face's names for it (training.optim), separated by spaces.
  std::string_view trainer_names = {};
  /// The kind, and each parameter that differs from OptimizerConfig's initial value.
  OptimizerConfig defaults = {};
  /// The names that optimizer.params may have, separated by spaces: the constructor's.
  std::string_view takes = {};
  /// Those of DeepSpeed's CPU class, which offload selects; empty: the same.
  std::string_view cpu_takes = {};
  /// Those of torch's class, if "torch_adam" can select it; empty: it cannot.
  std::string_view torch_takes = {};
  double torch_weight_decay = 0;  ///< default of that class
  /// In the order in which update_span() (engine/zero/flat/update.h) takes them. An entry without a name
  /// ends the list.
  OptimizerState states[3] = {};
  bool zero_tested = false;            ///< on DeepSpeed's list of optimizers for ZeRO
  bool parameter_sums = false;         ///< an update first needs sums over whole parameters
  bool communicates = false;           ///< sends its own data, compressed (optim/one_bit.h)
  int highest_stage = 3;               ///< highest ZeRO stage
  std::string_view stage_reason = {};  ///< why not a higher one
  bool dynamic_loss_scale = false;     ///< fp16 must not use a fixed loss scale
  bool momentum_product = false;       ///< the formula has the product of all momenta so far
  bool own_momentum = false;           ///< has no momentum or betas that a schedule can cycle
  std::string_view refusal = {};       ///< why it is not built; empty if it is
};

constexpr Optimizer adam(std::string_view name, std::string_view trainer_names,
                         double torch_weight_decay) {
  return {.name = name,
          .any_case = true,
          .trainer_names = trainer_names,
          .takes =
              "lr bias_correction betas eps amsgrad weight_decay torch_adam adam_w_mode "
              "fp32_optimizer_states set_grad_none",
          .cpu_takes =
              "lr bias_correction betas eps amsgrad weight_decay torch_adam adam_w_mode "
              "fp32_optimizer_states",
          .torch_takes =
              "lr betas eps weight_decay amsgrad maximize foreach fused capturable "
              "differentiable torch_adam adam_w_mode fp32_optimizer_states",
          .torch_weight_decay = torch_weight_decay,
          .states = {{"exp_avg"}, {"exp_avg_sq"}},
          .zero_tested = true};
}

constexpr Optimizer refused(std::string_view name, bool any_case, std::string_view reason) {
  return {.name = name, .any_case = any_case, .refusal = reason};
}

inline constexpr char kNeedsBaseModel[] =
    "it needs the widths of a muP base model, which a ds_config does not have";

inline constexpr Optimizer kOptimizers[] = {
    adam("AdamW",
         "adamw_torch adamw_torch_fused adamw_torch_xla adamw_torch_npu_fused adamw_hf "
         "paged_adamw_32bit adamw_bnb_8bit adamw_8bit paged_adamw_8bit",
         1e-2),
    adam("Adam", "", 0),
    {.name = "Lamb",
     .any_case = true,
     .defaults = {.kind = OptimizerKind::Lamb},
     .takes = "lr bias_correction betas eps eps_inside_sqrt weight_decay max_coeff min_coeff "
              "amsgrad",
     .states = {{"exp_avg"}, {"exp_avg_sq"}},
     .parameter_sums = true,
     .dynamic_loss_scale = true},
    {.name = "Lion",
     .any_case = true,
     .trainer_names = "lion_32bit paged_lion_32bit",
     .defaults = {.kind = OptimizerKind::Lion},
     .takes = "lr betas weight_decay set_grad_none",
     .cpu_takes = "lr betas weight_decay fp32_optimizer_states",
     .states = {{"exp_avg"}},
     .zero_tested = true},
    {.name = "Adagrad",
     .any_case = true,
     .trainer_names = "adagrad",
     .defaults = {.kind = OptimizerKind::Adagrad, .lr = 1e-2, .eps = 1e-10},
     .takes = "lr weight_decay foreach maximize differentiable fused lr_decay "
              "initial_accumulator_value eps",
     .cpu_takes = "lr eps weight_decay amsgrad fp32_optimizer_states",
     .states = {{.name = "sum", .initial = &OptimizerConfig::initial_accumulator}},
     .zero_tested = true},
    {.name = "SGD",
     .trainer_names = "sgd",
     .defaults = {.kind = OptimizerKind::Sgd},
     .takes = "lr weight_decay foreach maximize differentiable fused momentum dampening nesterov",
     .states = {{"momentum_buffer", [](const OptimizerConfig& c) { return c.momentum != 0; }}}},
    {.name = "RMSprop",
     .trainer_names = "rmsprop",
     .defaults = {.kind = OptimizerKind::RMSprop, .lr = 1e-2},
     .takes = "lr weight_decay foreach maximize differentiable capturable alpha eps momentum "
              "centered",
     .states = {{"square_avg"},
                {"momentum_buffer", [](const OptimizerConfig& c) { return c.momentum != 0; }},
                {"grad_avg", [](const OptimizerConfig& c) { return c.centered; }}}},
    {.name = "Adadelta",
     .defaults = {.kind = OptimizerKind::Adadelta, .lr = 1.0, .eps = 1e-6},
     .takes = "lr weight_decay foreach maximize differentiable capturable rho eps",
     .states = {{"square_avg"}, {"acc_delta"}}},
    {.name = "Adamax",
     .defaults = {.kind = OptimizerKind::Adamax, .lr = 2e-3},
     .takes = "lr weight_decay foreach maximize differentiable capturable betas eps",
     .states = {{"exp_avg"}, {"exp_inf"}}},
    {.name = "NAdam",
     .defaults = {.kind = OptimizerKind::NAdam, .lr = 2e-3, .decoupled_weight_decay = false},
     .takes = "lr weight_decay foreach maximize differentiable capturable betas eps momentum_decay "
              "decoupled_weight_decay",
     .states = {{"exp_avg"}, {"exp_avg_sq"}},
     .momentum_product = true},
    {.name = "RAdam",
     .defaults = {.kind = OptimizerKind::RAdam, .decoupled_weight_decay = false},
     .takes = "lr weight_decay foreach maximize differentiable capturable betas eps "
              "decoupled_weight_decay",
     .states = {{"exp_avg"}, {"exp_avg_sq"}}},
    {.name = "ASGD",
     .defaults = {.kind = OptimizerKind::Asgd, .lr = 1e-2, .alpha = 0.75},
     .takes = "lr weight_decay foreach maximize differentiable capturable lambd alpha t0",
     .states = {{"ax"}}},
    {.name = "Rprop",
     .defaults = {.kind = OptimizerKind::Rprop, .lr = 1e-2},
     .takes = "lr etas step_sizes capturable foreach maximize differentiable",
     .states = {{"prev"}, {"step_size"}}},
    {.name = "OneBitAdam",
     .any_case = true,
     .defaults = {.kind = OptimizerKind::OneBitAdam},
     .takes = "lr freeze_step bias_correction betas eps eps_inside_sqrt weight_decay amsgrad "
              "cuda_aware comm_backend_name",
     .states = {{"exp_avg"}, {"exp_avg_sq"}},
     .zero_tested = true,
     .communicates = true,
     .highest_stage = 1,
     .stage_reason = "it compresses a whole momentum of each rank, and from stage 2 on no rank has "
                     "a whole gradient"},
    {.name = "OneBitLamb",
     .any_case = true,
     .defaults = {.kind = OptimizerKind::OneBitLamb},
     .takes = "lr freeze_step bias_correction betas eps eps_inside_sqrt weight_decay max_coeff "
              "min_coeff amsgrad cuda_aware comm_backend_name coeff_beta factor_max factor_min "
              "factor_threshold",
     .states = {{"exp_avg"}, {"exp_avg_sq"}, {"exp_avg_sq_fresh"}},
     .zero_tested = true,
     .communicates = true,
     .highest_stage = 1,
     .stage_reason = "it compresses a whole momentum of each rank, and from stage 2 on no rank has "
                     "a whole gradient",
     .dynamic_loss_scale = true},
    {.name = "ZeroOneAdam",
     .any_case = true,
     .defaults = {.kind = OptimizerKind::ZeroOneAdam},
     .takes = "lr var_freeze_step var_update_scaler local_step_scaler local_step_clipper "
              "bias_correction betas eps eps_inside_sqrt weight_decay amsgrad cuda_aware "
              "comm_backend_name",
     .states = {{"exp_avg"}, {"exp_avg_sq"}},
     .zero_tested = true,
     .communicates = true,
     .highest_stage = 1,
     .stage_reason =
         "it compresses each rank's whole gradient, and from stage 2 on no rank has one"},
    refused("MuAdam", true, kNeedsBaseModel),
    refused("MuAdamW", true, kNeedsBaseModel),
    refused("MuSGD", true, kNeedsBaseModel),
    // Its matrices have another state: matrix_states().
    {.name = "Muon",
     .any_case = true,
     .defaults =
         {.kind = OptimizerKind::Muon, .lr = 0.02, .beta2 = 0.95, .eps = 1e-10, .momentum = 0.95},
     .takes = "lr muon_lr adam_lr momentum betas eps weight_decay ns_method ns_steps per_head_muon "
              "adam_w_mode torch_adam foreach fp32_optimizer_states",
     .states = {{"exp_avg"}, {"exp_avg_sq"}},
     .zero_tested = true,
     .own_momentum = true},
    refused("LBFGS", false, "it evaluates the loss several times per step"),
    refused("SparseAdam", false, "it takes sparse gradients only; ours are dense"),
    refused("Adafactor", false,
            "its row and column statistics need whole matrices, which no rank has under ZeRO; "
            "AdamW is the nearest"),
};

// ---- readers ------------------------------------------------------------------------------------

/// By optimizer.type, built or refused; null if unknown.
const Optimizer* find_optimizer(std::string_view type);
/// By Hugging Face's name (training.optim); null if not built.
const Optimizer* find_trainer_optimizer(std::string_view optim);
/// Every name of training.optim, built or not.
const std::vector<std::string>& trainer_optimizers();
/// The descriptor of a kind; Adam's is AdamW.
const Optimizer& descriptor_of(OptimizerKind kind);
/// Whether the kind's constructor takes the parameter.
bool takes(OptimizerKind kind, std::string_view parameter);
/// The words of a list separated by spaces.
std::vector<std::string> words_of(std::string_view list);
/// The default that the key table shows: that of the first optimizer that takes the parameter.
nlohmann::json default_of(const OptimizerParameter& parameter);

/// One state of a config.
struct StateSpec {
  std::string name;
  double initial = 0;  ///< before the first update
};
/// The states per element, in the descriptor's order. Empty for plain SGD.
std::vector<StateSpec> states_of(const OptimizerConfig& config);
/// Muon's states per element of a matrix that it orthogonalizes (job/plan/muon_plan.h).
std::vector<StateSpec> matrix_states();
/// Its name in ds_config: "AdamW", "SGD", ...
std::string name_of(const OptimizerConfig& config);
/// Every hyper-parameter of the kind's formula.
nlohmann::json to_json(const OptimizerConfig& config);
nlohmann::json to_json(const MuonConfig& config);

}  // namespace dsj::dsconfig
