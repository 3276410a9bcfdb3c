// A tokenizer that was accepted must encode and decode without harm.
#pragma once

#include <string>

#include "common/files/files.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace dsj::fuzz {

inline void use_tokenizer(Files& files, const std::string& directory) {
  const auto tokenizer = data::Tokenizer::load(files, directory);
  if (!tokenizer) return;
  for (const char* text : {"", "  a lower  newest\n", "<s>a</s> \xC3\xA9\xF0\x9F\x98\x80\t1234"}) {
    const auto ids = (*tokenizer)->encode(text);
    if (!ids) continue;
    for (const int32_t id : *ids) require(id >= 0);
    (*tokenizer)->decode(*ids, false);
    (*tokenizer)->decode(*ids, true);
  }
}

}  // namespace dsj::fuzz
