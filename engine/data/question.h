// Asks a model with a row of a data file: the row's text up to its last answer, in the form in
// which it would be trained. For `dsj generate`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/chat/chat.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace dsj::data {

struct Conversation;

struct Question {
  std::string asked;                  ///< for display: the last question
  std::vector<int32_t> ids;           ///< the prompt of the generation
  std::optional<std::string> answer;  ///< the row's own, if it has one
};

/// Builds questions in a model's form. `tokenizer` must outlive it.
class Asker {
 public:
  /// `chat_template`: as training.chatTemplate. Whether the model has one is checked when it is
  /// needed.
  Asker(Files& files, std::string model_dir, const Tokenizer& tokenizer, std::string chat_template)
      : files_(files),
        model_dir_(std::move(model_dir)),
        tokenizer_(tokenizer),
        wanted_(std::move(chat_template)) {}

  /// For a row: alpaca ("output" may be missing) or chat (its last turn may be the user's).
  /// Errors: BadInput if it is of another kind or bad, or if there is no template for it.
  Result<Question> row(const nlohmann::json& row);
  /// For a user's text: a turn of the chat template if one is named or known, else an
  /// instruction of Stanford's prompt.
  Result<Question> text(const std::string& text);
  /// Whether the model sees the turns before the last one: it has a chat template, or one is
  /// named. Errors: BadInput if the named template is missing.
  Result<bool> takes_turns();
  /// For a conversation whose last turn is the user's. Without takes_turns() only that turn, as
  /// text().
  Result<Question> conversation(const std::vector<Turn>& turns);
  /// For a text that the model continues.
  Result<Question> raw(const std::string& text) const;

 private:
  Result<ChatTemplate> chat_template();
  Result<Question> chat(Conversation told, bool answered);

  Files& files_;
  const std::string model_dir_;
  const Tokenizer& tokenizer_;
  const std::string wanted_;
  std::optional<Result<ChatTemplate>> found_;
};

/// The rows of a file (dataset.h lists its forms), or of `text` in one of these forms, at most
/// `limit`. Errors: BadInput as scan_rows(), or if a row is not JSON.
Result<std::vector<nlohmann::json>> read_rows(Files& files, const std::string& path, int64_t limit);
Result<std::vector<nlohmann::json>> rows_of(const std::string& text, const std::string& name,
                                            int64_t limit);

}  // namespace dsj::data
