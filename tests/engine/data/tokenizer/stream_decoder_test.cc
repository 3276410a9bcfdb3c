#include "engine/data/tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include "tests/engine/data/support.h"
#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

class StreamDecoderOf : public testing::TestWithParam<const char*> {};

TEST_P(StreamDecoderOf, ThePiecesTogetherEqualTheWholeText) {
  const TempDir dir;
  dir.write("tokenizer.json", read_file(fixtures() + "/" + GetParam() + "/tokenizer.json"));
  const auto tokenizer = Tokenizer::load(dir.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  const TextGenerator generator(read_ranges(fixtures() + "/unicode14.txt"));
  std::size_t early = 0;
  for (uint64_t i = 0; i < 600; ++i) {
    auto ids = (*tokenizer)->encode(generator.make(5, i)).value();
    Lcg r(i);
    if (i % 3 == 0)  // ids that no text has: broken characters
      for (int n = 0; n < 8; ++n)
        ids.push_back(
            static_cast<int32_t>(r.below(static_cast<std::size_t>((*tokenizer)->vocab_size()))));
    for (const bool skip : {true, false}) {
      StreamDecoder stream(**tokenizer, skip);
      std::string text;
      for (const int32_t id : ids) {
        text += stream.push(id);
        early += text.size();
      }
      text += stream.finish();
      EXPECT_EQ(text, (*tokenizer)->decode(ids, skip)) << i;
    }
  }
  EXPECT_GT(early, 10000u);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, StreamDecoderOf, testing::Values("gpt2", "llama3", "spm"));

}  // namespace
}  // namespace dsj::data
