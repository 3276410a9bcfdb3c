// A model that answers: its tokenizer, the form in which it is asked, and the generator. For
// `dsj-train generate` and `dsj-train chat`.
// Tested by: tests/run/chat_check.py
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/comm/collectives.h"
#include "engine/data/question.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "engine/train/generator.h"
#include "engine/weights/adapter.h"
#include "job/layout/model_config.h"

namespace dsj::train {

class AnsweringModel {
 public:
  /// Reads all but the weights. `directory`: a model, or an adapter whose base model is a directory
  /// here. `verb`: prints what the tokenizer notes on stderr under this name. `files` must outlive
  /// it. BadInput: what is missing or not supported.
  static Result<std::unique_ptr<AnsweringModel>> open(Files& files, const std::string& directory,
                                                      const std::string& chat_template,
                                                      const char* verb);
  /// Before the first use of generator().
  Status load_weights();

  const layout::ModelConfig& config() const { return config_; }
  /// Of the model itself, not of an adapter to it.
  const std::string& directory() const { return base_; }
  const data::Tokenizer& tokenizer() const { return *tokenizer_; }
  data::Asker& asker() { return *asker_; }
  Generator& generator() { return *generator_; }
  /// BadInput: `ids` are none, or more than the model takes. `name`: what they are.
  Status fits(std::span<const int32_t> ids, const std::string& name) const;

 private:
  explicit AnsweringModel(Files& files) : files_(files) {}

  Files& files_;
  std::string named_, base_;  ///< directories: what the user named, and the model's
  std::optional<weights::AdapterConfig> adapter_;
  layout::ModelConfig config_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::optional<data::Asker> asker_;
  std::unique_ptr<comm::Collectives> collectives_;
  std::unique_ptr<Generator> generator_;
};

/// What a verb of dsj-train that answers does around its work: kernel switches, memory, no
/// gradients, exceptions; prints an error under `verb`. Returns the exit code.
int run_answering(const char* verb, const std::function<Status()>& work);

}  // namespace dsj::train
