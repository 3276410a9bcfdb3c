// Loss and gradient norm of drawn models against transformers: fields of config.json that no other fixture
// has, and their combinations. tests/oracle/drawn_oracle.py draws them and says how. DSJ_DRAWN_MODELS names
// another file of its, for more draws.
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "common/files/memory_files.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using nlohmann::json;

/// splitmix64 of the index, after FNV-1a of the name: drawn_oracle.py has the same.
uint64_t draw(const std::string& name, uint64_t index) {
  uint64_t z = 0xcbf29ce484222325u;
  for (const char c : name) z = (z ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  z += (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// config.json, and weights mean + scale * (a number from -1 to 1).
void write_model(MemoryFiles& files, const json& config, const json& tensors) {
  ASSERT_TRUE(files.write_atomically("/config.json", config.dump()));
  std::vector<weights::TensorDeclaration> declared;
  for (const json& tensor : tensors)
    declared.push_back(
        {tensor[0].get<std::string>(), weights::DType::F32, tensor[1].get<std::vector<int64_t>>()});
  auto writer = weights::SafetensorsWriter::create(files, "/model.safetensors", declared);
  ASSERT_TRUE(writer) << writer.error().to_string();
  for (size_t i = 0; i < declared.size(); ++i) {
    const double mean = tensors[i][2], scale = tensors[i][3];
    std::vector<float> values(static_cast<size_t>(declared[i].elements()));
    for (size_t j = 0; j < values.size(); ++j)
      values[j] = static_cast<float>(
          mean +
          scale * (std::ldexp(static_cast<double>(draw(declared[i].name, j) >> 40), -23) - 1));
    ASSERT_TRUE(writer->append(declared[i].name, values));
  }
  ASSERT_TRUE(writer->finish());
}

void expect_as_recorded(const json& drawn, const json& tensors, comm::Collectives& collectives) {
  MemoryFiles files;
  ASSERT_NO_FATAL_FAILURE(write_model(files, drawn["config"], tensors));
  const auto model = layout::model_config_from_json(drawn["config"], "config.json");
  ASSERT_TRUE(model) << model.error().to_string();
  dsconfig::ResolvedConfig config;
  config.micro_batch_size = config.train_batch_size = 1;
  config.optimizer.lr = 0;
  zero::ModelState state(*model, config, at::kCPU, collectives);
  const auto source = weights::WeightSource::open(files, "/");
  ASSERT_TRUE(source) << source.error().to_string();
  const auto loaded = state.load(*source);
  ASSERT_TRUE(loaded) << loaded.error().to_string();
  Stepper stepper(*model, config, {}, state, at::kCPU);
  for (size_t row = 0; row < drawn["rows"].size(); ++row) {
    std::vector<int64_t> ids(drawn["rows"][row].get<size_t>());
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int64_t>(draw("row", i) % static_cast<uint64_t>(model->vocab_size));
    const at::Tensor tokens = at::tensor(ids).unsqueeze(0);
    const std::vector<models::MicroBatch> batch{testing_support::rectangle(tokens, tokens)};
    const auto result = stepper.run({.micro_batches = batch, .rates = {.lr = 0}});
    const double loss = drawn["loss"][row], norm = drawn["grad_norm"][row];
    EXPECT_NEAR(result.loss, loss, 2e-6 * loss) << "row " << row;
    // Rounding grows in the delta rule's gradient, whose keys are divided by their lengths.
    const double rounding = model->delta.layers.empty() ? 1e-4 : 1e-3;
    EXPECT_NEAR(result.grad_norm, norm, rounding * norm) << "row " << row;
  }
}

class DrawnModels : public testing::TestWithParam<size_t> {};

constexpr size_t kParts = 4;

TEST_P(DrawnModels, HaveTransformersLossAndGradients) {
  const char* other = std::getenv("DSJ_DRAWN_MODELS");
  const json recorded =
      json::parse(std::ifstream(other ? other : fixture("drawn_models.oracle.json")));
  const json& models = recorded["models"];
  ASSERT_GE(models.size(), kParts);
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    for (size_t i = GetParam(); i < models.size(); i += kParts) {
      SCOPED_TRACE(models[i]["config"].dump());
      expect_as_recorded(models[i], recorded["tensors"][models[i]["tensors"].get<size_t>()],
                         collectives);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Parts, DrawnModels, testing::Range(size_t{0}, kParts));

}  // namespace
}  // namespace dsj::train
