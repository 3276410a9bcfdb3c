#include "cli/check/open_rows.h"

#include <cstdlib>

#include "engine/data/files/row_cache.h"
#include "engine/data/tokenizer/tokenizer_files.h"
#include "job/plan/memory_input.h"

namespace dsj::cli {

Result<data::DatasetOptions> rows_options(const TrainingArgs& training,
                                          const layout::ModelConfig& model) {
  const auto variable = [](const char* name) {
    return static_cast<const char*>(std::getenv(name));
  };
  DSJ_TRY(const data::RowSelection selection,
          data::selection_of(training.max_samples.value_or(0), training.mix_strategy.value_or(""),
                             training.dataset_weights.value_or(""), training.val_size.value_or(0),
                             static_cast<uint64_t>(training.seed.value_or(42))));
  return data::DatasetOptions{
      .aim = data::aim_of(training.objective.value_or("sft")),
      .max_prompt_length = training.max_prompt_length.value_or(0),
      .prompt_learned = training.objective == "orpo",
      .scored = training.objective == "reward",
      .max_seq_length = plan::longest_row(training, model),
      .vocab_size = model.vocab_size,
      .chat_template = training.chat_template.value_or("auto"),
      .chat_date = training.chat_date.value_or(""),
      .learning = data::learning_of(training.train_on_inputs.value_or(false),
                                    training.mask_history.value_or(false),
                                    training.train_on_eos.value_or("turn")),
      .dataset = training.dataset.value_or(""),
      .columns = training.dataset_columns.value_or(nullptr),
      .selection = selection,
      .keeps_end = training.truncation_side == "left",
      .skips_bad_rows = training.skip_bad_rows.value_or(false),
      .unpack_directory = data::unpack_directory(variable),
      .cache_directory = data::row_cache_directory(variable)};
}

Result<std::unique_ptr<data::Tokenizer>> tokenizer_of(const std::string& model_directory) {
  if (!data::has_tokenizer(model_directory)) return std::unique_ptr<data::Tokenizer>();
  return data::Tokenizer::load(model_directory);
}

}  // namespace dsj::cli
