// What a model is asked with a row of a data file: the row's text up to its last answer, in the form
// in which it would be trained. For `dsj generate`.
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

struct Question {
  std::string asked;                  ///< for people: the last thing that the model is asked
  std::vector<int32_t> ids;           ///< what generation begins with
  std::optional<std::string> answer;  ///< the row's own, if it has one
};

/// Asks in a model's form. `tokenizer` must outlive it.
class Asker {
 public:
  /// `chat_template`: as training.chatTemplate. Whether the model has one matters only when it is
  /// used.
  Asker(Files& files, std::string model_dir, const Tokenizer& tokenizer, std::string chat_template)
      : files_(files),
        model_dir_(std::move(model_dir)),
        tokenizer_(tokenizer),
        wanted_(std::move(chat_template)) {}

  /// A row: alpaca ("output" may be missing) or chat (its last turn may be the user's). BadInput: it
  /// is of another kind, or bad; or there is no template for it.
  Result<Question> row(const nlohmann::json& row);
  /// A text that a user asks: a turn of the chat template if one is named or known, else an
  /// instruction of Stanford's prompt.
  Result<Question> text(const std::string& text);
  /// Whether the model sees the turns before the last one: it has a chat template, or one is named.
  /// BadInput: the one that is named is not there.
  Result<bool> takes_turns();
  /// The turns of a conversation, the last one the user's. Without takes_turns() that one alone, as text().
  Result<Question> conversation(const std::vector<Turn>& turns);
  /// A text that the model goes on with.
  Result<Question> raw(const std::string& text) const;

 private:
  Result<ChatTemplate> chat_template();
  Result<Question> chat(std::vector<Turn> turns, const jinja::Value& tools, bool answered);

  Files& files_;
  const std::string model_dir_;
  const Tokenizer& tokenizer_;
  const std::string wanted_;
  std::optional<Result<ChatTemplate>> found_;
};

/// The rows of a file (dataset.h names its forms), or of `text` in one of them, at most `limit`.
/// BadInput: see scan_rows(), or a row is not JSON.
Result<std::vector<nlohmann::json>> read_rows(Files& files, const std::string& path, int64_t limit);
Result<std::vector<nlohmann::json>> rows_of(const std::string& text, const std::string& name,
                                            int64_t limit);

}  // namespace dsj::data
