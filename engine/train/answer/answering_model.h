// A model that answers questions: tokenizer, prompt format and generator. For `dsj-train generate`
// and `dsj-train chat`.
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
#include "engine/train/answer/generator.h"
#include "engine/weights/adapter.h"
#include "job/layout/model_config.h"

namespace dsj::train {

class AnsweringModel {
 public:
  /// Reads everything but the weights. `directory`: a model, or an adapter with a local base model.
  /// `verb`: the prefix of the tokenizer's notes on stderr. `files` must outlive the model.
  /// BadInput: something is missing or not supported.
  static Result<std::unique_ptr<AnsweringModel>> open(Files& files, const std::string& directory,
                                                      const std::string& chat_template,
                                                      const char* verb);
  /// Call it before the first use of generator(). `device`: auto, cpu or cuda.
  Status load_weights(const std::string& device);

  const layout::ModelConfig& config() const { return config_; }
  /// The directory of the model itself, not of an adapter to it.
  const std::string& directory() const { return base_; }
  const data::Tokenizer& tokenizer() const { return *tokenizer_; }
  data::Asker& asker() { return *asker_; }
  Generator& generator() { return *generator_; }
  /// BadInput if `ids` is empty or longer than the model takes. `name`: what the ids are.
  Status fits(std::span<const int32_t> ids, const std::string& name) const;

 private:
  explicit AnsweringModel(Files& files) : files_(files) {}

  Files& files_;
  std::string named_, base_;  ///< directories: the user's argument, and the model's
  std::optional<weights::AdapterConfig> adapter_;
  layout::ModelConfig config_;
  std::unique_ptr<data::Tokenizer> tokenizer_;
  std::optional<data::Asker> asker_;
  std::unique_ptr<comm::Collectives> collectives_;
  std::unique_ptr<Generator> generator_;
};

/// Runs `work` of an answering verb of dsj-train with kernel switches, memory and no-gradient mode
/// set up; prints an error or exception under `verb`. Returns the exit code.
int run_answering(const char* verb, const std::function<Status()>& work);

}  // namespace dsj::train
