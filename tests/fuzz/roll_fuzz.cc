// A ROLL pipeline with one more file that its defaults may name: composed, and every role imported.
#include "cli/import/roll.h"
#include "common/files/memory_files.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string all = dsj::fuzz::text_of(data, size);
  const size_t zero = std::min(all.find('\0'), all.size());
  dsj::MemoryFiles files;
  files.make_dirs("c");
  files.write_synced("c/a.yaml", all.substr(0, zero));
  if (zero < all.size()) files.write_synced("c/b.yaml", all.substr(zero + 1));
  const auto pipeline = dsj::jobimport::read_roll(files, "c/a.yaml", {});
  if (!pipeline) return 0;
  for (const auto& role : pipeline->roles) {
    auto imported = dsj::jobimport::import_role(*pipeline, role.path);
    if (!imported) continue;
    if (dsj::jobimport::finish(*imported, {})) dsj::jobimport::to_text(*imported);
  }
  return 0;
}
