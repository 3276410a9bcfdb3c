#include "cli/open_rows.h"

#include <cstdlib>

#include "engine/data/row_cache.h"
#include "engine/data/tokenizer_files.h"
#include "job/plan/memory_input.h"

namespace dsj::cli {

data::DatasetOptions rows_options(const TrainingArgs& training, const layout::ModelConfig& model) {
  return {.max_seq_length = plan::longest_row(training, model),
          .vocab_size = model.vocab_size,
          .chat_template = training.chat_template.value_or("auto"),
          .chat_date = training.chat_date.value_or(""),
          .learning = data::learning_of(training.train_on_inputs.value_or(false),
                                        training.mask_history.value_or(false),
                                        training.train_on_eos.value_or("turn")),
          .cache_directory = data::row_cache_directory(
              [](const char* name) { return static_cast<const char*>(std::getenv(name)); })};
}

Result<std::unique_ptr<data::Tokenizer>> tokenizer_of(const std::string& model_directory) {
  if (!data::has_tokenizer(model_directory)) return std::unique_ptr<data::Tokenizer>();
  return data::Tokenizer::load(model_directory);
}

}  // namespace dsj::cli
