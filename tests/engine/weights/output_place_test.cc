#include "engine/weights/output_place.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "common/files/posix_files.h"
#include "engine/weights/export.h"
#include "engine/weights/export_record.h"

namespace dsj::weights {
namespace {

namespace fs = std::filesystem;

/// A folder of its own on the disk: links and ".." are the file system's affair.
class OutputPlace : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    // In memory where that is there: nothing here needs a disk that is slow to sync.
    const fs::path folder =
        access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::path(testing::TempDir());
    root_ = folder / ("dsj_place_" + std::string(info->name()) + std::to_string(getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "out");
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string at(const std::string& name) const { return (root_ / name).string(); }
  void put(const std::string& name, const std::string& text = "the user's") const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void make_model(const std::string& name) const {
    put(name + "/config.json", R"({"torch_dtype": "float32"})");
    put(name + "/model.safetensors", "weights of " + name);
  }
  /// The keys that are endangered.
  std::vector<std::string> keys(const std::string& out, TrainingArgs training) {
    training.output_dir = out;
    std::vector<std::string> all;
    for (const auto& one : endangered(files_, SystemPlaces(), training, reads_of(training))) {
      all.push_back(one.key);
      EXPECT_FALSE(one.message.empty() || one.hint.empty());
    }
    return all;
  }
  std::vector<std::string> keys_of_model(const std::string& out, const std::string& model) {
    return keys(out, {.model_name_or_path = model, .data_path = at("rows.json")});
  }
  /// A run's end: the model in `source` is exported into `out`.
  Status export_into(const std::string& out, const std::string& source) {
    DSJ_TRY(auto model,
            ModelExport::begin(files_, {.source_dir = source, .target_dir = out + "/model"},
                               {{"w", {2}}}));
    const std::vector<float> values(2, 1);
    DSJ_TRY_STATUS(model.append("w", values));
    return model.publish();
  }

  using Keys = std::vector<std::string>;
  fs::path root_;
  PosixFiles files_;
};

TEST_F(OutputPlace, AModelElsewhereIsSafe) {
  make_model("base");
  EXPECT_EQ(keys_of_model(at("out"), at("base")), Keys{});
  EXPECT_EQ(keys_of_model(at("out"), "org/a-hub-id"), Keys{});
  // The base holds the output directory: nothing of it is replaced.
  EXPECT_EQ(keys_of_model(at("base/out"), at("base")), Keys{});
  EXPECT_EQ(keys_of_model(at("base"), at("base")), Keys{});
  // Neither before the run nor with the files that it has begun to write beside the model's.
  for (const char* name : {"metrics.jsonl", "status.yaml", "checkpoints/step-1/manifest.json"})
    put(std::string("base/") + name);
  EXPECT_EQ(keys_of_model(at("base"), at("base")), Keys{});
  EXPECT_EQ(keys_of_model(at("base"), at("base/./")), Keys{});
}

/// Rows are read from every file of a directory: the run's metrics.jsonl would be among them.
TEST_F(OutputPlace, ADirectoryOfRowsIsNotTheOutputDirectory) {
  make_model("base");
  put("data/rows.jsonl");
  const auto with = [&](const std::string& out, const std::string& data) {
    return keys(at(out), {.model_name_or_path = at("base"), .data_path = at(data)});
  };
  EXPECT_EQ(with("data", "data"), Keys{"dataPath"});
  EXPECT_EQ(with("data", "out/../data/"), Keys{"dataPath"});
  const auto named = endangered(files_, SystemPlaces(), {.output_dir = at("data")},
                                {{"spec.training.evalDataPath", at("data")}});
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].key, "spec.training.evalDataPath");
  EXPECT_EQ(with("data/run", "data"), Keys{});
  EXPECT_EQ(with("data", "data/rows.jsonl"), Keys{});
}

TEST_F(OutputPlace, TheModelThatIsReplacedIsNotTheOneThatIsRead) {
  const Keys model = {"modelNameOrPath"};
  make_model("out/model");
  EXPECT_EQ(keys_of_model(at("out"), at("out/model")), model);
  EXPECT_EQ(keys_of_model(at("out"), at("out/../out/./model/")), model);
  fs::create_symlink("out/model", root_ / "link");
  EXPECT_EQ(keys_of_model(at("out"), at("link")), model);
  fs::create_symlink("out", root_ / "other-out");
  EXPECT_EQ(keys_of_model(at("other-out"), at("out/model")), model);
  make_model("out/model/deeper");
  EXPECT_EQ(keys_of_model(at("out"), at("out/model/deeper")), model);
  make_model("out/checkpoints/base");
  EXPECT_EQ(keys_of_model(at("out"), at("out/checkpoints/base")), model);
}

/// "models" is a common name: only a run that saves models there may not read one of them.
TEST_F(OutputPlace, OnlyModelsThatAreSavedAreEndangered) {
  make_model("out/models/llama");
  EXPECT_EQ(keys_of_model(at("out"), at("out/models/llama")), Keys{});
  EXPECT_EQ(
      keys(at("out"), {.model_name_or_path = at("out/models/llama"), .save_only_model = true}),
      Keys{"modelNameOrPath"});
}

TEST_F(OutputPlace, AModelMadeOfLinksIsReadWhereTheyLead) {
  make_model("out/model");
  fs::create_directories(root_ / "snapshot");
  put("snapshot/config.json");
  fs::create_symlink("../out/model/model.safetensors", root_ / "snapshot/model.safetensors");
  EXPECT_EQ(keys_of_model(at("out"), at("snapshot")), Keys{"modelNameOrPath"});
}

TEST_F(OutputPlace, AnEarlierExportIsReplacedButNotRead) {
  make_model("base");
  ASSERT_TRUE(export_into(at("out"), at("base")));
  EXPECT_EQ(keys_of_model(at("out"), at("base")), Keys{});
  EXPECT_EQ(keys_of_model(at("out"), at("out/model")), Keys{"modelNameOrPath"});
  put("out/model/README.md");
  EXPECT_EQ(keys_of_model(at("out"), at("base")), Keys{"outputDir"});
}

TEST_F(OutputPlace, WhatIsThereAndNoExportIsRefused) {
  make_model("base");
  make_model("out/model");
  EXPECT_EQ(keys_of_model(at("out"), at("base")), Keys{"outputDir"});
  fs::remove_all(root_ / "out/model");
  fs::create_symlink("nowhere", root_ / "out/model");
  EXPECT_EQ(keys_of_model(at("out"), at("base")), Keys{"outputDir"});
}

TEST_F(OutputPlace, DataAreJudgedAsModelsAre) {
  make_model("base");
  put("out/model/rows.json");
  TrainingArgs training{.model_name_or_path = at("base"), .data_path = at("out/model/rows.json")};
  EXPECT_EQ(keys(at("out"), training), Keys{"dataPath"});
  fs::create_symlink(root_ / "out/model/rows.json", root_ / "rows.json");
  training.data_path = at("rows.json");
  training.eval_data_path = at("out/metrics.jsonl");
  put("out/metrics.jsonl");
  EXPECT_EQ(keys(at("out"), training), (Keys{"dataPath", "evalDataPath"}));
  training = {.model_name_or_path = at("base"), .data_path = at("out/rows.json")};
  training.resume_from_checkpoint = at("out/checkpoints/step-3");
  fs::remove_all(root_ / "out/model");
  EXPECT_EQ(keys(at("out"), training), Keys{}) << "beside the model, and a checkpoint's own place";
  training.resume_from_checkpoint = at("out/model/global_step3");
  EXPECT_EQ(keys(at("out"), training), Keys{"resumeFromCheckpoint"});
}

TEST_F(OutputPlace, AMountIsSeenThrough) {
  make_model("base");
  make_model("out/model");
  fs::create_directories(root_ / "mounted");
  if (mount(at("out/model").c_str(), at("mounted").c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "this process may not mount";
  EXPECT_EQ(keys_of_model(at("out"), at("mounted")), Keys{"modelNameOrPath"});
  ASSERT_EQ(umount(at("mounted").c_str()), 0);
  fs::remove_all(root_ / "out/model");
  fs::create_directories(root_ / "out/model");
  ASSERT_EQ(mount(at("base").c_str(), at("out/model").c_str(), nullptr, MS_BIND, nullptr), 0);
  make_model("elsewhere");
  EXPECT_EQ(keys_of_model(at("out"), at("elsewhere")), Keys{"outputDir"});
  ASSERT_EQ(umount(at("out/model").c_str()), 0);
}

/// The rule over drawn layouts: whatever lies where, after the run or its refusal every file of the
/// user's is what it was.
TEST_F(OutputPlace, NoFileOfTheUsersIsGoneOrChanged) {
  int refused = 0, exported = 0, kept_aside = 0;
  std::error_code none;  // links may lead nowhere, or in a circle
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto draw = [&](int below) { return int(random() % unsigned(below)); };
    fs::remove_all(root_);
    fs::create_directories(root_);
    // Some directories, each a plain one or a link to an earlier one.
    std::vector<std::string> places = {"a", "a/model", "a/checkpoints",
                                       "b", "b/model", "a/model/c"};
    for (const std::string& place : places) {
      std::error_code there;
      if (fs::exists(root_ / place, there)) continue;
      const std::string& target = places[size_t(draw(2))];
      if (draw(5) == 0 && place != "a" && place != target)
        fs::create_directory_symlink(root_ / target, root_ / place, there);
      else if (draw(3) > 0)
        fs::create_directories(root_ / place, there);
    }
    make_model("base");
    const std::string out = at(draw(2) == 0 ? "a" : "b");
    if (!fs::exists(out, none)) fs::remove(out, none);
    fs::create_directories(out);
    if (draw(2) == 0) (void)export_into(out, at("base"));  // an earlier run
    // The user's own files, in drawn places.
    std::map<std::string, std::string> mine;
    std::vector<std::string> models = {"base"};
    for (int i = draw(4); i > 0; --i) {
      const std::string place = places[size_t(draw(int(places.size())))];
      if (!fs::is_directory(root_ / place, none)) continue;
      if (draw(2) == 0 && !fs::exists(root_ / place / "config.json", none)) {
        make_model(place);
        models.push_back(place);
      }
      const std::string name = place + "/" + (draw(2) == 0 ? "rows.json" : "README.md");
      put(name, "file " + std::to_string(i));
    }
    for (const auto& entry :
         fs::recursive_directory_iterator(root_, fs::directory_options::skip_permission_denied)) {
      if (entry.is_symlink(none) || !entry.is_regular_file(none)) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      mine[entry.path().string()] = text.str();
    }
    // The earlier export's own files are no user's.
    const auto there = occupant_of(files_, out + "/model");
    ASSERT_TRUE(there);
    if (there->kind == Occupant::Kind::OwnModel)
      std::erase_if(mine, [&](const auto& file) {
        return fs::path(file.first).parent_path() == SystemPlaces().canonical(out + "/model");
      });
    std::erase_if(mine, [](const auto& file) {
      return fs::path(file.first).filename() == ".model.export.json";
    });

    const std::string model = at(models[size_t(draw(int(models.size())))]);
    const bool checked = draw(4) > 0;  // else something has changed since the run began
    if (checked && !keys_of_model(out, model).empty()) {
      ++refused;
    } else {
      const Status done = export_into(out, model);
      EXPECT_TRUE(done) << done.error().to_string();
      exported += done.has_value();
    }
    for (const auto& [path, text] : mine) {
      std::ostringstream found;
      found << std::ifstream(path).rdbuf();
      if (found.str() == text) continue;
      // Unchecked, it may have been moved aside, whole.
      const std::string target = out + "/model/";
      ASSERT_FALSE(checked) << path << " is gone or changed";
      const std::string in_model = SystemPlaces().canonical(out + "/model");
      bool kept = false;
      for (const auto& entry : fs::recursive_directory_iterator(root_)) {
        if (!entry.is_regular_file(none) || entry.path().filename() != fs::path(path).filename())
          continue;
        std::ostringstream aside;
        aside << std::ifstream(entry.path()).rdbuf();
        kept = kept || aside.str() == text;
      }
      ASSERT_TRUE(kept) << path << " is lost";
      ++kept_aside;
    }
  }
  std::printf("%d refused, %d exported, %d files kept aside\n", refused, exported, kept_aside);
  EXPECT_GT(refused, 30);
  EXPECT_GT(exported, 75);
  EXPECT_GT(kept_aside, 0);
}

}  // namespace
}  // namespace dsj::weights
