// A chat template: a Jinja program, rendered to the same text as transformers' apply_chat_template
// makes (Jinja2 3.1 with trim_blocks and lstrip_blocks, its immutable sandbox, {% break %}, {%
// continue %}, {% generation %}, raise_exception, strftime_now, and tojson as json.dumps).
//
// Features of Jinja2 that are not built are refused by name, never rendered differently: {% include
// %} and similar tags, sums of integers beyond 64 bits, rare filters (filters.h) and methods. A
// template reads no file, and each rendering is bounded in steps, depth and bytes.
//
//   auto made = Template::parse(text, "chat_template.jinja");
//   auto text = made->render({{"messages", *value_of_json(messages)}}, {});
//
// Threads: a Template is immutable; several threads may render it at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/jinja/rendering.h"
#include "common/result.h"

namespace dsj::jinja {

struct Syntax;

class Template {
 public:
  /// `file` names the template in errors. Errors: BadInput with the line if not UTF-8 or not valid.
  static Result<Template> parse(std::string_view text, std::string file);

  /// Errors: BadInput with the line if the template raises an exception or fails.
  Result<Rendered> render(const Context& context, RenderOptions options) const;

  /// Whether it contains {% generation %}.
  bool has_generation() const;
  /// Whether it uses a variable of this name.
  bool names(std::string_view name) const;
  const std::string& file() const { return file_; }

 private:
  Template(std::shared_ptr<const Syntax> syntax, std::string file)
      : syntax_(std::move(syntax)), file_(std::move(file)) {}
  std::shared_ptr<const Syntax> syntax_;
  std::string file_;
};

}  // namespace dsj::jinja
