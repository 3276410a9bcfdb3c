// pytorch_model.bin: what is accepted lies inside the file. 'p' and a pickle, or the whole archive.
#include "common/files/memory_files.h"
#include "engine/weights/formats/state_dict_pickle.h"
#include "engine/weights/formats/torch_file.h"
#include "tests/fuzz/fuzz.h"

namespace weights = dsj::weights;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input = dsj::fuzz::text_of(data, size);
  if (input.starts_with('p')) {
    const auto tensors = weights::read_state_dict_pickle(std::string_view(input).substr(1), "fuzz");
    if (!tensors) return 0;
    for (const auto& tensor : *tensors) {
      dsj::fuzz::require(tensor.offset >= 0 && tensor.shape.size() == tensor.strides.size());
    }
    return 0;
  }
  dsj::MemoryFiles files;
  files.write_synced("f.bin", input);
  const auto file = files.open_read("f.bin");
  dsj::fuzz::require(file.has_value());
  const auto tensors = weights::read_torch_file(**file, "f.bin");
  if (!tensors) return 0;
  for (const auto& tensor : *tensors) {
    dsj::fuzz::require(tensor.begin >= 0 && tensor.bytes() >= 0 &&
                       tensor.begin + tensor.bytes() <= static_cast<int64_t>(size));
  }
  return 0;
}
