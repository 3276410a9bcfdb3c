#include "job/layout/trained_model.h"

#include <utility>

#include "job/layout/model_config.h"
#include "job/layout/reward_model.h"

namespace dsj::layout {

Result<ModelConfig> read_trained_model(const std::string& directory, bool reward) {
  DSJ_TRY(ModelConfig model, read_model_config(directory));
  const std::string file = directory + "/config.json";
  if (reward) return as_reward_model(std::move(model), file);
  if (!model.scored) return model;
  return bad_input("is a reward model (architectures " +
                       std::string(reward_class(model.model_type)) +
                       "): it has a score and no lm_head",
                   file, "train it with objective reward, or take the model that it was made from");
}

Status set_balance(const TrainingArgs& training, ModelConfig& model) {
  if (!training.router_aux_loss_coef) return {};
  model.experts.balance = *training.router_aux_loss_coef;
  if (model.experts.balance == 0 || model.experts.can_balance) return {};
  std::string what = model.scored ? "a reward model" : "model_type \"" + model.model_type + "\"";
  if (model.experts.count == 0) what += ", which has no experts";
  return bad_input("transformers has no auxiliary loss of experts for " + what, "routerAuxLossCoef",
                   "leave it out");
}

}  // namespace dsj::layout
