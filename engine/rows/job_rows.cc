#include "engine/rows/job_rows.h"

#include <cstdlib>

#include "engine/data/files/row_cache.h"
#include "engine/data/tokenizer/tokenizer_files.h"
#include "job/dsconfig/config/objective.h"
#include "job/plan/memory_input.h"

namespace dsj::data {

Result<DatasetOptions> job_rows_options(const TrainingArgs& training,
                                        const layout::ModelConfig& model) {
  using Kind = dsconfig::Objective::Kind;
  const auto variable = [](const char* name) {
    return static_cast<const char*>(std::getenv(name));
  };
  const auto objective = dsconfig::objective_of(training);
  DSJ_TRY(const RowSelection selection,
          selection_of(training.max_samples.value_or(0), training.mix_strategy.value_or(""),
                       training.dataset_weights.value_or(""), training.val_size.value_or(0),
                       static_cast<uint64_t>(training.seed.value_or(42))));
  return DatasetOptions{.aim = aim_of(dsconfig::name_of(objective.kind)),
                        .max_prompt_length = objective.max_prompt_length,
                        .prompt_learned = objective.kind == Kind::Orpo,
                        .scored = objective.scores(),
                        .max_seq_length = plan::longest_row(training, model),
                        .vocab_size = model.vocab_size,
                        .chat_template = training.chat_template.value_or("auto"),
                        .chat_date = training.chat_date.value_or(""),
                        .default_system = training.default_system.value_or(""),
                        .learning = learning_of(training.train_on_inputs.value_or(false),
                                                training.mask_history.value_or(false),
                                                training.train_on_eos.value_or("turn")),
                        .dataset = training.dataset.value_or(""),
                        .columns = training.dataset_columns.value_or(nullptr),
                        .selection = selection,
                        .keeps_end = training.truncation_side == "left",
                        .skips_bad_rows = training.skip_bad_rows.value_or(false),
                        .unpack_directory = unpack_directory(variable),
                        .cache_directory = row_cache_directory(variable)};
}

Result<std::unique_ptr<Tokenizer>> tokenizer_of(const std::string& model_directory) {
  if (!has_tokenizer(model_directory)) return std::unique_ptr<Tokenizer>();
  return Tokenizer::load(model_directory);
}

Status choose_eos(const TrainingArgs& training, Tokenizer* tokenizer) {
  if (!training.eos_token) return {};
  if (tokenizer == nullptr)
    return bad_input("the model has no tokenizer for this eos token", "training.eosToken");
  return tokenizer->set_eos(*training.eos_token);
}

}  // namespace dsj::data
