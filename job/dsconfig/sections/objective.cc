// The objective's arguments: which of them can be combined, and with which keys of ds_config.
#include "job/dsconfig/config/objective.h"

#include <string>
#include <string_view>

#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using Kind = Objective::Kind;

namespace {

/// Refuses arguments that act only with other objectives.
class OnlyWith {
 public:
  OnlyWith(const std::string& objective, Report& out) : objective_(objective), out_(out) {}
  void refuse(bool given, const char* name, const std::string& acts_with) {
    if (given)
      out_.error(std::string("training.") + name,
                 "acts with objective " + acts_with + ", and the objective is " + objective_,
                 "leave it out, or set training.objective");
  }

 private:
  const std::string& objective_;
  Report& out_;
};

void check_pair_loss(const TrainingArgs& args, Report& out) {
  const std::string loss = args.loss_type.value_or("sigmoid");
  const double smoothing = args.label_smoothing.value_or(0);
  if (loss == "exo_pair" && smoothing == 0)
    out.error("training.labelSmoothing", "lossType exo_pair needs one above 0", "write 1e-3");
  const bool smooths = loss == "sigmoid" || loss == "robust" || loss == "exo_pair";
  if (smoothing > 0 && !smooths)
    out.error("training.labelSmoothing", "acts with lossType sigmoid, robust and exo_pair only",
              "leave one of the two out");
}

}  // namespace

void check_objective(const TrainingArgs& args, Report& out) {
  const std::string name = args.objective.value_or("sft");
  const auto known = kind_of(name);
  if (!known) return;  // check_arguments() reports it
  const Kind kind = *known;
  const bool scores = kind == Kind::Reward;
  const bool compares = kind == Kind::Dpo || kind == Kind::Orpo || kind == Kind::Kto;
  const bool judges = compares || scores;
  OnlyWith only(name, out);
  only.refuse(args.beta && !compares, "beta", "dpo, orpo or kto");
  only.refuse(args.max_prompt_length && !compares, "maxPromptLength", "dpo, orpo or kto");
  const char* of_loss = args.loss_type ? objective_of_loss(*args.loss_type) : name.c_str();
  // pretrain has the losses nll and dft, too.
  if (name != of_loss && !(kind == Kind::Pretrain && of_loss == std::string_view("sft")))
    out.error("training.lossType",
              "\"" + *args.loss_type + "\" is a loss of objective " + of_loss +
                  ", and the objective is " + name,
              "leave it out, or set training.objective");
  only.refuse(args.label_smoothing.value_or(0) > 0 && kind != Kind::Dpo, "labelSmoothing", "dpo");
  only.refuse(args.rpo_alpha.value_or(0) > 0 && kind != Kind::Dpo, "rpoAlpha", "dpo");
  only.refuse(args.center_rewards_coefficient.value_or(0) > 0 && !scores,
              "centerRewardsCoefficient", "reward");
  only.refuse(args.desirable_weight && kind != Kind::Kto, "desirableWeight", "kto");
  only.refuse(args.undesirable_weight && kind != Kind::Kto, "undesirableWeight", "kto");
  if (kind == Kind::Dpo) check_pair_loss(args, out);
  if (args.loss_type == "dft" && args.label_smoothing_factor.value_or(0) > 0)
    out.error("training.labelSmoothingFactor", "does not go with lossType dft",
              "leave one of the two out");
  if (!judges) return;
  const auto not_with = [&](bool given, const char* field, const char* why) {
    if (given)
      out.error(std::string("training.") + field,
                "cannot be combined with objective " + name + ": " + why, "leave it out");
  };
  not_with(args.packing.value_or(false), "packing", "rows are compared by their answers");
  not_with(args.loss_normalization && *args.loss_normalization != "micro-batch",
           "lossNormalization", "the loss is the mean of the micro-batches' rows");
  not_with(args.train_on_inputs.value_or(false), "trainOnInputs", "only answers are compared");
  not_with(args.mask_history.value_or(false), "maskHistory",
           "the text after the prompt is compared");
  not_with(args.train_on_eos && *args.train_on_eos != "turn", "trainOnEos",
           "answers are compared with the token that ends them");
  not_with(args.label_smoothing_factor.value_or(0) > 0, "labelSmoothingFactor",
           "it smooths the loss of each token");
  if (scores) {
    not_with(args.truncation_side && *args.truncation_side != "right", "truncationSide",
             "rows longer than maxSeqLength are left out, not cut");
    not_with(args.val_size.value_or(0) > 0, "valSize",
             "rows that are too long are left out after the split");
    not_with(args.neftune_noise_alpha.value_or(0) > 0, "neftuneNoiseAlpha",
             "a score is read without noise");
  }
  if (!args.learning_rate)
    out.warning(
        "training.learningRate",
        "it is Trainer's default, 5e-5, because neither the arguments nor the ds_config set "
        "it; TRL's default of " +
            name + " is " + (scores ? "1e-4" : "1e-6"),
        "write it");
}

void check_objective_rows(const Source& in, const ResolvedConfig& config, Report& out) {
  const std::string name = in.args.objective.value_or("sft");
  if (name == "sft" || name == "pretrain") return;
  const auto& found = config.data_efficiency;
  const char* shortens = found.row_length   ? "curriculum learning shortens rows"
                         : found.random_ltd ? "random-LTD leaves tokens out of layers"
                                            : nullptr;
  if (shortens != nullptr)
    out.error("training.objective",
              std::string(shortens) + ", and objective " + name + " compares whole answers",
              "switch one of them off");
}

}  // namespace dsj::dsconfig
