#include "common/argument_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dsj {
namespace {

using ::testing::ElementsAre;

class ArgumentParserTest : public ::testing::Test {
 protected:
  ArgumentParserTest() {
    parser_.option("NAME", name_);
    parser_.option("-o,--output", format_);
    parser_.option("COMMAND", command_);
  }
  bool parses(const std::vector<std::string>& words) { return !parser_.parse(words).has_value(); }

  ArgumentParser parser_{"usage: test", "test"};
  std::string name_, format_;
  std::vector<std::string> command_;
};

TEST_F(ArgumentParserTest, AShortOptionTakesItsValueBehindAnEqualsSign) {
  ASSERT_TRUE(parses({"quick", "-o=json"}));
  EXPECT_EQ(format_, "json");
}

// A command of the user's own, as kubectl exec passes it on.
TEST_F(ArgumentParserTest, WordsAfterTwoDashesAreNotChanged) {
  ASSERT_TRUE(parses({"quick", "-o=json", "--", "cc", "-D=1", "-o=a.out", "--", "-x=y"}));
  EXPECT_EQ(format_, "json");
  EXPECT_THAT(command_, ElementsAre("cc", "-D=1", "-o=a.out", "--", "-x=y"));
}

}  // namespace
}  // namespace dsj
