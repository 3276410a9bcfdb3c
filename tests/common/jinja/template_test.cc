// Templates render as Jinja2 renders them (fixtures/jinja_oracle.json, made by tests/oracle/jinja_oracle.py); what a template
// does wrong is said with its line; no template escapes its bounds.
#include "common/jinja/template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "test_paths.h"

namespace dsj::jinja {
namespace {

using nlohmann::json;

Result<std::string> render(std::string_view text, std::string_view context = "{}",
                           RenderOptions options = {}) {
  const auto made = Template::parse(text, "t.jinja");
  if (!made) return std::unexpected(made.error());
  Context variables;
  const auto values = value_of_json(context);
  if (!values) return std::unexpected(values.error());
  for (const auto& [name, value] : values->dict()->entries())
    variables.emplace_back(name.bytes(), value);
  const auto rendered = made->render(variables, options);
  if (!rendered) return std::unexpected(rendered.error());
  return rendered->text;
}

std::string refusal(std::string_view text, std::string_view context = "{}",
                    RenderOptions options = {}) {
  const auto made = render(text, context, options);
  return made ? "rendered: " + *made : made.error().to_string();
}

TEST(Template, RendersAsJinja2) {
  std::ifstream file(DSJ_SOURCE_DIR "/tests/common/jinja/fixtures/jinja_oracle.json");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const json oracle = json::parse(text);
  Context context;
  const auto all = value_of_json(text);
  ASSERT_TRUE(all) << all.error().to_string();
  for (const auto& [name, value] : all->dict()->named("context")->dict()->entries())
    context.emplace_back(name.bytes(), value);
  ASSERT_GT(oracle["cases"].size(), 700u);
  size_t refused = 0;
  for (const json& one : oracle["cases"]) {
    const std::string source = one["template"];
    const auto made = Template::parse(source, "t.jinja");
    const auto rendered = made ? made->render(context, {.now = oracle["now"].get<int64_t>()})
                               : Result<Rendered>(std::unexpected(made.error()));
    if (one.contains("refused")) {
      ++refused;
      EXPECT_FALSE(rendered) << source << "\n  rendered " << rendered->text;
      continue;
    }
    ASSERT_TRUE(rendered) << source << "\n  " << rendered.error().to_string();
    EXPECT_EQ(rendered->text, one["text"].get<std::string>()) << source;
    EXPECT_EQ(json(rendered->generated).empty() ? json::array() : json(rendered->generated),
              one["generated"])
        << source;
  }
  EXPECT_GT(refused, 100u);
}

TEST(Template, ErrorsNameTheLine) {
  EXPECT_EQ(refusal("a\n{% if x %}\n{{ y.z }}\n{% endif %}", R"({"x": 1})"),
            "t.jinja:3: 'y' is undefined");
  EXPECT_EQ(refusal("a\n\n{{ raise_exception('no ' ~ 1) }}"), "t.jinja:3: no 1");
  EXPECT_EQ(refusal("a\n{% nope %}"), "t.jinja:2: unknown tag {% nope %}");
  EXPECT_EQ(refusal("a\n{% for x in y %}\n"), "t.jinja:2: the tag has no {% endfor %}");
  EXPECT_EQ(refusal("{% macro f(x) %}\n\n{{ x.y.z }}{% endmacro %}\n{{ f({}) }}"),
            "t.jinja:3: 'dict object' has no attribute 'y'");
  EXPECT_EQ(refusal("{{ 'a\xff' }}"), "t.jinja: the template is not UTF-8 at byte 5");
}

TEST(Template, WhatIsNotBuiltIsRefusedByName) {
  for (const char* tag : {"include 'x'", "import 'x' as y", "from 'x' import y", "extends 'x'",
                          "block a", "autoescape true"}) {
    EXPECT_NE(refusal(std::string("{% ") + tag + " %}").find("is not built"), std::string::npos)
        << tag;
  }
  EXPECT_NE(refusal("{{ 'a'.casefold() }}").find("the method casefold of str is not built"),
            std::string::npos);
  EXPECT_NE(refusal("{{ 'a'|urlize }}").find("there is no filter 'urlize'"), std::string::npos);
  EXPECT_NE(refusal("{{ 9223372036854775807 + 1 }}").find("beyond 64 bits"), std::string::npos);
  EXPECT_NE(refusal("{{ range }}").find("a value of type function range has no text"),
            std::string::npos);
  EXPECT_NE(refusal("{% macro m() %}{% generation %}a{% endgeneration %}{% endmacro %}{{ m() }}")
                .find("{% generation %} is in a macro"),
            std::string::npos);
}

TEST(Template, ReadsNoFileAndChangesNoValue) {
  EXPECT_NE(refusal("{{ x.append(1) }}", R"({"x": []})")
                .find("access to attribute 'append' of 'list' object is unsafe"),
            std::string::npos);
  EXPECT_EQ(*render("{{ x.__class__ }}", R"({"x": []})"), "");
}

TEST(Template, StaysInsideItsBounds) {
  const RenderOptions small{.steps_max = 100'000, .bytes_max = 10'000};
  EXPECT_NE(
      refusal("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
              "{}", small)
          .find("too many steps"),
      std::string::npos);
  EXPECT_NE(refusal("{{ 'a' * 100000 }}", "{}", small).find("at most 10000 are allowed"),
            std::string::npos);
  EXPECT_NE(refusal("{% for a in range(9999) %}aaaaaaaaaa{% endfor %}", "{}", small)
                .find("grows beyond 10000 bytes"),
            std::string::npos);
  EXPECT_NE(
      refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").find("calls itself too deep"),
      std::string::npos);
  EXPECT_NE(refusal("{% set ns = namespace(x=1) %}{% for a in range(999) %}{% set ns.x = [ns.x] "
                    "%}{% endfor %}")
                .find("nest deeper"),
            std::string::npos);
  EXPECT_NE(refusal("{% set ns = namespace(x=1) %}{% for a in range(99) %}{% set ns.x = [ns.x, "
                    "ns.x] %}{% endfor %}{{ ns.x }}")
                .find("grows too large"),
            std::string::npos);
  EXPECT_NE(refusal("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}")
                .find("nests deeper"),
            std::string::npos);
  EXPECT_NE(refusal("{{ 1" +
                    [] {
                      std::string all;
                      for (int i = 0; i < 5000; ++i) all += " + 1";
                      return all;
                    }() +
                    " }}")
                .find("more than 1000 parts"),
            std::string::npos);
  EXPECT_EQ(*render("{% set ns = namespace() %}{% set ns.self = ns %}ok"), "ok")
      << "a circle is freed";
}

TEST(Template, NumbersOfJsonStayWhole) {
  const char* context =
      R"({"a": 123456789012345678901234567890, "b": 18446744073709551615, "c": 1e2, "d": 1.10, "e": -0.0})";
  EXPECT_EQ(*render("{{ a }} {{ b }} {{ c }} {{ d }} {{ e }} {{ [a, c]|tojson }}", context),
            "123456789012345678901234567890 18446744073709551615 100.0 1.1 -0.0 "
            "[123456789012345678901234567890, 100.0]");
  EXPECT_EQ(*render("{{ x|tojson }}", R"({"x": {"z": 1, "a": 2, "z": 3}})"), R"({"z": 3, "a": 2})")
      << "keys keep their order";
}

TEST(Template, SaysWhatItReads) {
  const auto made = Template::parse("{% generation %}{{ tools }}{% endgeneration %}", "t");
  ASSERT_TRUE(made);
  EXPECT_TRUE(made->has_generation());
  EXPECT_TRUE(made->names("tools"));
  EXPECT_FALSE(made->names("documents"));
  EXPECT_FALSE(Template::parse("{{ generation }}", "t")->has_generation());
}

}  // namespace
}  // namespace dsj::jinja
