#include "engine/weights/export.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "common/files/faulty_files.h"
#include "common/files/memory_files.h"
#include "engine/weights/weight_source.h"

namespace dsj::weights {
namespace {

const std::vector<ExportTensor> kTensors = {{"w", {2, 2}}, {"b", {2}}};

Status run_export(Files& files, const ExportOptions& options, float value) {
  DSJ_TRY(auto model, ModelExport::begin(files, options, kTensors));
  const std::vector<float> values(4, value);
  DSJ_TRY_STATUS(model.append("w", values));
  DSJ_TRY_STATUS(model.append("b", std::span(values).first(2)));
  return model.publish();
}

/// The same by three ranks, in files of at most 8 bytes of values: each tensor has its own.
constexpr int kRanks = 3;
const std::vector<ExportTensor> kThree = {{"w", {2, 2}}, {"b", {2}}, {"c", {4}}, {"d", {3}}};

Status run_dealt(const std::vector<Files*>& files, ExportOptions options, float value,
                 const std::function<void()>& before_publish = {}) {
  options.shard_bytes_max = 8;
  std::vector<ModelExport> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    options.share = {.rank = rank, .world = kRanks};
    DSJ_TRY(auto model, ModelExport::begin(*files[size_t(rank)], options, kThree));
    ranks.push_back(std::move(model));
  }
  const std::vector<float> values(4, value);
  for (const ExportTensor& tensor : kThree) {
    int writers = 0;
    for (ModelExport& model : ranks) {
      if (!model.writes(tensor.name)) continue;
      ++writers;
      size_t count = 1;
      for (const int64_t extent : tensor.shape) count *= size_t(extent);
      DSJ_TRY_STATUS(model.append(tensor.name, std::span(values).first(count)));
    }
    EXPECT_EQ(writers, 1) << tensor.name;
  }
  for (ModelExport& model : ranks) DSJ_TRY_STATUS(model.finish());
  if (before_publish) before_publish();
  return ranks.front().publish();
}

Status run_dealt(Files& files, const ExportOptions& options, float value) {
  return run_dealt({&files, &files, &files}, options, value);
}

float exported_value(Files& files, const std::string& directory) {
  auto source = WeightSource::open(files, directory);
  std::vector<float> w(4, -1), b(2, -2);
  if (!source || !source->read("w", 0, w) || !source->read("b", 0, b)) return -1;
  return w[3] == b[1] ? w[0] : -2;
}

class Export : public testing::Test {
 protected:
  void SetUp() override { prepare(files_); }
  static void prepare(Files& files) {
    ASSERT_TRUE(files.make_dirs("/source"));
    ASSERT_TRUE(files.make_dirs("/out"));
    ASSERT_TRUE(files.write_atomically(
        "/source/config.json",
        R"({"zeta":1,"model_type":"qwen2","torch_dtype":"float32","rope_theta":1000000.0})"));
    ASSERT_TRUE(files.write_atomically("/source/tokenizer.json", "{\"t\":1}"));
    ASSERT_TRUE(files.write_atomically("/source/unrelated.bin", "x"));
    ASSERT_TRUE(files.sync_dir("/"));
  }
  const ExportOptions options_{
      .source_dir = "/source", .target_dir = "/out/model", .dtype = DType::BF16};
  MemoryFiles files_;
};

TEST_F(Export, DirectoryWithConfigTokenizerAndWeights) {
  ASSERT_TRUE(run_export(files_, options_, 3));
  EXPECT_EQ(exported_value(files_, "/out/model"), 3);
  EXPECT_EQ(*files_.read_all("/out/model/config.json"),
            "{\n  \"zeta\": 1,\n  \"model_type\": \"qwen2\",\n  \"torch_dtype\": \"bfloat16\",\n"
            "  \"rope_theta\": 1000000.0\n}\n");
  EXPECT_EQ(files_.read_all("/out/model/tokenizer.json"), "{\"t\":1}");
  EXPECT_EQ(files_.list_dir("/out/model")->size(), 3u);
  EXPECT_EQ(files_.list_dir("/out")->size(), 2u) << "the model, and the record of what was written";
}

/// The weights were unpacked when they were read; another method's object is not ours to remove.
TEST_F(Export, ConfigNamesNoPackingThatTheWeightsNoLongerHave) {
  const auto exported = [&](const char* method, const char* where) {
    nlohmann::json config = {{"model_type", "gpt_oss"}}, part;
    part["quantization_config"] = {{"quant_method", method}};
    if (std::string(where).empty())
      config.update(part);
    else
      config[where] = part;
    EXPECT_TRUE(files_.write_atomically("/source/config.json", config.dump()));
    EXPECT_TRUE(run_export(files_, options_, 3));
    return *files_.read_all("/out/model/config.json");
  };
  for (const char* method : {"mxfp4", "fp8"})
    for (const char* where : {"", "text_config"})
      EXPECT_EQ(exported(method, where).find("quantization_config"), std::string::npos) << method;
  EXPECT_NE(exported("bitsandbytes", "").find("quantization_config"), std::string::npos);
}

/// The card of the model that the run started from is about another model.
TEST_F(Export, TheModelCardIsTheNewOneOrNone) {
  ASSERT_TRUE(files_.write_atomically("/source/README.md", "of the base"));
  ASSERT_TRUE(run_export(files_, options_, 3));
  EXPECT_FALSE(*files_.exists("/out/model/README.md"));
  ExportOptions options = options_;
  options.card = "---\nbase_model: \"source\"\n---\n";
  ASSERT_TRUE(run_export(files_, options, 4));
  EXPECT_EQ(files_.read_all("/out/model/README.md"), options.card);
  ASSERT_TRUE(run_export(files_, options, 5));
  EXPECT_EQ(files_.list_dir("/out")->size(), 2u) << "a card that an export wrote is its own";
}

TEST_F(Export, AnotherEosTokenIsInEveryFileThatNamesIt) {
  ASSERT_TRUE(files_.write_atomically("/source/generation_config.json", R"({"eos_token_id":256})"));
  ASSERT_TRUE(files_.write_atomically("/source/tokenizer_config.json", R"({"eos_token":"</s>"})"));
  ExportOptions options = options_;
  options.eos = {"<|im_end|>", 258};
  ASSERT_TRUE(run_export(files_, options, 3));
  const auto read = [&](const char* name) {
    return nlohmann::json::parse(*files_.read_all(std::string("/out/model/") + name));
  };
  EXPECT_EQ(read("config.json")["eos_token_id"], 258);
  EXPECT_EQ(read("config.json")["torch_dtype"], "bfloat16");
  EXPECT_EQ(read("generation_config.json")["eos_token_id"], (nlohmann::json{258, 256}));
  EXPECT_EQ(read("tokenizer_config.json")["eos_token"], "<|im_end|>");
  EXPECT_EQ(files_.read_all("/out/model/tokenizer.json"), "{\"t\":1}");
}

/// As transformers 5 saves a tokenizer: the template in a file of its own, and nowhere else.
TEST_F(Export, AnotherChatTemplateReplacesTheModels) {
  ASSERT_TRUE(files_.write_atomically("/source/chat_template.jinja", "old"));
  ASSERT_TRUE(files_.write_atomically("/source/chat_template.json", R"({"chat_template":"old"})"));
  ASSERT_TRUE(files_.write_atomically("/source/tokenizer_config.json",
                                      R"({"z":1,"chat_template":"old","eos_token":"</s>"})"));
  ASSERT_TRUE(run_export(files_, options_, 3));
  EXPECT_EQ(files_.read_all("/out/model/chat_template.jinja"), "old") << "unless one is named";
  ExportOptions options = options_;
  options.chat_template = "{{ messages }}";
  ASSERT_TRUE(run_export(files_, options, 3));
  EXPECT_EQ(files_.read_all("/out/model/chat_template.jinja"), "{{ messages }}");
  EXPECT_FALSE(*files_.exists("/out/model/chat_template.json"));
  EXPECT_EQ(files_.read_all("/out/model/tokenizer_config.json"),
            "{\n  \"z\": 1,\n  \"eos_token\": \"</s>\"\n}\n");
}

TEST_F(Export, NewNameOfTheDtypeIsKept) {
  ASSERT_TRUE(files_.write_atomically("/source/config.json", R"({"dtype":"float32"})"));
  ASSERT_TRUE(run_export(files_, options_, 3));
  EXPECT_EQ(nlohmann::json::parse(*files_.read_all("/out/model/config.json")),
            (nlohmann::json{{"dtype", "bfloat16"}}));
}

TEST_F(Export, TargetWithASlashAndASecondExport) {
  ExportOptions options = options_;
  options.target_dir = "/out/model/";
  ASSERT_TRUE(run_export(files_, options, 3));
  ASSERT_TRUE(run_export(files_, options, 4));
  EXPECT_EQ(exported_value(files_, "/out/model"), 4);
  EXPECT_EQ(files_.list_dir("/out")->size(), 2u);
}

TEST_F(Export, WhatNoExportWroteIsKept) {
  const auto names = [&] {
    std::vector<std::string> all;
    const auto entries = files_.list_dir("/out");
    for (const DirEntry& entry : *entries) all.push_back(entry.name);
    return all;
  };
  ASSERT_TRUE(run_export(files_, options_, 1));
  ASSERT_TRUE(files_.write_synced("/out/model/README.md", "mine"));
  ASSERT_TRUE(run_export(files_, options_, 2));
  EXPECT_EQ(exported_value(files_, "/out/model"), 2);
  EXPECT_EQ(files_.read_all("/out/model.kept/README.md"), "mine");
  EXPECT_EQ(exported_value(files_, "/out/model.kept"), 1);
  ASSERT_TRUE(files_.write_synced("/out/model/config.json", "{\"edited\": true}"));
  ASSERT_TRUE(run_export(files_, options_, 3));
  EXPECT_EQ(files_.read_all("/out/model.kept-2/config.json"), "{\"edited\": true}");
  EXPECT_EQ(names(), (std::vector<std::string>{".model.export.json", "model", "model.kept",
                                               "model.kept-2"}));
}

/// One operation fails from the swap on, and the process lives: the new model stands, and what could
/// not be done is a warning. Making the names durable is another matter.
TEST_F(Export, AnOldModelThatCannotBeRemovedIsAWarning) {
  for (const bool can_exchange : {true, false}) {
    MemoryFiles plain;
    prepare(plain);
    ASSERT_TRUE(run_export(plain, options_, 1));
    FaultyFiles counting(plain, {.can_exchange = can_exchange});
    ASSERT_TRUE(run_export(counting, options_, 2));
    const auto operations = counting.operations();
    int warned = 0;
    for (size_t at = 0; at < operations.size(); ++at) {
      if (!operations[at].starts_with("remove /out/.model")) continue;
      SCOPED_TRACE(operations[at]);
      MemoryFiles files;
      prepare(files);
      ASSERT_TRUE(run_export(files, options_, 1));
      FaultyFiles faulty(files, {.at = int64_t(at), .dies = false, .can_exchange = can_exchange});
      auto model = ModelExport::begin(faulty, options_, kTensors);
      ASSERT_TRUE(model);
      const std::vector<float> values(4, 2);
      ASSERT_TRUE(model->append("w", values));
      ASSERT_TRUE(model->append("b", std::span(values).first(2)));
      const Status published = model->publish();
      ASSERT_TRUE(published) << published.error().to_string();
      EXPECT_EQ(model->warnings().size(), 1u);
      EXPECT_EQ(exported_value(files, "/out/model"), 2);
      ++warned;
      ASSERT_TRUE(run_export(files, options_, 3)) << "what is left is in nobody's way";
      EXPECT_EQ(exported_value(files, "/out/model"), 3);
      EXPECT_EQ(files.list_dir("/out")->size(), 2u);
    }
    EXPECT_GE(warned, 3);
  }
}

/// A file system in which /out/model is a mount: no rename of it succeeds.
class Mounted final : public Files {
 public:
  explicit Mounted(Files& inner) : inner_(inner) {}
  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path) override {
    return inner_.open_read(path);
  }
  Result<std::unique_ptr<WriteFile>> create_write(const std::string& path) override {
    return inner_.create_write(path);
  }
  Status rename(const std::string& from, const std::string& to) override {
    if (from == "/out/model" || to == "/out/model")
      return fail(ErrorKind::Transient, "renaming: device or resource busy", from);
    return inner_.rename(from, to);
  }
  Result<bool> exchange(const std::string& a, const std::string&) override {
    return fail(ErrorKind::Transient, "swapping: device or resource busy", a);
  }
  Status remove(const std::string& path) override { return inner_.remove(path); }
  Status make_dir(const std::string& path) override { return inner_.make_dir(path); }
  Result<std::vector<DirEntry>> list_dir(const std::string& path) override {
    return inner_.list_dir(path);
  }
  Result<EntryKind> kind(const std::string& path) override { return inner_.kind(path); }
  Status sync_dir(const std::string& path) override { return inner_.sync_dir(path); }

 private:
  Files& inner_;
};

TEST_F(Export, APlaceThatCannotBeHadLeavesTheModelBesideIt) {
  Mounted files(files_);
  ASSERT_TRUE(files.make_dir("/out/model"));
  auto model = ModelExport::begin(files, options_, kTensors);
  ASSERT_TRUE(model);
  const std::vector<float> values(4, 2);
  ASSERT_TRUE(model->append("w", values));
  ASSERT_TRUE(model->append("b", std::span(values).first(2)));
  const Status published = model->publish();
  ASSERT_TRUE(published) << published.error().to_string();
  EXPECT_EQ(model->published_path(), "/out/model.new");
  EXPECT_EQ(exported_value(files, "/out/model.new"), 2);
  ASSERT_EQ(model->warnings().size(), 1u);
  EXPECT_NE(model->warnings()[0].find("/out/model.new"), std::string::npos);
}

TEST_F(Export, WithoutConfigNothingIsPublished) {
  ASSERT_TRUE(files_.remove("/source/config.json"));
  const Status done = run_export(files_, options_, 3);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().where, "/source/config.json");
  EXPECT_EQ(files_.exists("/out/model"), false);
}

/// Death at every write, then power loss: the old model or the new one, never a mixture; and the
/// next export works.
TEST_F(Export, DeathAtEveryWriteLeavesTheOldOrTheNewModel) {
  using Run = Status (*)(Files&, const ExportOptions&, float);
  for (const auto& [can_exchange, run] : {std::pair<bool, Run>{true, run_export},
                                          {false, run_export},
                                          {true, run_dealt},
                                          {false, run_dealt}}) {
    MemoryFiles plain;
    prepare(plain);
    ASSERT_TRUE(run(plain, options_, 1));
    FaultyFiles counting(plain, {.can_exchange = can_exchange});
    ASSERT_TRUE(run(counting, options_, 2));
    const int64_t count = int64_t(counting.operations().size());
    ASSERT_GT(count, 10);
    int old_seen = 0, new_seen = 0;
    for (int64_t at = 0; at < count; ++at) {
      for (const bool power_fails : {false, true}) {
        MemoryFiles files;
        prepare(files);
        ASSERT_TRUE(run(files, options_, 1));
        ASSERT_TRUE(files.sync_dir("/"));
        FaultyFiles faulty(files, {.at = at, .torn = true, .can_exchange = can_exchange});
        EXPECT_FALSE(run(faulty, options_, 2));
        if (power_fails) files.power_loss(uint64_t(at));
        ASSERT_TRUE(recover_export(files, "/out/model"));
        const float value = exported_value(files, "/out/model");
        EXPECT_TRUE(value == 1 || value == 2) << counting.operations()[size_t(at)];
        ++(value == 1 ? old_seen : new_seen);
        ASSERT_TRUE(run(files, options_, 3));
        EXPECT_EQ(exported_value(files, "/out/model"), 3);
        EXPECT_EQ(files.list_dir("/out")->size(), 2u);
      }
    }
    EXPECT_GT(old_seen, 0);
    EXPECT_GT(new_seen, 0);
  }
}

TEST_F(Export, SeveralRanksWriteTheSameFilesAsOne) {
  ASSERT_TRUE(run_dealt(files_, options_, 3));
  ExportOptions options = options_;
  options.target_dir = "/out/alone";
  options.shard_bytes_max = 8;
  auto alone = ModelExport::begin(files_, options, kThree);
  ASSERT_TRUE(alone);
  const std::vector<float> values(4, 3);
  for (const auto& [name, count] : {std::pair("w", 4), {"b", 2}, {"c", 4}, {"d", 3}})
    ASSERT_TRUE(alone->append(name, std::span(values).first(size_t(count))));
  ASSERT_TRUE(alone->publish());
  const auto names = files_.list_dir("/out/alone");
  EXPECT_EQ(*files_.list_dir("/out/model"), *names);
  EXPECT_EQ(names->size(), 2u + 4u + 1u) << "config, tokenizer, four shards, index";
  for (const DirEntry& entry : *names)
    EXPECT_EQ(*files_.read_all("/out/model/" + entry.name),
              *files_.read_all("/out/alone/" + entry.name))
        << entry.name;
}

TEST_F(Export, AFileThatAnotherRankDidNotLeaveHereStopsIt) {
  ASSERT_TRUE(run_dealt(files_, options_, 1));
  MemoryFiles elsewhere;
  ASSERT_TRUE(elsewhere.make_dirs("/out/.model.staging"));
  const Status missing = run_dealt({&files_, &elsewhere, &files_}, options_, 2);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::Environment);
  EXPECT_EQ(missing.error().where, "/out/.model.staging/model-00002-of-00004.safetensors");
  EXPECT_EQ(exported_value(files_, "/out/model"), 1);

  const Status cut = run_dealt({&files_, &files_, &files_}, options_, 2, [&] {
    const std::string path = "/out/.model.staging/model-00003-of-00004.safetensors";
    ASSERT_TRUE(files_.write_synced(path, "cut"));
  });
  ASSERT_FALSE(cut);
  EXPECT_TRUE(cut.error().message.starts_with("the file has 3 bytes")) << cut.error().message;
  EXPECT_EQ(exported_value(files_, "/out/model"), 1);
}

TEST(WriterOfTest, FilesAreSpreadOverTheRanks) {
  EXPECT_EQ(writer_of(0, 1, 4096), 0);
  EXPECT_EQ(writer_of(1, 2, 8), 4) << "half of the hosts further on";
  for (const int world : {1, 3, 8, 64}) {
    for (const size_t files : {1u, 3u, 8u, 29u, 64u, 200u}) {
      std::vector<size_t> of_rank(size_t(world), 0);
      for (size_t file = 0; file < files; ++file) ++of_rank[size_t(writer_of(file, files, world))];
      const size_t most = (files + size_t(world) - 1) / size_t(world);
      EXPECT_LE(*std::ranges::max_element(of_rank), most) << files << " " << world;
      EXPECT_GT(of_rank[0], 0u);
    }
  }
}

TEST(SafetensorsWriterDeathTest, OrderAndCompletenessAreTheCallersDuty) {
  MemoryFiles files;
  const std::vector<float> two(2), three(3);
  const auto create = [&] {
    return SafetensorsWriter::create(files, "/f", {{"a", DType::F32, {2}}, {"b", DType::F32, {2}}});
  };
  auto writer = create();
  EXPECT_DEATH((void)writer->append("b", two), "b is not the next tensor");
  EXPECT_DEATH((void)writer->append("a", three), "12 bytes more");
  EXPECT_DEATH((void)writer->finish(), "a is not complete");
  ASSERT_TRUE(writer->append("a", two));
  ASSERT_TRUE(writer->append("b", two));
  ASSERT_TRUE(writer->finish());
  EXPECT_DEATH((void)SafetensorsWriter::create(files, "/f",
                                               {{"a", DType::F32, {2}}, {"a", DType::F32, {2}}}),
               "declared twice");
}

}  // namespace
}  // namespace dsj::weights
