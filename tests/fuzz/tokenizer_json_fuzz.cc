// tokenizer.json (and, after a zero byte, tokenizer_config.json): what is accepted encodes and
// decodes without harm.
#include "common/files/memory_files.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/use_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string all = dsj::fuzz::text_of(data, size);
  const size_t zero = std::min(all.find('\0'), all.size());
  dsj::MemoryFiles files;
  files.make_dirs("m");
  files.write_synced("m/tokenizer.json", all.substr(0, zero));
  if (zero < all.size()) files.write_synced("m/tokenizer_config.json", all.substr(zero + 1));
  dsj::fuzz::use_tokenizer(files, "m");
  return 0;
}
