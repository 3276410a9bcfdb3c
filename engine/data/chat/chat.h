// Conversations as the model sees them: {"messages": [{"role", "content"}...]}, or ShareGPT's
// {"conversations": [{"from", "value"}...]}, rendered by a chat template; and which parts are
// learned from: the assistant's turns with the token that ends each, but for those that their row
// leaves out (Turn::learned).
//
// A chat template is a Jinja program (common/jinja): the model's own, a file, or one named here.
//
//   name       form                                     a row without a system message gets
//   chatml     <|im_start|>role\ncontent<|im_end|>\n    none
//   qwen       the same (Qwen1.5, Qwen2)                "You are a helpful assistant."
//   qwen2.5    the same                                 Qwen2.5's own system message
//   llama2     <s>[INST] user [/INST] answer </s>       none
//   llama3     <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>    none
//   mistral    <s>[INST] user [/INST]answer</s>         none
//
// llama2 puts a system message into the first user turn; mistral refuses one.
//
// What is learned: the template's {% generation %} blocks. A template without them is rendered up to
// each answer, with the generation prompt, and up to its end; both must begin the whole text, as far
// as answers.cc says. White space behind the answer's last special token is not learned.
//
// A token that begins before an answer and reaches into it is learned where {% generation %} marks
// the answer, as by transformers' mask, and else not, as by TRL's prompts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/files.h"
#include "common/jinja/template.h"
#include "common/result.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace dsj::data {

struct Turn {
  std::string role, content;
  bool learned = false;   ///< the assistant's, unless its row says no
  jinja::Value fields{};  ///< the turn as its row has it; undefined: role and content are all
};

struct ChatPiece {
  std::string text;
  bool learned = false;
  bool joins = false;  ///< learned together with a token that begins before it and reaches into it
};

/// A template with what it reads of the tokenizer. Copies share it; several threads may use it.
class ChatTemplate {
 public:
  /// None.
  ChatTemplate() = default;
  /// `source`: the program. `name`: of it, in errors. BadInput: it is none.
  static Result<ChatTemplate> parse(const std::string& source, std::string name,
                                    jinja::Context tokens, std::vector<std::string> specials,
                                    int64_t now);
  /// The same number for the same text of the same conversations; 0: none.
  int64_t key() const { return key_; }
  bool operator==(const ChatTemplate& other) const { return key_ == other.key_; }

  /// `tools`: a list, or none. BadInput: what the template refuses, with its line.
  Result<jinja::Rendered> render(std::span<const Turn> turns, const jinja::Value& tools,
                                 bool add_generation_prompt) const;
  bool has_generation() const { return parts_->program.has_generation(); }
  /// Whether its text has this word.
  bool mentions(std::string_view word) const {
    return parts_->source.find(word) != std::string::npos;
  }
  const std::vector<std::string>& specials() const { return parts_->specials; }
  const std::string& name() const { return parts_->program.file(); }
  /// Its program. Not of none.
  const std::string& source() const { return parts_->source; }
  /// For rows with tools, where the model has another template for those.
  void set_for_tools(const ChatTemplate& other) { for_tools_ = other.parts_; }
  ChatTemplate for_tools() const;

 private:
  struct Parts {
    jinja::Template program;
    std::string source;
    jinja::Context tokens;
    std::vector<std::string> specials;
    int64_t now = 0;
  };
  std::shared_ptr<const Parts> parts_, for_tools_;
  int64_t key_ = 0;
};

/// The template that `wanted` names: one of the above; or is itself (a text with {% or {{); or a file (a
/// path with / or ending in .jinja);
/// else the model's own: chat_template.jinja, else the chat_template of chat_template.json or
/// tokenizer_config.json, of several the one named default, for rows with tools tool_use. strftime_now
/// shows `date` (YYYY-MM-DD); if that is empty, SOURCE_DATE_EPOCH if the environment has it, else the
/// day of the start. BadInput: there is none, the tokenizer lacks a token that a template named here
/// is made of, or `date` is no day.
Result<ChatTemplate> find_chat_template(Files& files, const std::string& model_dir,
                                        const std::string& wanted, const Tokenizer& tokenizer,
                                        const std::string& date = {});

/// The pieces, in order, are the whole text. BadInput: the template has no form for these turns, or
/// what is learned of an answer cannot be known.
Result<std::vector<ChatPiece>> render_chat(const ChatTemplate& chat_template,
                                           std::span<const Turn> turns,
                                           const jinja::Value& tools = jinja::Value::none());

/// The same text, without a word on what is learned.
Result<std::string> render_text(const ChatTemplate& chat_template, std::span<const Turn> turns,
                                const jinja::Value& tools = jinja::Value::none());

/// The text up to where the assistant answers the last turn.
Result<std::string> render_question(const ChatTemplate& chat_template, std::span<const Turn> turns,
                                    const jinja::Value& tools = jinja::Value::none());

}  // namespace dsj::data
