#include "job/dsconfig/config/objective.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace dsj::dsconfig {
namespace {

using Kind = Objective::Kind;

constexpr std::array<std::string_view, 6> kKinds = {"sft",  "pretrain", "dpo",
                                                    "orpo", "kto",      "reward"};
constexpr std::array<std::string_view, 11> kPairLosses = {
    "sigmoid",  "hinge",     "ipo",      "robust",   "exo_pair",    "nca_pair",
    "bco_pair", "sppo_hard", "apo_zero", "apo_down", "sigmoid_norm"};

constexpr std::array<std::string_view, 2> kMarkLosses = {"kto", "apo_zero_unpaired"};

/// 0 if `name` is none of the names.
template <size_t N>
size_t index_of(const std::array<std::string_view, N>& names, const std::string& name) {
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? 0 : static_cast<size_t>(found - names.begin());
}

}  // namespace

std::string name_of(Objective::Kind kind) {
  return std::string(kKinds[static_cast<size_t>(kind)]);
}

std::optional<Kind> kind_of(const std::string& name) {
  if (std::ranges::find(kKinds, name) == kKinds.end()) return std::nullopt;
  return static_cast<Kind>(index_of(kKinds, name));
}

const char* objective_of_loss(std::string_view loss) {
  if (loss == "nll" || loss == "dft") return "sft";
  return std::ranges::find(kMarkLosses, loss) == kMarkLosses.end() ? "dpo" : "kto";
}

Objective objective_of(const TrainingArgs& args) {
  Objective objective;
  objective.kind = kind_of(args.objective.value_or("sft")).value_or(Kind::Sft);
  if (objective.kind == Kind::Dpo)
    objective.loss =
        static_cast<PairLoss>(index_of(kPairLosses, args.loss_type.value_or("sigmoid")));
  if (objective.kind == Kind::Kto)
    objective.mark_loss =
        static_cast<MarkLoss>(index_of(kMarkLosses, args.loss_type.value_or("kto")));
  objective.dft = args.loss_type == "dft" && !objective.judges();
  objective.beta = args.beta.value_or(objective.beta);
  objective.label_smoothing = args.label_smoothing.value_or(0);
  objective.sft_weight = args.rpo_alpha.value_or(0);
  objective.desirable_weight = args.desirable_weight.value_or(1);
  objective.undesirable_weight = args.undesirable_weight.value_or(1);
  objective.center_rewards = args.center_rewards_coefficient.value_or(0);
  objective.max_prompt_length = args.max_prompt_length.value_or(0);
  return objective;
}

}  // namespace dsj::dsconfig
