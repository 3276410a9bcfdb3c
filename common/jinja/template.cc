#include "common/jinja/template.h"

#include <algorithm>

#include "common/jinja/evaluator.h"
#include "common/jinja/parser.h"
#include "common/text.h"

namespace dsj::jinja {
namespace {

constexpr size_t kTemplateBytesMax = 4 << 20;

}  // namespace

Result<Template> Template::parse(std::string_view text, std::string file) {
  if (text.size() > kTemplateBytesMax) return bad_input("the template is longer than 4 MB", file);
  if (const size_t bad = text::invalid_utf8(text); bad != std::string_view::npos) {
    return bad_input("the template is not UTF-8 at byte " + std::to_string(bad), file);
  }
  try {
    auto syntax = std::make_shared<const Syntax>(jinja::parse(tokenize(text)));
    return Template(std::move(syntax), std::move(file));
  } catch (const SyntaxError& error) {
    return bad_input(error.message, file + ":" + std::to_string(error.line));
  }
}

Result<Rendered> Template::render(const Context& context, RenderOptions options) const {
  int line = 0;
  try {
    return evaluate(*syntax_, context, options, line);
  } catch (const TemplateError& error) {
    return bad_input(error.message, file_ + ":" + std::to_string(line));
  }
}

bool Template::has_generation() const {
  return syntax_->has_generation;
}

bool Template::names(std::string_view name) const {
  return std::ranges::find(syntax_->names, name) != syntax_->names.end();
}

}  // namespace dsj::jinja
