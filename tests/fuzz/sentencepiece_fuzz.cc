// tokenizer.model: what is accepted encodes and decodes without harm.
#include "common/files/memory_files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/use_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dsj::MemoryFiles files;
  files.make_dirs("m");
  files.write_synced("m/tokenizer.model", dsj::fuzz::text_of(data, size));
  dsj::fuzz::use_tokenizer(files, "m");
  return 0;
}
