// LoRA on a base in 4 bits in whole steps: PEFT's losses over bitsandbytes' Linear4bit (tests/oracle/qlora_oracle.py) at
// every stage that has it; the bits of LoRA on the unpacked base; the bytes that the plan says; what is refused.
#include <gtest/gtest.h>

#include <filesystem>

#include "job/layout/packing.h"
#include "job/plan/memory_model.h"
#include "tests/engine/train/peft_run.h"

namespace dsj::train {
namespace {

using memory::Class;

class QloraNumbers : public testing::TestWithParam<const char*> {};

TEST_P(QloraNumbers, EqualPefts) {
  const PeftRun peft(GetParam());
  ASSERT_TRUE(peft.lora.load_in_4bit);
  ASSERT_EQ(peft.data["loss"].size(), 20u);
  for (const int world : {1, 2})
    for (const int stage : {0, 1, 2})
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE("world " + std::to_string(world) + " stage " + std::to_string(stage) +
                     (recompute ? " recompute" : ""));
        expect_pefts_numbers(peft, peft.small(world, stage, recompute), 1e-5);
      }
  // Else the base would not be in 4 bits.
  EXPECT_GT(apart(peft.data["loss_16"].get<std::vector<double>>(),
                  peft.data["loss"].get<std::vector<double>>()),
            1e-2);
}

INSTANTIATE_TEST_SUITE_P(All, QloraNumbers,
                         testing::Values("four-bits", "four-bits-qv", "four-bits-bias"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

SmallRun on_four_bits(int world, int stage, bool two_levels = true) {
  SmallRun run{.model = "tiny-qwen2",
               .world = world,
               .config = small_config(stage),
               .lora = LoraArgs{.r = 4, .alpha = 8, .target_pattern = "all-linear"}};
  run.lora->load_in_4bit = true;
  run.lora->double_quant = two_levels;
  return run;
}

/// The same steps on a base in 4 bits and on a base of whole tensors that hold the unpacked numbers.
struct BothBases {
  std::vector<double> losses[2];
  std::map<std::string, at::Tensor> trained[2];

  BothBases(SmallRun run, int64_t steps) {
    std::map<std::string, at::Tensor> unpacked;
    for (const bool packed : {true, false}) {
      run.lora->load_in_4bit = packed;
      testing_support::run_ranks(run.world, [&](comm::Collectives& group, memory::Ledger&) {
        Rank rank(run, group);
        rank.load(run.model);
        memory::MemoryScope outside(Class::Activations, memory::process_ledger());
        if (packed) {
          rank.state.visit_weights([&](const layout::Slot& slot, const at::Tensor& value) {
            unpacked[slot.name] = value.clone();
          });
        } else {
          refill(rank, unpacked);
        }
        for (int64_t step = 0; step < steps; ++step) {
          const double loss = rank.step(step).loss;
          if (group.rank() == 0) losses[packed].push_back(loss);
        }
        rank.state.visit_weights(
            [&](const layout::Slot& slot, const at::Tensor& value) {
              trained[packed][slot.name] = value.clone();
            },
            true);
      });
    }
  }

 private:
  static void refill(Rank& rank, const std::map<std::string, at::Tensor>& unpacked) {
    for (size_t f = 0; f < rank.state.plan().flats.size(); ++f) {
      zero::Flat& flat = rank.state.flat(static_cast<int>(f));
      if (!flat.frozen()) continue;
      ASSERT_TRUE(flat.fill_frozen(
          [&](const std::string& name, int64_t first, std::span<float> out) -> Status {
            const at::Tensor one = unpacked.at(name).reshape({-1});
            std::copy_n(one.const_data_ptr<float>() + first, out.size(), out.begin());
            return {};
          }));
      flat.publish();
    }
  }
};

TEST(Qlora, IsLoraOnTheUnpackedBaseToTheBit) {
  for (const bool two_levels : {false, true}) {
    for (const bool recompute : {false, true}) {
      SmallRun run = on_four_bits(2, 2, two_levels);
      run.recompute = recompute;
      run.lora->dropout = recompute ? 0.1 : 0;
      const BothBases both(run, 6);
      EXPECT_EQ(both.losses[0], both.losses[1]);
      ASSERT_EQ(both.trained[0].size(), both.trained[1].size());
      for (const auto& [name, value] : both.trained[0])
        EXPECT_TRUE(value.equal(both.trained[1].at(name))) << name;
    }
  }
}

/// Each fixture is a family; a new one is tested by being there. Sums differ in their order where weights
/// are neighbours in one of the two layouts alone.
TEST(Qlora, EveryFamilyTrainsOnItsUnpackedNumbers) {
  int families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixture(""))) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("tiny-") || !entry.is_directory()) continue;
    SCOPED_TRACE(name);
    const auto model = fixture_model(name);
    if (layout::stored_in_out(model)) continue;  // refused by name
    SmallRun run = on_four_bits(1, 0);
    run.model = name;
    int packed = 0;
    for (const auto& unit : layout::units_of(model, resolved_lora(run)))
      for (const auto& parameter : unit.parameters)
        packed += parameter.packing != layout::Packing::None;
    EXPECT_GE(packed, model.num_layers) << "none is without linear layers";
    const BothBases both(run, 2);
    EXPECT_LT(apart(both.losses[1], both.losses[0]), 1e-5);
    EXPECT_NE(both.losses[1].front(), both.losses[1].back());
    if (testing::Test::HasFailure()) return;
    ++families;
  }
  EXPECT_GE(families, 60);
}

/// Whatever the stage, the world and the type, no rank holds more than codes, scales and one product's
/// weight; and of each class just what the plan says.
TEST(Qlora, ThePlanKnowsTheBytes) {
  using dsconfig::Precision;
  for (const int world : {1, 2, 3}) {
    for (const int stage : {0, 1, 2}) {
      for (const auto precision : {Precision::Fp32, Precision::Bf16}) {
        for (const bool two_levels : {false, true}) {
          SmallRun run = on_four_bits(world, stage, two_levels);
          run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype =
              precision;
          const auto model = plan::memory_model({.model = fixture_model(run.model),
                                                 .config = run.config,
                                                 .world = world,
                                                 .tokens_per_row = 24,
                                                 .lora = resolved_lora(run)});
          SCOPED_TRACE("world " + std::to_string(world) + " stage " + std::to_string(stage));
          measure_ranks(run, [&](Rank& rank, const memory::Ledger& ledger) {
            EXPECT_EQ(ledger.live(Class::Parameters), model.bytes.parameters);
            EXPECT_EQ(ledger.peak(Class::Parameters), model.bytes.parameters);
            EXPECT_LE(ledger.peak(Class::Buckets), model.bytes.buckets);
            EXPECT_LE(ledger.peak(Class::Optimizer), model.bytes.optimizer);
            int64_t codes = 0, scales = 0, elements = 0;
            for (const auto& flat : rank.state.plan().flats) {
              if (flat.packing() == layout::Packing::None) continue;
              codes += layout::packed_bytes(flat).codes;
              scales += layout::packed_bytes(flat).scales;
              elements += flat.parameter_numel();
            }
            EXPECT_EQ(model.packed_codes, codes);
            EXPECT_EQ(model.packed_scales, scales);
            EXPECT_LT(codes + scales, 0.6 * static_cast<double>(elements));
          });
        }
      }
    }
  }
}

TEST(Qlora, SixteenBitTypesAndAutocastTrain) {
  using dsconfig::Precision;
  const auto want = run_small(on_four_bits(2, 0));
  EXPECT_LT(want.losses.back(), want.losses.front());
  for (const auto precision : {Precision::Bf16, Precision::Fp16}) {
    auto run = on_four_bits(2, 2);
    run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype = precision;
    run.config.loss_scale = {.initial = std::ldexp(1.0, 12), .window = 100, .hysteresis = 1};
    EXPECT_LT(apart(run_small(run), want), 2e-2);
    run.config = small_config(1);
    run.config.autocast = {precision, {"torch.nn.Linear"}};
    run.config.loss_scale = {
        .initial = std::ldexp(1.0, 12), .window = 100, .hysteresis = 1, .like_torch = true};
    EXPECT_LT(apart(run_small(run), want), 2e-2);
    const auto bytes = plan::memory_model({.model = fixture_model(run.model),
                                           .config = run.config,
                                           .world = run.world,
                                           .tokens_per_row = 24,
                                           .lora = resolved_lora(run)})
                           .bytes;
    measure_ranks(run, [&](Rank&, const memory::Ledger& ledger) {
      EXPECT_EQ(ledger.peak(Class::Parameters), bytes.parameters);
      EXPECT_LE(ledger.peak(Class::Buckets), bytes.buckets);
    });
  }
}

/// Writes one element of an F32 tensor of a safetensors file.
void change_element(const std::string& path, const std::string& name, int64_t element,
                    float value) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  std::string header(length, ' ');
  file.read(header.data(), static_cast<std::streamsize>(length));
  const auto tensor = nlohmann::json::parse(header)[name];
  ASSERT_EQ(tensor["dtype"], "F32");
  const int64_t begin = tensor["data_offsets"][0];
  file.seekp(static_cast<std::streamoff>(sizeof length + length) + begin + 4 * element);
  file.write(reinterpret_cast<const char*>(&value), sizeof value);
  ASSERT_TRUE(file.good());
}

/// A run refuses the base by this name (engine/train/step/finite_guard.h).
TEST(Qlora, AWeightThatIsNotFiniteIsNamed) {
  testing_support::run_ranks(1, [&](comm::Collectives& group, memory::Ledger&) {
    const SmallRun run = on_four_bits(1, 0);
    const std::string bad = "model.layers.1.mlp.up_proj.weight";
    const std::string directory =
        testing::TempDir() + "not_finite_in_4_bits_" + std::to_string(getpid());
    std::filesystem::remove_all(directory);
    std::filesystem::copy(fixture(run.model), directory);
    std::filesystem::permissions(directory + "/model.safetensors",
                                 std::filesystem::perms::owner_all);
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, fixture(run.model));
    ASSERT_TRUE(source);
    for (const float worst : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF}) {
      Rank rank(run, group);
      ASSERT_TRUE(rank.state.load(*source));
      EXPECT_EQ(rank.state.first_bad_frozen_weight(), "");
      const std::string path = directory + "/model.safetensors";
      ASSERT_NO_FATAL_FAILURE(change_element(path, bad, 7, worst));
      const auto changed = weights::WeightSource::open(files, directory);
      ASSERT_TRUE(changed);
      Rank other(run, group);
      ASSERT_TRUE(other.state.load(*changed));
      EXPECT_EQ(other.state.first_bad_frozen_weight(), bad);
    }
    std::filesystem::remove_all(directory);
  });
}

}  // namespace
}  // namespace dsj::train
