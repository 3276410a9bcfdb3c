#include "common/template_word.h"

#include <gtest/gtest.h>

namespace dsj {
namespace {

TEST(TemplateWordTest, NamesFilesAndTexts) {
  for (const char* name : {"chatml", "qwen2.5", "auto", "", "a } b"})
    EXPECT_EQ(template_word(name), TemplateWord::Name) << name;
  for (const char* file : {"./my", "/a/b.txt", "my.jinja", "..//x"})
    EXPECT_EQ(template_word(file), TemplateWord::File) << file;
  for (const char* text : {"{% for m in messages %}", "{{ messages }}</s>", "x/{{ y }}.jinja"})
    EXPECT_EQ(template_word(text), TemplateWord::Text) << text;
}

}  // namespace
}  // namespace dsj
