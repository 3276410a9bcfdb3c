// Qwen2's fixture tokenizer, with <|im_end|> as its eos token.
#pragma once

#include <gtest/gtest.h>

#include "common/files/memory_files.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "tests/engine/data/support.h"

namespace dsj::data {

inline const Tokenizer& qwen_tokenizer() {
  static const auto loaded = [] {
    MemoryFiles files;
    EXPECT_TRUE(files.make_dir("m"));
    EXPECT_TRUE(
        files.write_synced("m/tokenizer.json", read_file(fixtures() + "/qwen2/tokenizer.json")));
    EXPECT_TRUE(files.write_synced("m/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})"));
    return Tokenizer::load(files, "m").value();
  }();
  return *loaded;
}

}  // namespace dsj::data
