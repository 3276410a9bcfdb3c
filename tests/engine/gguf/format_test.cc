// The writer against a reader that was written from the format's description.
#include "engine/gguf/format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/files/memory_files.h"
#include "tests/engine/gguf/read_gguf.h"

namespace dsj::gguf {
namespace {

using testing_support::read_gguf;

TEST(GgufFormat, WritesEveryKindOfValue) {
  MemoryFiles files;
  Keys keys;
  keys.set("a.whole", uint32_t{4'000'000'000});
  keys.set("a.signed", int32_t{-7});
  keys.set("a.number", 0.25f);
  keys.set("a.flag", true);
  keys.set("a.text", std::string("\u2581 text"));
  keys.set("a.texts", std::vector<std::string>{"x", "", "yy"});
  keys.set("a.numbers", std::vector<float>{1.5f, -2});
  keys.set("a.wholes", std::vector<int32_t>{});
  keys.set("a.flags", std::vector<bool>{true, false, true});
  keys.set("a.number", 0.5f);  // replaces
  auto writer =
      Writer::begin(files, "/m.gguf", keys, {{"t", {2, 3}, Type::F32}, {"u", {5}, Type::F16}});
  ASSERT_TRUE(writer) << writer.error().to_string();
  ASSERT_TRUE(writer->append(std::vector<float>{1, 2, 3, 4}));
  ASSERT_TRUE(writer->append(std::vector<float>{5, 6}));
  ASSERT_TRUE(writer->append(std::vector<float>{0, 1, 65504, -2, 1e9f}));
  EXPECT_FALSE(*files.exists("/m.gguf"));
  const auto size = writer->finish();
  ASSERT_TRUE(size) << size.error().to_string();
  const std::string bytes = *files.read_all("/m.gguf");
  EXPECT_EQ(*size, static_cast<int64_t>(bytes.size()));
  const auto file = read_gguf(bytes);
  EXPECT_EQ(file.keys, nlohmann::json::parse(R"({"a.whole": 4000000000, "a.signed": -7,
      "a.number": 0.5, "a.flag": true, "a.text": "▁ text", "a.texts": ["x", "", "yy"],
      "a.numbers": [1.5, -2.0], "a.wholes": [], "a.flags": [true, false, true]})"));
  ASSERT_EQ(file.tensors.size(), 2u);
  EXPECT_EQ(file.tensors.at("t").shape, (std::vector<int64_t>{2, 3}));
  const float six[] = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(file.tensors.at("t").bytes, std::string(reinterpret_cast<const char*>(six), 24));
  EXPECT_EQ(file.tensors.at("u").bytes, std::string("\0\0\0\x3C\xFF\x7B\0\xC0\0\x7C", 10));
}

// By hand: the largest magnitude is 127, so the scale is 1 and elements keep their values, rounded half
// away from zero.
TEST(GgufFormat, Q8BlocksRoundHalfAwayFromZero) {
  std::vector<float> values(32, 0.0f);
  values[0] = 127;
  values[1] = -0.5f;
  values[2] = 0.5f;
  values[3] = 2.5f;
  values[4] = -3.5f;
  values[5] = 0.49f;
  std::string out;
  encode(Type::Q8_0, values, out);
  ASSERT_EQ(out.size(), 34u);
  EXPECT_EQ(out.substr(0, 2), std::string("\x00\x3C", 2));  // 1.0
  const auto at = [&](size_t i) { return static_cast<int>(static_cast<int8_t>(out[2 + i])); };
  EXPECT_EQ(at(0), 127);
  EXPECT_EQ(at(1), -1);
  EXPECT_EQ(at(2), 1);
  EXPECT_EQ(at(3), 3);
  EXPECT_EQ(at(4), -4);
  EXPECT_EQ(at(5), 0);
}

TEST(GgufFormat, AQ8BlockOfZerosIsZeros) {
  std::string out;
  encode(Type::Q8_0, std::vector<float>(64, 0.0f), out);
  EXPECT_EQ(out, std::string(68, '\0'));
}

TEST(GgufFormat, AnUnfinishedFileIsRemoved) {
  MemoryFiles files;
  {
    auto writer = Writer::begin(files, "/m.gguf", Keys(), {{"t", {4}, Type::F32}});
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->append(std::vector<float>{1, 2}));
  }
  EXPECT_TRUE(files.list_dir("/")->empty());
}

}  // namespace
}  // namespace dsj::gguf
