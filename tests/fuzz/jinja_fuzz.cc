// A chat template and, after a zero byte, JSON for its variables: what is read renders or is refused, within its bounds.
#include "common/jinja/template.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dsj::jinja;
  const std::string all = dsj::fuzz::text_of(data, size);
  const size_t zero = std::min(all.find('\0'), all.size());
  const auto made = Template::parse(std::string_view(all).substr(0, zero), "t.jinja");
  if (!made) {
    dsj::fuzz::require(made.error().where.starts_with("t.jinja"));
    return 0;
  }
  Context context = {{"bos_token", Value("<s>")}};
  if (zero < all.size()) {
    const auto values = value_of_json(std::string_view(all).substr(zero + 1));
    if (values && values->dict()) {
      for (const auto& [name, value] : values->dict()->entries())
        context.emplace_back(name.bytes(), value);
    }
  }
  const RenderOptions options{.now = 1764081000, .steps_max = 200'000, .bytes_max = 1 << 20};
  const auto text = made->render(context, options), again = made->render(context, options);
  dsj::fuzz::require(text.has_value() == again.has_value());
  if (!text) {
    dsj::fuzz::require(text.error().where.starts_with("t.jinja:"));
    return 0;
  }
  dsj::fuzz::require(text->text == again->text && text->text.size() <= size_t{1} << 20);
  for (const auto& [first, end] : text->generated)
    dsj::fuzz::require(first <= end && end <= text->text.size());
  return 0;
}
