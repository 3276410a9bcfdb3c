#include "job/report/termination_message.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dsj::report {
namespace {

TEST(TerminationMessage, IsReadAndWrittenAsItWas) {
  const std::string text =
      R"({"attempt":2,"lastWords":"w","message":"m","rank":3,"reason":"Killed","signal":9,"step":7})";
  const auto message = termination_message_from_text(text);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->rank, 3);
  EXPECT_FALSE(message->exit_code);
  EXPECT_EQ(to_text(*message), text);
  for (const char* other : {"", "oops", "[1]", "7"}) {
    EXPECT_FALSE(termination_message_from_text(other)) << other;
  }
}

TEST(TerminationMessage, FitsWhatTheKubeletKeepsWhateverItSays) {
  for (const char* unit : {"x", "\x01", "\xff", "\u00e9", "\""}) {
    std::string words;
    while (words.size() < 20'000) words += unit;
    const std::string text = to_text({.reason = "Failed",
                                      .message = words,
                                      .step = 1,
                                      .attempt = 2,
                                      .rank = 0,
                                      .last_words = words});
    EXPECT_LE(text.size(), kTerminationBytesMax);
    const auto read = termination_message_from_text(text);
    ASSERT_TRUE(read) << unit;
    EXPECT_EQ(read->reason, "Failed");
    EXPECT_EQ(read->rank, 0);
  }
}

TEST(TerminationMessage, TheEndOfTheLastWordsIsKept) {
  const std::string words = std::string(5000, 'a') + " the very end";
  const auto read = termination_message_from_text(
      to_text({.reason = "Failed", .message = "m", .rank = 0, .last_words = words}));
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->last_words->ends_with("the very end"));
  EXPECT_EQ(read->message, "m");
}

}  // namespace
}  // namespace dsj::report
