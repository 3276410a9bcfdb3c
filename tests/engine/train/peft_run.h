// Runs that PEFT made, with an adapter before and after: the engine's losses, norms and adapters beside them.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/weights/adapter.h"
#include "tests/engine/train/support.h"

namespace dsj::train {

/// A run of tests/oracle/peft_oracle.py or qlora_oracle.py.
struct PeftRun {
  explicit PeftRun(const std::string& name) : directory(fixture("lora/" + name)) {
    data = nlohmann::json::parse(std::ifstream(directory + "/run.json"));
    PosixFiles files;
    const auto config = weights::read_adapter_config(files, directory + "/initial");
    EXPECT_TRUE(config) << config.error().to_string();
    lora = config->lora;
    const auto base = data.value("base_in_4_bits", nlohmann::json());
    lora.load_in_4bit = !base.is_null();
    lora.double_quant = lora.load_in_4bit && base["two_levels"] == true;
  }

  SmallRun small(int world, int stage, bool recompute) const {
    SmallRun run{.model = data["base"], .world = world, .recompute = recompute, .lora = lora};
    run.normalization = dsconfig::LossNormalization::MicroBatch;  // the mean of the rows' means
    run.config = small_config(stage, /*micro=*/1, /*accumulation=*/2 / world);
    take_adamw(data["adamw"], run.config);
    run.config.optimizer.lora_plus_ratio = data.value("loraplus_lr_ratio", 1.0);
    return run;
  }

  models::MicroBatch row(int64_t index) const { return row_of(data["rows"], index); }

  std::string directory;
  nlohmann::json data;
  LoraArgs lora;
};

/// `tolerance`: of a loss, relative; gradient norms have ten times that.
inline void expect_pefts_numbers(const PeftRun& peft, const SmallRun& run,
                                 double tolerance = 1e-6) {
  testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    PosixFiles files;
    const auto base = weights::WeightSource::open(files, fixture(run.model));
    const auto initial = weights::WeightSource::open_file(
        files, peft.directory + "/initial/" + weights::kAdapterWeightsFile);
    ASSERT_TRUE(base && initial);
    const auto loaded = rank.state.load(*base, {.saved = &*initial});
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    EXPECT_EQ(layout::trainable_numel(rank.state.units()), peft.data["trainable"].get<int64_t>());
    const auto steps = static_cast<int64_t>(peft.data["loss"].size());
    for (int64_t step = 0; step < steps; ++step) {
      std::vector<models::MicroBatch> batches;
      for (int64_t i = 0; i < run.config.gradient_accumulation_steps; ++i)
        batches.push_back(peft.row(2 * step + i + collectives.rank()));
      const auto done = rank.stepper.run({.micro_batches = batches,
                                          .step = step,
                                          .rates = {.lr = run.config.optimizer.lr},
                                          .tokens = 1});
      const double loss = peft.data["loss"][step], norm = peft.data["grad_norm"][step];
      EXPECT_NEAR(done.loss, loss, tolerance * loss) << "step " << step;
      EXPECT_NEAR(done.grad_norm, norm, 10 * tolerance * norm) << "step " << step;
    }
    const auto trained = weights::WeightSource::open_file(
        files, peft.directory + "/final/" + weights::kAdapterWeightsFile);
    ASSERT_TRUE(trained);
    size_t compared = 0;
    rank.state.visit_weights(
        [&](const layout::Slot& slot, const at::Tensor& value) {
          const std::string name = weights::kAdapterPrefix + slot.name;
          ASSERT_TRUE(trained->find(name)) << name;
          at::Tensor want = at::empty({slot.numel});
          ASSERT_TRUE(
              trained->read(name, 0, {want.data_ptr<float>(), static_cast<size_t>(slot.numel)}));
          EXPECT_LT((value.reshape({-1}) - want).norm().item<double>(),
                    1e-4 * want.norm().item<double>())
              << name;
          ++compared;
        },
        /*trained_only=*/true);
    const size_t copies = peft.lora.ensure_weight_tying ? 1 : 0;  // of the tied weight
    EXPECT_EQ(compared, collectives.rank() == 0 ? trained->tensors().size() - copies : 0);
  });
}

}  // namespace dsj::train
