#include "job/layout/trained_model.h"

#include <utility>

#include "job/layout/model_config.h"
#include "job/layout/reward_model.h"

namespace dsj::layout {
namespace {

Status balance(double coefficient, const std::string& objective, ModelConfig& model) {
  if (coefficient > 0 && !model.experts.can_balance)
    return bad_input(std::string("transformers has no auxiliary loss of experts for ") +
                         (objective == "reward"
                              ? "a reward model"
                              : "model_type \"" + model.model_type +
                                    (model.experts.count > 0 ? "\"" : "\", which has no experts")),
                     "routerAuxLossCoef", "leave it out");
  model.experts.balance = coefficient;
  return {};
}

}  // namespace

Result<ModelConfig> read_trained_model(const std::string& directory, const TrainingArgs& training) {
  DSJ_TRY(ModelConfig model, read_model_config(directory));
  const std::string file = directory + "/config.json";
  const std::string objective = training.objective.value_or("sft");
  if (objective == "reward") {
    DSJ_TRY(model, as_reward_model(std::move(model), file));
  } else if (model.scored) {
    return bad_input(
        "is a reward model (architectures " + std::string(reward_class(model.model_type)) +
            "): it has a score and no lm_head",
        file, "train it with objective reward, or take the model that it was made from");
  }
  if (training.router_aux_loss_coef)
    DSJ_TRY_STATUS(balance(*training.router_aux_loss_coef, objective, model));
  return model;
}

}  // namespace dsj::layout
