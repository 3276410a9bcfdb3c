// The two files of a data analyzer's lists, the index first, its length in the first four bytes: what
// is accepted lies inside the files.
#include <cstring>

#include "common/files/memory_files.h"
#include "engine/data/batches/indexed_lists.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input = dsj::fuzz::text_of(data, size);
  if (input.size() < 4) return 0;
  uint32_t length = 0;
  std::memcpy(&length, input.data(), sizeof length);
  const std::string rest = input.substr(4);
  dsj::MemoryFiles files;
  files.write_synced("f.idx", rest.substr(0, length));
  files.write_synced("f.bin", length < rest.size() ? rest.substr(length) : "");
  const auto lists = dsj::data::read_lists(files, "f");
  if (!lists) return 0;
  dsj::fuzz::require(lists->count() >= 0 && lists->values.size() <= size &&
                     lists->starts.back() == static_cast<int64_t>(lists->values.size()));
  for (int64_t i = 0; i < lists->count(); ++i)
    dsj::fuzz::require(lists->list(i).size() <= lists->values.size());
  return 0;
}
