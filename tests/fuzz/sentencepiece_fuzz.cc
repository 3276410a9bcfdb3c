// tokenizer.model: what is accepted encodes and decodes without harm.
#include "common/files/memory_files.h"
#include "engine/data/tokenizer.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dsj::MemoryFiles files;
  files.make_dirs("m");
  files.write_synced("m/tokenizer.model", dsj::fuzz::text_of(data, size));
  const auto tokenizer = dsj::data::Tokenizer::load(files, "m");
  if (!tokenizer) return 0;
  for (const char* text : {"", "  a lower  newest\n", "<s>a</s> \xC3\xA9\xF0\x9F\x98\x80\t1234"}) {
    const auto ids = (*tokenizer)->encode(text);
    if (!ids) continue;
    for (const int32_t id : *ids) dsj::fuzz::require(id >= 0);
    (*tokenizer)->decode(*ids, false);
    (*tokenizer)->decode(*ids, true);
  }
  return 0;
}
