#include "cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/argument_parser.h"

namespace dsj::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ParserDescription observed() {
  ParserDescription seen;
  const ParserObserver observer([&](ParserDescription parser) { seen = std::move(parser); });
  std::string format = "text", file;
  bool all = false;
  ArgumentParser parser("Lists things.", "dsj list");
  parser.option("-o,--output", format, "format").one_of({"text", "json"}).show_default();
  parser.option("FILE", file, "a file").required();
  parser.flag("--all,!--some", all, "all of them");
  const std::vector<std::string> nonsense = {"--nothing", "like", "this"};
  EXPECT_EQ(parser.parse(nonsense), 0) << "nothing is read while it is observed";
  EXPECT_EQ(format, "text");
  return seen;
}

TEST(Completion, AParserDescribesAllItsArguments) {
  const ParserDescription parser = observed();
  EXPECT_FALSE(ParserObserver::active());
  EXPECT_EQ(parser.name, "dsj list");
  EXPECT_EQ(parser.description, "Lists things.");
  ASSERT_EQ(parser.arguments.size(), 4);
  EXPECT_THAT(parser.arguments[0].names, ElementsAre("-h", "--help"));
  EXPECT_FALSE(parser.arguments[0].takes_word);
  const ArgumentDescription& output = parser.arguments[1];
  EXPECT_THAT(output.names, ElementsAre("-o", "--output"));
  EXPECT_THAT(output.choices, ElementsAre("text", "json"));
  EXPECT_EQ(output.default_value, "text");
  EXPECT_TRUE(output.takes_word);
  EXPECT_FALSE(output.required);
  EXPECT_THAT(parser.arguments[2].names, IsEmpty());
  EXPECT_EQ(parser.arguments[2].word, "FILE");
  EXPECT_TRUE(parser.arguments[2].required);
  EXPECT_THAT(parser.arguments[3].names, ElementsAre("--all", "--some"));
  EXPECT_FALSE(parser.arguments[3].takes_word);
}

TEST(Completion, APageHasNoAccidentalRequests) {
  const Command command{.words = "list",
                        .summary = "lists things",
                        .parser = {.name = "dsj list",
                                   .description = ".hidden files\\n are not - listed",
                                   .arguments = {{.names = {"-o"}, .help = "'quoted' path"}}}};
  const auto pages = manual_pages({command}, "dsj 1");
  EXPECT_THAT(pages.at("dsj-list.1"), HasSubstr("\n\\&.hidden files\\en are not \\- listed\n"));
  EXPECT_THAT(pages.at("dsj-list.1"), HasSubstr("\n\\&'quoted' path\n"));
  EXPECT_THAT(pages.at("dsj.1"), HasSubstr(".BR dsj\\-list (1)"));
}

TEST(Completion, QuotesInAHelpStayText) {
  const Command command{
      .words = "list",
      .summary = "lists a user's things",
      .parser = {.name = "dsj list",
                 .description = "",
                 .arguments = {{.names = {"--of"}, .help = "it's: $(rm -r) one"}}}};
  EXPECT_THAT(zsh_completion({command}), HasSubstr("'--of:it'\\''s: $(rm -r) one'"));
  EXPECT_THAT(zsh_completion({command}), HasSubstr("'list:lists a user'\\''s things'"));
  EXPECT_THAT(fish_completion({command}), HasSubstr("'it\\'s: $(rm -r) one'"));
}

}  // namespace
}  // namespace dsj::cli
