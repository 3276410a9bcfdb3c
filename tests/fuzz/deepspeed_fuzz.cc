// A DeepSpeed checkpoint of one file: 'm' and model states without ZeRO, read whole, or 'o' and optimizer states of a rank.
// What is accepted can be read.
#include "common/files/memory_files.h"
#include "engine/deepspeed/checkpoint.h"
#include "tests/fuzz/fuzz.h"

namespace deepspeed = dsj::deepspeed;

namespace {

void read_all(deepspeed::Checkpoint& saved) {
  for (const auto& [name, dealt] : saved.tensors()) {
    const int64_t elements = dealt.elements;
    dsj::fuzz::require(elements >= 0);
    std::vector<float> values(static_cast<size_t>(std::min<int64_t>(elements, 1000)));
    saved.read(name.first, name.second, elements - static_cast<int64_t>(values.size()), values);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input = dsj::fuzz::text_of(data, size);
  if (input.empty()) return 0;
  dsj::MemoryFiles files;
  files.make_dir("d");
  if (input[0] == 'm') {
    files.write_synced("d/mp_rank_00_model_states.pt", input.substr(1));
    auto saved = deepspeed::Checkpoint::open(files, "d");
    if (saved) read_all(*saved);
    return 0;
  }
  files.write_synced("d/o.pt", input.substr(1));
  const auto file = deepspeed::SavedFile::open(files, "d/o.pt");
  if (!file) return 0;
  const auto states = deepspeed::read_optim_states(*file);
  if (states) dsj::fuzz::require(states->updated.size() == states->group_of.size());
  return 0;
}
