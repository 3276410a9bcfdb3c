// A Hugging Face config.json.
#include "common/json_depth.h"
#include "job/layout/model_config.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // As read_model_config, which takes a path.
  if (dsj::json_depth(dsj::fuzz::text_of(data, size)) > dsj::kJsonDepthMax) return 0;
  const auto root = nlohmann::json::parse(data, data + size, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return 0;
  const auto config = dsj::layout::model_config_from_json(root, "fuzz");
  if (config) dsj::fuzz::require(config->num_heads > 0 && config->hidden_size > 0);
  return 0;
}
