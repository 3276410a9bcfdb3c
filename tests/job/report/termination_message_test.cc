#include "job/report/termination_message.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dsj::report {
namespace {

TEST(TerminationMessage, IsReadAndWrittenAsItWas) {
  const std::string text =
      R"({"reason":"Killed","attempt":2,"step":7,"rank":3,"signal":9,"message":"m","lastWords":"w"})";
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

/// A kubelet has 12 KiB for all containers of a pod, and cuts each message.
TEST(TerminationMessage, WhereverItIsCutItSaysWhatCameBefore) {
  const std::string text = to_text({.reason = "LossNotFinite",
                                    .message = "a \"quoted\" \u00e9\n message",
                                    .step = 12,
                                    .attempt = 345,
                                    .rank = 6,
                                    .exit_code = 1,
                                    .last_words = "words \x01\xff\U0001f600 and\\more"});
  const size_t decided = text.find(",\"message\"");
  ASSERT_NE(decided, std::string::npos);
  for (size_t size = decided; size < text.size(); ++size) {
    const auto read = termination_message_from_text(text.substr(0, size));
    ASSERT_TRUE(read) << size;
    EXPECT_EQ(read->reason, "LossNotFinite");
    EXPECT_EQ(read->attempt, 345);
    EXPECT_EQ(read->rank, 6) << size;
    EXPECT_EQ(read->exit_code.value_or(1), 1);
  }
  for (size_t size = 30; size < decided; ++size) {
    const auto read = termination_message_from_text(text.substr(0, size));
    ASSERT_TRUE(read) << size;
    EXPECT_TRUE(!read->attempt || read->attempt == 345) << "no half number: " << size;
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
