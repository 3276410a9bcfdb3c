#include "engine/train/answer/answering_model.h"

#include <c10/core/GradMode.h>

#include <cstdio>

#include "engine/comm/single.h"
#include "engine/memory/counting_allocator.h"
#include "engine/train/inputs/accelerator.h"
#include "engine/train/inputs/rank_env.h"
#include "engine/weights/tensor_check.h"
#include "engine/weights/weight_source.h"
#include "job/contract.h"
#include "job/layout/lora.h"

namespace dsj::train {

Result<std::unique_ptr<AnsweringModel>> AnsweringModel::open(Files& files,
                                                             const std::string& directory,
                                                             const std::string& chat_template,
                                                             const char* verb) {
  auto model = std::unique_ptr<AnsweringModel>(new AnsweringModel(files));
  model->named_ = model->base_ = directory;
  DSJ_TRY(const bool is_adapter, files.exists(path_join(directory, weights::kAdapterConfigFile)));
  if (is_adapter) {
    DSJ_TRY(model->adapter_, weights::read_adapter_config(files, directory));
    model->base_ = model->adapter_->base;
    DSJ_TRY(const bool there, files.exists(path_join(model->base_, "config.json")));
    if (!there)
      return bad_input("the base model \"" + model->base_ + "\" is not a directory here", directory,
                       "dsj merge --base DIR --adapter " + directory + " -o OUT makes one model");
  }
  DSJ_TRY(model->config_, layout::read_model_config(model->base_));
  if (model->config_.scored)
    return bad_input("is a reward model: it scores answers and generates none", model->base_,
                     "transformers' AutoModelForSequenceClassification reads it");
  DSJ_TRY(model->tokenizer_, data::Tokenizer::load(model->base_));
  for (const std::string& note : model->tokenizer_->notes())
    std::fprintf(stderr, "%s: %s\n", verb, note.c_str());
  model->asker_.emplace(files, model->base_, *model->tokenizer_, chat_template);
  return model;
}

Status AnsweringModel::load_weights(const std::string& device) {
  TrainingArgs wanted;
  if (device != "auto") wanted.device = device;
  DSJ_TRY(const Place place, choose_place(wanted, 0));
  collectives_ = comm::make_single(place.device);
  DSJ_TRY(const auto source, weights::WeightSource::open(files_, base_));
  if (!adapter_) {
    generator_ = std::make_unique<Generator>(config_, *collectives_, std::nullopt, place.device);
    return generator_->load(source);
  }
  DSJ_TRY(const auto adapter, weights::open_adapter_weights(files_, named_));
  DSJ_TRY(const auto lora, layout::resolve_lora(config_, weights::lora_of(*adapter_, adapter)));
  if (const auto tied = layout::tied_pair(config_, lora))
    DSJ_TRY_STATUS(weights::check_tied_copies(adapter, *tied));
  generator_ = std::make_unique<Generator>(config_, *collectives_, lora, place.device);
  return generator_->load(source, &adapter);
}

Status AnsweringModel::fits(std::span<const int32_t> ids, const std::string& name) const {
  const auto length = std::ssize(ids);
  if (length >= 1 && length <= config_.longest_sequence()) return {};
  return bad_input(name + " has " + std::to_string(length) + " tokens, the model takes 1 to " +
                   std::to_string(config_.longest_sequence()));
}

int run_answering(const char* verb, const std::function<Status()>& work) {
  if (const auto switches = check_kernel_switches(); !switches) {
    std::fprintf(stderr, "%s: %s\n", verb, switches.error().to_string().c_str());
    return contract::kExitBadInput;
  }
  memory::install();
  c10::AutoGradMode no_autograd(false);
  try {
    if (const auto done = work(); !done) {
      std::fprintf(stderr, "%s: %s\n", verb, done.error().to_string().c_str());
      return done.error().kind == ErrorKind::BadInput ? contract::kExitBadInput
                                                      : contract::kExitEnvironment;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", verb, error.what());
    return contract::kExitFailed;
  }
  return contract::kExitDone;
}

}  // namespace dsj::train
