// A Hugging Face config.json, on the way that `dsj plan` takes with it: shape, units, flats, memory, wire,
// disk.
#include "common/json_depth.h"
#include "job/layout/model_config.h"
#include "job/plan/fit.h"
#include "job/plan/memory_model.h"
#include "tests/fuzz/fuzz.h"

namespace {

/// A job on two ranks with a bucket of its own size, at the stage that the file's length draws.
dsj::plan::MemoryInput input_of(const dsj::layout::ModelConfig& model, int stage) {
  dsj::plan::MemoryInput input{.model = model, .config = {}, .world = 2};
  input.config.zero.stage = stage;
  input.config.micro_batch_size = 2;
  input.config.train_batch_size = 4;
  input.config.total_steps = 10;
  input.tokens_per_row = dsj::plan::longest_row({}, model);
  return input;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // As read_model_config, which takes a path.
  if (dsj::json_depth(dsj::fuzz::text_of(data, size)) > dsj::kJsonDepthMax) return 0;
  const auto root = nlohmann::json::parse(data, data + size, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return 0;
  const auto config = dsj::layout::model_config_from_json(root, "fuzz");
  if (!config) return 0;
  dsj::fuzz::require(config->num_heads > 0 && config->hidden_size > 0);
  if (config->num_layers > 200) return 0;  // the walk is as long as the model
  const auto input = input_of(*config, static_cast<int>(size % 4));
  const auto model = dsj::plan::memory_model(input);
  dsj::fuzz::require(model.parameters > 0 && model.bytes.peak > 0);
  dsj::fuzz::require(dsj::plan::disk_use(input).checkpoint > 0);
  dsj::plan::Limits limits;
  limits.host = {int64_t{1} << 40, "fuzz"};
  (void)dsj::plan::check_fit({.memory = input, .ranks_per_host = 2, .new_checkpoints = 1}, limits);
  return 0;
}
