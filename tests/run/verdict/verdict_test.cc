// Whatever `dsj validate` passes, the ranks read and load: jobs drawn from a seed, each with some
// changes to its arguments, its ds_config and the files that it names, many of them faults. The verdict
// is check_job(), which validate, plan and run share; the ranks are engine/train's own reader, the
// loading of weights and the first row. Some of them are whole runs of `dsj run`.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <sstream>

#include "cli/check/job_check.h"
#include "cli/input.h"
#include "common/files/posix_files.h"
#include "engine/data/tokenizer/byte_alphabet.h"
#include "engine/train/inputs/inputs.h"
#include "engine/train/inputs/metric_rows.h"
#include "engine/weights/weight_source.h"
#include "engine/zero/model_state.h"
#include "job/spec/job.h"
#include "test_paths.h"
#include "tests/cli/model_files.h"
#include "tests/engine/support/ranks.h"

namespace dsj {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kJobs = 2000;

/// A byte-level tokenizer: ids 0 to 255 are the bytes, then the special tokens.
json byte_tokenizer() {
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocab[data::to_byte_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  json added = json::array();
  int id = 256;
  for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    added.push_back({{"id", id++},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", bytes},
          {"post_processor", bytes},
          {"decoder", bytes},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", json::array()}}}};
}

std::string read_text(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  int64_t below(int64_t most) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(most));
  }
  bool chance(int64_t of) { return below(of) == 0; }
  template <typename T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(std::ssize(values)))];
  }

 private:
  std::mt19937_64 random_;
};

/// A job that runs, and what can be changed of it.
class World {
 public:
  explicit World(fs::path folder) : folder_(std::move(folder)) {
    fs::create_directories(folder_);
    json config = cli::small_config();
    config["hidden_size"] = 16, config["intermediate_size"] = 24, config["vocab_size"] = 320;
    config["max_position_embeddings"] = 64;
    for (const char* name : {"plain", "spoken"}) cli::write_model(folder_ / name, config);
    write("spoken/tokenizer.json", byte_tokenizer().dump());
    write("spoken/tokenizer_config.json",
          json{{"eos_token", "<|im_end|>"}, {"tokenizer_class", "PreTrainedTokenizerFast"}}.dump());
  }
  ~World() { fs::remove_all(folder_); }

  /// Writes job number `seed`: its manifest's path. `drawn` says what was changed.
  std::string make(uint64_t seed, std::string& drawn) {
    Draw draw(seed);
    const bool text = draw.chance(2);
    chat_ = false;
    fs::remove_all(folder_ / "drawn");
    fs::create_directories(folder_ / "drawn");
    fs::copy(folder_ / (text ? "spoken" : "plain"), folder_ / "drawn/model");
    write("drawn/rows.json", text ? rows_of_text(draw).dump() : cli::token_rows(12, 6).dump());
    training_ = {{"modelNameOrPath", at("drawn/model")},
                 {"dataPath", at("drawn/rows.json")},
                 {"outputDir", at("drawn/out")},
                 {"maxSteps", 3},
                 {"learningRate", 1e-4}};
    config_ = {{"train_micro_batch_size_per_gpu", 2},
               {"zero_optimization", {{"stage", draw.below(4)}}}};
    workers_ = 1 + draw.below(2);
    for (int64_t changes = draw.below(4); changes > 0; --changes) {
      const std::string what = change(draw);
      drawn += (drawn.empty() ? "" : "; ") + what;
    }
    const json job = {{"apiVersion", "training.dsj.dev/v1alpha1"},
                      {"kind", "DeepSpeedJob"},
                      {"metadata", {{"name", "drawn"}}},
                      {"spec",
                       {{"deepspeed", {{"config", config_}}},
                        {"workers", {{"slotsPerWorker", workers_}}},
                        {"training", training_}}}};
    write("drawn/job.yaml", job.dump(1));
    return at("drawn/job.yaml");
  }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

 private:
  json rows_of_text(Draw& draw) {
    json rows = json::array();
    chat_ = draw.chance(2);
    for (int row = 0; row < 12; ++row) {
      if (!chat_)
        rows.push_back({{"instruction", "say " + std::to_string(row)}, {"output", "yes"}});
      else
        rows.push_back({{"messages",
                         {{{"role", "user"}, {"content", "hi"}},
                          {{"role", "assistant"}, {"content", "yo"}}}}});
    }
    return rows;
  }

  std::string change(Draw& draw) {
    switch (draw.below(chat_ ? 10 : 9)) {
      case 0:
      case 1:
      case 2:
        return change_argument(draw);
      case 3:
      case 4:
        return change_config(draw);
      case 5:
        return change_shape(draw);
      case 6:
        return tear(draw, "drawn/rows.json");
      case 7:
        return tear(draw, "drawn/model/model.safetensors");
      case 8:
        return fs::exists(folder_ / "drawn/model/tokenizer.json")
                   ? tear(draw, "drawn/model/tokenizer.json")
                   : change_argument(draw);
      default:
        training_["chatTemplate"] = draw.one_of<std::string>({"chatml", "llama2", "mistral", "x"});
        return "chatTemplate " + training_["chatTemplate"].dump();
    }
  }

  std::string change_argument(Draw& draw) {
    static const std::vector<std::pair<std::string, json>> values = {
        {"perDeviceTrainBatchSize", 2},
        {"perDeviceTrainBatchSize", 3},
        {"gradientAccumulationSteps", 2},
        {"gradientAccumulationSteps", 0},
        {"maxSteps", -1},
        {"maxSteps", 0},
        {"maxSteps", int64_t{1} << 40},
        {"numTrainEpochs", 0.01},
        {"numTrainEpochs", 1e12},
        {"maxSeqLength", 1},
        {"maxSeqLength", 5},
        {"maxSeqLength", int64_t{1} << 61},
        {"learningRate", 0},
        {"learningRate", -1},
        {"learningRate", 1e300},
        {"weightDecay", 0.1},
        {"warmupRatio", 0.5},
        {"warmupSteps", 7},
        {"lrSchedulerType", "cosine"},
        {"lrSchedulerType", "polynomial"},
        {"lrSchedulerType", "reduce_lr_on_plateau"},
        {"bf16", true},
        {"fp16", true},
        {"packing", true},
        {"groupByLength", true},
        {"gradientCheckpointing", true},
        {"validationSplitPercentage", 30},
        {"validationSplitPercentage", 100},
        {"evaluationStrategy", "epoch"},
        {"evaluationStrategy", "steps"},
        {"evalDataPath", "/no/such.json"},
        {"saveStrategy", "epoch"},
        {"saveStrategy", "best"},
        {"saveSteps", 0},
        {"saveTotalLimit", 1},
        {"resumeFromCheckpoint", "/no/such"},
        {"lora", json::object()},
        {"lora", {{"targetModules", {"q_proj", "up_proj"}}, {"r", 2}}},
        {"lora", {{"targetModules", {"no_proj"}}}},
        {"optim", "adamw_torch"},
        {"optim", "lomo"},
        {"dataPath", "/no/such.json"},
        {"modelNameOrPath", "/no/such"},
        {"outputDir", "/proc/no/such"}};
    const auto& [name, value] = draw.one_of(values);
    training_[name] = value;
    return name + " " + value.dump();
  }

  std::string change_config(Draw& draw) {
    static const std::vector<json> patches = {
        {{"wandb", {{"enabled", true}}}},
        {{"nebula", {{"enabled", true}}}},
        {{"zero_optimization", {{"zero_quantized_weights", true}, {"stage", 3}}}},
        {{"zero_optimization", {{"zeropp_loco_param", {{"reset_T", 8}}}, {"stage", 3}}}},
        {{"zero_optimization", {{"zero_quantized_gradients", true}, {"stage", 3}}}},
        {{"zero_optimization", {{"stage", 9}}}},
        {{"zero_optimization", {{"stage", 3}, {"offload_param", {{"device", "cpu"}}}}}},
        {{"zero_optimization", {{"stage", 2}, {"offload_optimizer", {{"device", "cpu"}}}}}},
        {{"zero_optimization", {{"reduce_bucket_size", 1000}, {"overlap_comm", true}}}},
        {{"train_batch_size", 7}},
        {{"train_batch_size", 12}},
        {{"gradient_accumulation_steps", 3}},
        {{"bf16", {{"enabled", true}}}},
        {{"fp16", {{"enabled", true}}}},
        {{"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-3}}}}}},
        {{"optimizer", {{"type", "Lion"}, {"params", {{"lr", 1e-3}}}}}},
        {{"optimizer", {{"type", "OneBitAdam"}, {"params", {{"lr", 1e-3}, {"freeze_step", 1}}}}}},
        {{"optimizer", {{"type", "Muon"}, {"params", {{"lr", 1e-3}}}}}},
        {{"optimizer", {{"type", "Unheard"}}}},
        {{"optimizer", {{"type", "Adam"}, {"params", {{"betas", {0.9}}}}}}},
        {{"scheduler",
          {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 2}, {"warmup_max_lr", 1e-3}}}}}},
        {{"scheduler", {{"type", "WarmupDecayLR"}, {"params", {{"total_num_steps", "auto"}}}}}},
        {{"scheduler", {{"type", "OneCycle"}, {"params", json::object()}}}},
        {{"gradient_clipping", 1.0}},
        {{"gradient_clipping", "much"}},
        {{"sparse_gradients", true}},
        {{"my_own_key", 1}},
        {{"elasticity",
          {{"enabled", true},
           {"max_train_batch_size", 8},
           {"micro_batch_sizes", {2}},
           {"version", 0.1}}}},
        {{"activation_checkpointing", {{"partition_activations", true}}}},
        {{"communication_data_type", "fp16"}},
        {{"autotuning", {{"enabled", true}}}}};
    const json& patch = draw.one_of(patches);
    config_.merge_patch(patch);
    return patch.dump();
  }

  /// Another number or word in config.json.
  std::string change_shape(Draw& draw) {
    const fs::path path = folder_ / "drawn/model/config.json";
    json config = json::parse(read_text(path), nullptr, false);
    if (!config.is_object()) return "config.json stays broken";
    static const std::vector<json> values = {0,
                                             -1,
                                             1,
                                             3,
                                             int64_t{1} << 31,
                                             int64_t{1} << 62,
                                             1e300,
                                             0.5,
                                             "x",
                                             nullptr,
                                             true,
                                             json::array(),
                                             48,
                                             320};
    std::vector<std::string> keys = {"head_dim", "rope_scaling", "sliding_window", "layer_types"};
    for (const auto& [key, value] : config.items()) keys.push_back(key);
    const std::string key = draw.one_of(keys);
    config[key] = draw.one_of(values);
    std::ofstream(path) << config.dump();
    return "config.json: " + key + " " + config[key].dump();
  }

  /// Cut off, a byte changed, emptied, or gone.
  std::string tear(Draw& draw, const std::string& name) {
    const fs::path path = folder_ / name;
    std::string text = read_text(path);
    if (!fs::exists(path) || text.empty()) return name + " stays gone";
    const auto place = static_cast<size_t>(draw.below(std::ssize(text)));
    switch (draw.below(5)) {
      case 0:
        fs::remove(path);
        return name + " is gone";
      case 1:
        std::ofstream(path, std::ios::binary) << "";
        return name + " is empty";
      case 2:
        fs::resize_file(path, place);
        return name + " is cut at " + std::to_string(place);
      default: {
        const size_t early = draw.chance(2) ? place : place % 400;
        text[std::min(early, text.size() - 1)] = static_cast<char>(draw.below(256));
        std::ofstream(path, std::ios::binary) << text;
        return name + ": byte " + std::to_string(early);
      }
    }
  }

  const fs::path folder_;
  json training_, config_;
  int64_t workers_ = 1;
  bool chat_ = false;
};

/// As a rank does it, up to its first step; empty: it is ready.
std::string ranks_say(const jobspec::Job& job, const std::string& file) {
  std::ofstream(file) << to_json(jobspec::to_job_file(job, 1, job.world_size()));
  const auto in = train::read_inputs({.world_size = job.world_size(), .job_file = file});
  if (!in) return in.error().to_string();
  if (const auto chosen = train::MetricRows::read(*in); !chosen) return chosen.error().to_string();
  if (const auto row = in->dataset->at(in->first_row()); !row) return row.error().to_string();
  std::string said;
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, job.training.model_name_or_path);
    if (!source) {
      said = source.error().to_string();
      return;
    }
    zero::ModelState state(in->model, in->config(), at::kCPU, collectives, in->lora, {});
    if (const auto loaded = state.load(*source, {}); !loaded) said = loaded.error().to_string();
  });
  return said;
}

/// A machine with room for everything: what fits is not the question here.
class Plenty : public cli::Machine {
 public:
  std::optional<int64_t> container_memory() const override { return int64_t{1} << 50; }
  std::optional<int64_t> memory() const override { return int64_t{1} << 50; }
  std::optional<int64_t> free_disk(const std::string&) const override { return int64_t{1} << 55; }
  std::string lacking_gpu() const override { return {}; }
  std::optional<int64_t> gpu_memory() const override { return std::nullopt; }
};

TEST(Verdict, WhateverValidatePassesTheRanksReadAndLoad) {
  setenv("DSJ_ROWS_CACHE", "0", 1);
  World world(fs::temp_directory_path() / ("dsj-verdict-" + std::to_string(getpid())));
  int passed = 0, changed = 0;
  for (int seed = 0; seed < kJobs; ++seed) {
    std::string drawn;
    const std::string file = world.make(static_cast<uint64_t>(seed), drawn);
    SCOPED_TRACE("job " + std::to_string(seed) + ": " + drawn);
    const auto input = cli::read_input(file);
    ASSERT_TRUE(input) << input.error().to_string();
    if (input->syntax) continue;
    const auto check = cli::check_job(*input->job, {}, Plenty());
    if (!check.passes()) continue;
    ++passed;
    changed += !drawn.empty();
    jobspec::Job job = *input->job;
    job.training.model_name_or_path = check.around.model_directory;
    const std::string said = ranks_say(job, world.at("drawn/job.json"));
    EXPECT_EQ(said, "");
  }
  std::cout << kJobs << " jobs: " << passed << " pass, " << changed << " of them changed"
            << std::endl;
  EXPECT_GT(passed, kJobs / 4);
  EXPECT_GT(changed, kJobs / 10);
  EXPECT_LT(passed, kJobs * 3 / 4) << "most changes are faults";
}

/// The exit code of `dsj run FILE`; its words lie beside the file.
int run(const std::string& file) {
  const std::string log = file + ".log";
  const int status = std::system(
      (std::string(DSJ_BIN_DIR) + "/dsj run " + file + " >" + log + " 2>&1 </dev/null").c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(Verdict, WhatPassesTrainsAndWhatDoesNotLeavesNothing) {
  setenv("DSJ_ROWS_CACHE", "0", 1);
  World world(fs::temp_directory_path() / ("dsj-verdict-run-" + std::to_string(getpid())));
  int trained = 0, refused = 0;
  for (uint64_t seed = 1'000'000; trained < 12 || refused < 6; ++seed) {
    ASSERT_LT(seed, 1'001'000u);
    std::string drawn;
    const std::string file = world.make(seed, drawn);
    SCOPED_TRACE("job " + std::to_string(seed) + ": " + drawn);
    const auto input = cli::read_input(file);
    ASSERT_TRUE(input) << input.error().to_string();
    const auto check = cli::check_job(*input->job, {}, cli::ThisMachine());
    const int64_t steps = check.resolution.config.total_steps;
    if (check.passes() ? trained >= 12 || steps > 12 || drawn.empty() : refused >= 6) continue;
    const int code = run(file);
    const std::string said = read_text(file + ".log");
    if (check.passes()) {
      ++trained;
      EXPECT_EQ(code, 0) << said;
      const std::string metrics = read_text(world.at("drawn/out/metrics.jsonl"));
      EXPECT_NE(metrics.find("\"step\":" + std::to_string(steps)), std::string::npos) << metrics;
    } else {
      ++refused;
      EXPECT_EQ(code, 1) << said;
      EXPECT_NE(said.find("nothing was started"), std::string::npos) << said;
      EXPECT_FALSE(fs::exists(world.at("drawn/out")));
    }
  }
}

}  // namespace
}  // namespace dsj
