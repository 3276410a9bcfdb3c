// A chat template: a Jinja program, rendered to the text that transformers' apply_chat_template makes
// of it (Jinja2 3.1 with trim_blocks and lstrip_blocks, its immutable sandbox, {% break %},
// {% continue %}, {% generation %}, raise_exception, strftime_now, and tojson as json.dumps writes).
//
// What Jinja2 has and this has not is refused by name, never rendered otherwise: {% include %} and
// its kin, whole numbers beyond 64 bits in sums, rare filters (filters.h) and methods. A template
// reads no file, and each rendering is bounded in steps, depth and bytes.
//
//   auto made = Template::parse(text, "chat_template.jinja");
//   auto text = made->render({{"messages", *value_of_json(messages)}}, {});
//
// Threads: a Template is never changed; several may render at once.
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
  /// `file` names the template in errors. BadInput with the line: not UTF-8, or not such a template.
  static Result<Template> parse(std::string_view text, std::string file);

  /// BadInput with the line: what the template refuses (raise_exception) or does wrong.
  Result<Rendered> render(const Context& context, RenderOptions options) const;

  /// Whether {% generation %} stands in it.
  bool has_generation() const;
  /// Whether it reads a variable of this name.
  bool names(std::string_view name) const;
  const std::string& file() const { return file_; }

 private:
  Template(std::shared_ptr<const Syntax> syntax, std::string file)
      : syntax_(std::move(syntax)), file_(std::move(file)) {}
  std::shared_ptr<const Syntax> syntax_;
  std::string file_;
};

}  // namespace dsj::jinja
