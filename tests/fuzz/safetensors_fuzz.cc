// A safetensors header: what is accepted covers the file without gap or overlap.
#include "engine/weights/formats/safetensors.h"
#include "tests/fuzz/fuzz.h"

namespace weights = dsj::weights;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file = dsj::fuzz::text_of(data, size);
  const auto file_bytes = static_cast<int64_t>(size);
  if (file.size() < 8) return 0;
  const auto length = weights::safetensors_header_bytes(file.substr(0, 8), file_bytes, "fuzz");
  if (!length) return 0;
  dsj::fuzz::require(*length >= 0 && *length + 8 <= file_bytes);
  const auto header = weights::parse_safetensors_header(
      std::string_view(file).substr(8, static_cast<size_t>(*length)), file_bytes, "fuzz");
  if (!header) return 0;
  int64_t at = *length + 8;
  for (const auto& tensor : header->tensors) {
    dsj::fuzz::require(tensor.begin == at && tensor.bytes() >= 0);
    at += tensor.bytes();
  }
  dsj::fuzz::require(header->tensors.empty() || at == file_bytes);
  return 0;
}
