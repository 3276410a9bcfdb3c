// Whole steps on a GPU against the CPU's, and answers: every fixture of a model type, and each way to update a model.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/comm/single.h"
#include "engine/device/device.h"
#include "engine/train/answer/generator.h"
#include "engine/train/step/step.h"
#include "engine/weights/weight_source.h"
#include "engine/zero/model_state.h"
#include "tests/engine/gpu/gpu.h"

namespace dsj::gpu {
namespace {

using dsconfig::OptimizerKind;
using dsconfig::Precision;

struct Run {
  std::string name;
  std::string model = "tiny-qwen2";
  dsconfig::ResolvedConfig config = {};
  std::optional<LoraArgs> lora = {};
  bool recompute = false;
  double bound = 1e-4;  ///< of a loss, relative; ten times that of a gradient norm
};

struct Seen {
  std::vector<double> losses, norms;
};

constexpr int64_t kSteps = 4;

/// Ragged rows, the first of them without targets at its start; the same on each device.
std::vector<models::MicroBatch> batches(const Run& run, int64_t step, int64_t vocabulary,
                                        at::Device place) {
  std::vector<models::MicroBatch> all;
  for (int64_t i = 0; i < run.config.gradient_accumulation_steps; ++i) {
    const std::vector<int64_t> lengths = {13, 3, 16, 8};
    std::vector<int64_t> ids;
    uint64_t state = 88172645463325252ull + static_cast<uint64_t>(step * 8 + i);
    for (int64_t at = 0; at < 40; ++at) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      ids.push_back(static_cast<int64_t>(state % static_cast<uint64_t>(vocabulary)));
    }
    const at::Tensor here = at::tensor(ids);
    at::Tensor labels = here.clone();
    labels.narrow(0, 0, 6).fill_(-100);
    all.push_back({device::upload(here, place), labels, models::RowBounds(lengths, place)});
  }
  return all;
}

Seen steps(const Run& run, at::Device place) {
  const c10::AutoGradMode no_autograd(false);
  const std::string folder = source_dir() + "/tests/fixtures/" + run.model;
  const auto model = layout::read_model_config(folder);
  if (!model) throw std::runtime_error(model.error().to_string());
  std::optional<LoraArgs> lora;
  if (run.lora) lora = layout::resolve_lora(*model, *run.lora).value();
  const auto group = comm::make_single(place);
  zero::ModelState state(*model, run.config, place, *group, lora);
  train::Stepper stepper(*model, run.config, {.recompute = run.recompute}, state, place);
  PosixFiles files;
  const auto source = weights::WeightSource::open(files, folder);
  if (const auto loaded = state.load(*source); !loaded)
    throw std::runtime_error(loaded.error().to_string());
  Seen seen;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto rows = batches(run, step, model->vocab_size, place);
    const double lr = run.config.optimizer.lr;
    const auto done = stepper.run({.micro_batches = rows,
                                   .step = step,
                                   .rates = {.lr = lr, .previous_lr = lr},
                                   .tokens = 40 * std::ssize(rows)});
    seen.losses.push_back(done.loss);
    seen.norms.push_back(done.grad_norm);
  }
  return seen;
}

double apart(const std::vector<double>& a, const std::vector<double>& b) {
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double one = std::abs(a[i] - b[i]) / std::abs(b[i]);
    most = std::isnan(one) ? INFINITY : std::max(most, one);
  }
  return most;
}

void expect_the_cpus(const Run& run) {
  const Seen there = steps(run, *gpu().place), here = steps(run, at::kCPU);
  const double losses = apart(there.losses, here.losses), norms = apart(there.norms, here.norms);
  std::printf("result: %s: losses %.1e, norms %.1e apart\n", run.name.c_str(), losses, norms);
  EXPECT_LE(losses, run.bound) << testing::PrintToString(there.losses) << " and "
                               << testing::PrintToString(here.losses);
  EXPECT_LE(norms, 10 * run.bound)
      << testing::PrintToString(there.norms) << " and " << testing::PrintToString(here.norms);
}

dsconfig::ResolvedConfig config_of(int stage, Precision precision = Precision::Fp32) {
  dsconfig::ResolvedConfig config;
  config.precision = config.communication_dtype = precision;
  config.gradient_accumulation_steps = 2;
  config.gradient_clipping = 1;
  config.zero.stage = stage;
  config.zero.overlap_comm = true;
  config.zero.param_persistence_threshold = 64;
  config.optimizer.lr = 1e-3;
  return config;
}

/// Without a GPU one stands for all: each would be skipped for the same reason.
std::vector<std::string> fixtures() {
  if (!gpu().place) return {"tiny-qwen2"};
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& one :
       std::filesystem::directory_iterator(source_dir() + "/tests/fixtures", none)) {
    const std::string name = one.path().filename().string();
    if (name.starts_with("tiny-") && std::filesystem::exists(one.path() / "config.json"))
      names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::string as_case(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

class EveryModel : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { DSJ_NEEDS_GPU(); }
};

TEST_P(EveryModel, HasTheCpusSteps) {
  expect_the_cpus({.name = GetParam() + " fp32", .model = GetParam(), .config = config_of(0)});
}
/// In bf16 each result is rounded to 8 bits, some hundred times in a row.
TEST_P(EveryModel, HasTheCpusStepsInBf16) {
  expect_the_cpus({.name = GetParam() + " bf16",
                   .model = GetParam(),
                   .config = config_of(3, Precision::Bf16),
                   .bound = 2e-2});
}
std::vector<std::vector<int32_t>> answers(const std::string& folder, at::Device place) {
  const c10::AutoGradMode no_autograd(false);
  const auto model = layout::read_model_config(folder).value();
  const auto group = comm::make_single(place);
  train::Generator generator(model, *group, std::nullopt, place);
  PosixFiles files;
  const auto source = weights::WeightSource::open(files, folder);
  if (const auto loaded = generator.load(*source); !loaded)
    throw std::runtime_error(loaded.error().to_string());
  const std::vector<std::vector<int32_t>> prompts{{5, 9, 40}, {7, 7, 7}};
  return generator.complete(prompts, 5, {});
}
TEST_P(EveryModel, AnswersAsTheCpuDoes) {
  const std::string folder = source_dir() + "/tests/fixtures/" + GetParam();
  EXPECT_EQ(answers(folder, *gpu().place), answers(folder, at::kCPU));
}
INSTANTIATE_TEST_SUITE_P(Fixtures, EveryModel, testing::ValuesIn(fixtures()),
                         [](const auto& info) { return as_case(info.param); });

std::vector<Run> updates() {
  if (!gpu().place) return {{.name = "adamw"}};
  std::vector<Run> all;
  const auto add = [&](const std::string& name, const std::function<void(Run&)>& change) {
    Run run{.name = name, .config = config_of(2)};
    change(run);
    all.push_back(run);
  };
  const std::pair<const char*, OptimizerKind> kinds[] = {
      {"sgd", OptimizerKind::Sgd},
      {"adagrad", OptimizerKind::Adagrad},
      {"rmsprop", OptimizerKind::RMSprop},
      {"lion", OptimizerKind::Lion},
      {"lamb", OptimizerKind::Lamb},
      {"adadelta", OptimizerKind::Adadelta},
      {"adamax", OptimizerKind::Adamax},
      {"nadam", OptimizerKind::NAdam},
      {"radam", OptimizerKind::RAdam},
      {"asgd", OptimizerKind::Asgd},
      {"rprop", OptimizerKind::Rprop},
      {"onebit_adam", OptimizerKind::OneBitAdam},
      {"onebit_lamb", OptimizerKind::OneBitLamb},
      {"zeroone_adam", OptimizerKind::ZeroOneAdam},
      {"muon", OptimizerKind::Muon}};
  for (const auto& [name, kind] : kinds) {
    add(name, [kind = kind](Run& run) {
      run.config.optimizer.kind = kind;
      run.config.zero.stage = kind == OptimizerKind::Muon ? 2 : 0;
      run.config.gradient_clipping = 0;
    });
  }
  add("adamw_8bit", [](Run& run) {
    run.config.optimizer.eight_bit = true;
    run.bound = 1e-3;  // a moment beside a boundary of two codes falls to either side
  });
  add("fp16", [](Run& run) {
    run.config.precision = run.config.communication_dtype = Precision::Fp16;
    run.config.loss_scale.initial = 1024;
    run.bound = 5e-3;
  });
  add("sparse_gradients", [](Run& run) { run.config.sparse_gradients = true; });
  add("recompute", [](Run& run) { run.recompute = true; });
  const auto lora = [&](const std::string& name, const std::function<void(Run&)>& change) {
    add("lora" + name, [&](Run& run) {
      run.lora = LoraArgs{.r = 4, .target_pattern = "all-linear"};
      change(run);
    });
  };
  lora("", [](Run&) {});
  lora("_stage3", [](Run& run) { run.config.zero.stage = 3; });
  lora("_dora", [](Run& run) { run.lora->use_dora = true; });
  lora("_4bit", [](Run& run) { run.lora->load_in_4bit = true; });
  lora("_4bit_one_level", [](Run& run) {
    run.lora->load_in_4bit = true;
    run.lora->double_quant = false;
  });
  lora("_4bit_bf16", [](Run& run) {
    run.lora->load_in_4bit = true;
    run.config.precision = run.config.communication_dtype = Precision::Bf16;
    run.bound = 2e-2;
  });
  lora("_experts", [](Run& run) { run.model = "tiny-qwen3-moe"; });
  for (const bool parameters : {false, true}) {
    add(parameters ? "offload_all" : "offload_states", [&](Run& run) {
      run.config.zero.stage = parameters ? 3 : 2;
      run.config.offload.optimizer.device = dsconfig::OffloadDevice::Cpu;
      run.config.offload.optimizer.pin_memory = run.config.offload.param.pin_memory = true;
      if (parameters) run.config.offload.param.device = dsconfig::OffloadDevice::Cpu;
    });
  }
  return all;
}

class EveryUpdate : public testing::TestWithParam<Run> {
 protected:
  void SetUp() override { DSJ_NEEDS_GPU(); }
};
TEST_P(EveryUpdate, HasTheCpusSteps) {
  expect_the_cpus(GetParam());
}
INSTANTIATE_TEST_SUITE_P(Ways, EveryUpdate, testing::ValuesIn(updates()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dsj::gpu
