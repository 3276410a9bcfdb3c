#include "agent/ranks/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace dsj::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(LineSplitter, AnyCutGivesTheSameLines) {
  const std::string text = "one\n\ntwo\r\nthree is longer\n{\"a\":1}\npartial";
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    LineSplitter splitter;
    std::vector<std::string> lines;
    for (size_t at = 0; at < text.size();) {
      const size_t length = 1 + random() % 9;
      for (auto& line : splitter.feed(std::string_view(text).substr(at, length)))
        lines.push_back(line);
      at += length;
    }
    EXPECT_THAT(lines, ElementsAre("one", "two", "three is longer", "{\"a\":1}"));
  }
}

TEST(LineSplitter, OverlongLineIsDroppedWholeAndTheNextIsRead) {
  LineSplitter splitter;
  const std::string half(LineSplitter::kLineBytesMax / 2 + 1, 'x');
  EXPECT_THAT(splitter.feed(half), IsEmpty());
  EXPECT_THAT(splitter.feed(half), IsEmpty());
  EXPECT_THAT(splitter.feed("tail\nnext\n"), ElementsAre("next"));
  EXPECT_EQ(splitter.dropped(), 1);
}

}  // namespace
}  // namespace dsj::agent
