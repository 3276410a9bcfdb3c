#include "engine/zero/storage/layer_inputs.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/memory/counting_allocator.h"
#include "engine/zero/storage/storage_error.h"
#include "tests/engine/support/late_file.h"

namespace dsj::zero {
namespace {

using testing_support::LateDisk;
using testing_support::LateFile;

constexpr int kLayers = 5;

at::Tensor input(int layer, int64_t tokens, at::ScalarType type = at::kFloat) {
  return at::arange(tokens * 48).reshape({tokens, 48}).add(1000 * layer).to(type);
}

/// Inputs of `tokens` tokens through all layers and back.
void expect_all_back(LayerInputs& inputs, int64_t tokens, at::ScalarType type = at::kFloat,
                     int lowest = 0) {
  for (int layer = lowest; layer < kLayers; ++layer) {
    at::Tensor x = input(layer, tokens, type);
    inputs.put(layer, x);
    x.fill_(-1);  // the caller's memory is free again
  }
  for (int layer = kLayers - 1; layer >= lowest; --layer) {
    const at::Tensor back = inputs.take(layer, layer > lowest ? layer - 1 : -1);
    EXPECT_TRUE(back.equal(input(layer, tokens, type))) << "layer " << layer;
  }
}

TEST(LayerInputs, InAFileComeBackTheSame) {
  const int64_t place = layer_input_place(100 * 48 * 4);
  LateDisk disk(kLayers * place);
  const auto inputs =
      layer_inputs_in_file(std::make_unique<LateFile>(disk), kLayers, place, "the key");
  expect_all_back(*inputs, 100);
  expect_all_back(*inputs, 33);  // a shorter micro-batch, and one that ends in mid block
  expect_all_back(*inputs, 100, at::kBFloat16);
  expect_all_back(*inputs, 7, at::kFloat, 2);  // frozen layers below keep none
}

TEST(LayerInputs, TheNextOneIsReadMeanwhile) {
  const int64_t place = layer_input_place(10 * 48 * 4);
  LateDisk disk(kLayers * place);
  const auto inputs =
      layer_inputs_in_file(std::make_unique<LateFile>(disk), kLayers, place, "the key");
  for (int layer = 0; layer < kLayers; ++layer) inputs->put(layer, input(layer, 10));
  EXPECT_EQ(disk.events_of('w').size(), static_cast<size_t>(kLayers));
  inputs->take(4, 3);
  EXPECT_TRUE(disk.events_of('r').empty()) << "the last two are still in memory";
  inputs->take(3, 2);
  const std::vector<std::string> one = {"r " + std::to_string(2 * place)};
  EXPECT_EQ(disk.events_of('r'), one) << "before layer 2 asks for it";
  inputs->take(2, -1);
  EXPECT_EQ(disk.events_of('r'), one) << "no other layer is needed";
}

TEST(LayerInputs, TwoAreInMemoryAndCountedAsHost) {
  memory::install();
  memory::Ledger ledger;
  const int64_t place = layer_input_place(1000 * 48 * 4);
  LateDisk disk(kLayers * place);
  {
    const memory::MemoryScope scope(memory::Class::Activations, ledger);
    const auto inputs =
        layer_inputs_in_file(std::make_unique<LateFile>(disk), kLayers, place, "the key");
    for (int layer = 0; layer < kLayers; ++layer) inputs->put(layer, input(layer, 1000));
    for (int layer = kLayers - 1; layer >= 0; --layer) inputs->take(layer, layer - 1);
    EXPECT_EQ(ledger.peak(memory::Class::Host), 2 * (place + aio::kAlign));
  }
  EXPECT_EQ(ledger.live(), 0);
}

TEST(LayerInputs, ADeviceThatFailsIsNamedWithTheKey) {
  const int64_t place = layer_input_place(10 * 48 * 4);
  for (const bool write : {true, false}) {
    LateDisk disk(kLayers * place);
    const auto inputs =
        layer_inputs_in_file(std::make_unique<LateFile>(disk), kLayers, place, "the key");
    if (write) disk.broken = {0};
    const auto use = [&] {
      for (int layer = 0; layer < kLayers; ++layer) inputs->put(layer, input(layer, 10));
      disk.broken = {0};
      for (int layer = kLayers - 1; layer >= 0; --layer) inputs->take(layer, layer - 1);
    };
    try {
      use();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const StorageError& error) {
      EXPECT_EQ(error.error().where, "the key");
      EXPECT_EQ(error.error().kind, ErrorKind::Environment);
    }
  }
}

TEST(LayerInputs, InHostMemoryComeBackTheSame) {
  const auto inputs = layer_inputs_in_host(kLayers, 100 * 48 * 4, at::kCPU);
  expect_all_back(*inputs, 100);
  expect_all_back(*inputs, 33, at::kBFloat16, 2);
}

class LayerInputsPlace : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "layer_inputs_" + std::to_string(getpid());
    std::filesystem::create_directories(root_ + "/out");
    std::filesystem::create_directories(root_ + "/nvme");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::unique_ptr<LayerInputs> make(const dsconfig::ResolvedConfig& config) {
    layout::ModelConfig model;
    model.num_layers = kLayers, model.hidden_size = 48;
    return make_layer_inputs(model, config, {.tokens = 100, .output_dir = root_ + "/out"},
                             {.note = [&](const std::string& note) { notes_ += note + "\n"; }});
  }
  std::string root_, notes_;
};

TEST_F(LayerInputsPlace, IsTheOutputDirectoryAndIsLeftClean) {
  {
    const auto inputs = make({});
    EXPECT_TRUE(std::filesystem::exists(root_ + "/out/layer_inputs"));
    EXPECT_NE(notes_.find("102400 bytes"), std::string::npos)
        << "of 5 x 100 x 48 fp32, in blocks of 4 KiB: " << notes_;
    expect_all_back(*inputs, 100);
  }
  EXPECT_FALSE(std::filesystem::exists(root_ + "/out/layer_inputs"));
}

TEST_F(LayerInputsPlace, IsTheDiskThatOffloadNames) {
  dsconfig::ResolvedConfig config;
  config.offload.optimizer.device = dsconfig::OffloadDevice::Nvme;
  config.offload.optimizer.nvme_path = root_ + "/nvme";
  const auto inputs = make(config);
  EXPECT_TRUE(std::filesystem::exists(root_ + "/nvme/layer_inputs"));
  EXPECT_FALSE(std::filesystem::exists(root_ + "/out/layer_inputs"));
}

TEST_F(LayerInputsPlace, ThatIsMissingIsNamedWithTheKey) {
  std::filesystem::remove_all(root_ + "/out");
  try {
    make({});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const StorageError& error) {
    EXPECT_NE(error.error().to_string().find("activation_checkpointing.cpu_checkpointing"),
              std::string::npos)
        << error.error().to_string();
  }
}

}  // namespace
}  // namespace dsj::zero
