// Conversations as the model sees them: {"messages": [{"role", "content"}...]}, or ShareGPT's
// {"conversations": [{"from", "value"}...]}, rendered by a chat template. The learned parts are
// the assistant's turns with the token that ends each, except turns that their row excludes
// (Turn::learned).
//
// A chat template is a Jinja program (common/jinja): the model's own, a file, or one of these:
//
//   name       form                                     default system message
//   chatml     <|im_start|>role\ncontent<|im_end|>\n    none
//   qwen       the same (Qwen1.5, Qwen2)                "You are a helpful assistant."
//   qwen2.5    the same                                 Qwen2.5's own system message
//   llama2     <s>[INST] user [/INST] answer </s>       none
//   llama3     <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|>    none
//   mistral    <s>[INST] user [/INST]answer</s>         none
//
// llama2 puts a system message into the first user turn; mistral refuses one.
//
// Learned are the template's {% generation %} blocks. A template without them is rendered up to
// each answer, with the generation prompt, and up to its end; both must be prefixes of the
// whole text (answers.cc has the details). White space after the answer's last special token is
// not learned.
//
// OpenAI's rows have the arguments of a call as a JSON text. A template that would write it as JSON
// once more (| tojson), or refuses it, gets the object; any other template gets the text.
//
// A token that begins before an answer and extends into it is learned if {% generation %} marks
// the answer, as in transformers' mask; otherwise it is not, as in TRL.
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
  bool learned = false;   ///< an assistant's turn that the row does not exclude
  jinja::Value fields{};  ///< the turn's fields in its row; undefined if only role and content
};

struct ChatPiece {
  std::string text;
  bool learned = false;
  bool joins = false;  ///< a token that begins before it and extends into it is learned, too
};

/// A template with the tokens that it reads. Copies share it; several threads may use it.
class ChatTemplate {
 public:
  /// No template.
  ChatTemplate() = default;
  /// `source`: the program; `name`: for errors. Errors: BadInput if it is not a Jinja program.
  static Result<ChatTemplate> parse(const std::string& source, std::string name,
                                    jinja::Context tokens, std::vector<std::string> specials,
                                    int64_t now);
  /// Equal for templates that render the same conversations alike; 0 if there is no template.
  int64_t key() const { return key_; }
  bool operator==(const ChatTemplate& other) const { return key_ == other.key_; }

  /// `tools`: a list, or none. Errors: BadInput if the template refuses the turns, with its line.
  Result<jinja::Rendered> render(std::span<const Turn> turns, const jinja::Value& tools,
                                 bool add_generation_prompt) const;
  bool has_generation() const { return parts_->program.has_generation(); }
  /// Whether its source has this word.
  bool mentions(std::string_view word) const {
    return parts_->source.find(word) != std::string::npos;
  }
  const std::vector<std::string>& specials() const { return parts_->specials; }
  const std::string& name() const { return parts_->program.file(); }
  /// Its program. Precondition: there is a template.
  const std::string& source() const { return parts_->source; }
  /// Sets the template for rows with tools, if the model has a separate one.
  void set_for_tools(const ChatTemplate& other) { for_tools_ = other.parts_; }
  ChatTemplate for_tools() const;
  /// The same with more variables, of a dict: TRL's chat_template_kwargs. Those that render() sets
  /// itself stay.
  ChatTemplate with(const jinja::Value& variables) const;

 private:
  struct Parts {
    jinja::Template program;
    std::string source;
    jinja::Context tokens;
    std::vector<std::string> specials;
    int64_t now = 0;
    bool needs_objects = false;
  };
  std::shared_ptr<const Parts> parts_, for_tools_;
  jinja::Context more_;
  int64_t key_ = 0;
};

/// The template that `wanted` names: one of the names above, the template itself (a text with
/// {% or {{), or a file (a path with / or ending in .jinja). If `wanted` is empty, the model's
/// own: chat_template.jinja, else the chat_template of chat_template.json or
/// tokenizer_config.json; of several, default, and tool_use for rows with tools. strftime_now
/// returns `date` (YYYY-MM-DD), else SOURCE_DATE_EPOCH of the environment, else the day of the
/// start. Errors: BadInput if there is no template, if the tokenizer lacks a token that a
/// template named here needs, or if `date` is not a day.
Result<ChatTemplate> find_chat_template(Files& files, const std::string& model_dir,
                                        const std::string& wanted, const Tokenizer& tokenizer,
                                        const std::string& date = {});

/// The pieces in order are the whole text. Errors: BadInput if the template does not support
/// these turns, or if the learned part of an answer cannot be determined.
Result<std::vector<ChatPiece>> render_chat(const ChatTemplate& chat_template,
                                           std::span<const Turn> turns,
                                           const jinja::Value& tools = jinja::Value::none());

/// The same text, without the learned parts.
Result<std::string> render_text(const ChatTemplate& chat_template, std::span<const Turn> turns,
                                const jinja::Value& tools = jinja::Value::none());

/// The text up to the start of the assistant's answer to the last turn.
Result<std::string> render_question(const ChatTemplate& chat_template, std::span<const Turn> turns,
                                    const jinja::Value& tools = jinja::Value::none());

}  // namespace dsj::data
