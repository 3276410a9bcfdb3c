// The check of a job: every fault of the files that it names, and that validate, plan and run
// report it alike.
#include "cli/check/job_check.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "cli/run/run_prepare.h"
#include "cli/verbs.h"
#include "common/files/posix_files.h"
#include "engine/data/batches/analysis.h"
#include "tests/cli/model_files.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Lines = std::vector<std::string>;

class JobCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / ("dsj-check-" + std::to_string(getpid()) + info->name());
    make();
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Writes a job that passes the check.
  void make() {
    fs::remove_all(folder_);
    write_model(folder_ / "model");
    write("rows.json", token_rows(8).dump());
    job_ = {{"apiVersion", "training.dsj.dev/v1alpha1"},
            {"kind", "DeepSpeedJob"},
            {"metadata", {{"name", "checked"}}},
            {"spec",
             {{"deepspeed", {{"config", {{"train_micro_batch_size_per_gpu", 1}}}}},
              {"training",
               {{"modelNameOrPath", (folder_ / "model").string()},
                {"dataPath", (folder_ / "rows.json").string()},
                {"outputDir", (folder_ / "out").string()},
                {"maxSteps", 1}}}}}};
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  std::string manifest() {
    std::ofstream(folder_ / "job.yaml") << job_.dump(1);
    return (folder_ / "job.yaml").string();
  }
  json& config() { return job_["spec"]["deepspeed"]["config"]; }
  json& training() { return job_["spec"]["training"]; }

  /// Exit code, and the findings that a verb printed.
  struct Said {
    int code = 0;
    Lines lines;
  };
  static Said said(const std::function<int()>& verb) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    Said said{.code = verb()};
    std::istringstream text(testing::internal::GetCapturedStdout() +
                            testing::internal::GetCapturedStderr());
    for (std::string line; std::getline(text, line);)
      if (line.find(": error: ") != std::string::npos ||
          line.find(": warning: ") != std::string::npos ||
          line.find(": unsupported: ") != std::string::npos)
        said.lines.push_back(line);
    return said;
  }
  Said validate() {
    return said([file = manifest()] { return run_validate(std::vector<std::string>{file}); });
  }
  /// The result of all three verbs. Fails if they differ.
  Said verdict(const std::string& what) {
    const std::string file = manifest();
    const Said validated = validate();
    const Said planned = said([&] {
      return run_plan(std::vector<std::string>{file, "-o", "json"});
    });
    const Said started = said([&] {
      const auto job = prepare_job({.manifest = file});
      if (!job) return 2;
      return *job ? 0 : 1;
    });
    EXPECT_EQ(planned.code, validated.code) << what;
    EXPECT_EQ(started.code, validated.code) << what;
    EXPECT_EQ(started.lines, validated.lines) << what;
    Lines of_plan;  // the plan repeats the findings, quoted
    for (const std::string& line : planned.lines)
      if (!line.starts_with(" ")) of_plan.push_back(line);
    EXPECT_EQ(of_plan, validated.lines) << what;
    EXPECT_FALSE(fs::exists(folder_ / "out")) << what << ": nothing is written";
    return validated;
  }

  fs::path folder_;
  json job_;
};

TEST_F(JobCheckTest, AJobThatRunsPasses) {
  const Said good = verdict("a good job");
  EXPECT_EQ(good.code, 0);
  EXPECT_EQ(good.lines, Lines());
}

TEST_F(JobCheckTest, EveryFaultOfAFileIsRefusedByAllVerbsAlike) {
  struct Fault {
    const char* what;
    std::function<void()> make;
    const char* says;  ///< part of a finding
  };
  const auto tear = [&](const char* name) {
    fs::resize_file(folder_ / name, fs::file_size(folder_ / name) - 7);
  };
  const auto config_with = [&](const char* key, const json& value) {
    json changed = small_config();
    changed[key] = value;
    write("model/config.json", changed.dump());
  };
  const char* tokenizer = R"({"version": "1.0", "added_tokens": [], "normalizer": {"type": "NFKC"},
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
      "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})";
  const json chat = json::array(
      {{{"messages",
         {{{"role", "user"}, {"content", "q"}}, {{"role", "assistant"}, {"content", "a"}}}}}});
  const std::vector<Fault> faults = {
      {"a config.json that holds {", [&] { write("model/config.json", "{"); },
       "modelNameOrPath: " /* with its place */},
      {"no config.json", [&] { fs::remove(folder_ / "model/config.json"); }, "has no config.json"},
      {"a model type that is not read", [&] { config_with("model_type", "mamba"); },
       "model_type \"mamba\" is not known"},
      {"a vocabulary of 2^62", [&] { config_with("vocab_size", int64_t{1} << 62); },
       "\"vocab_size\" is 4611686018427387904"},
      {"another shape than the weights'", [&] { config_with("hidden_size", 128); }, "has shape"},
      {"no weights", [&] { fs::remove(folder_ / "model/model.safetensors"); },
       "there are no weights"},
      {"a torn safetensors", [&] { tear("model/model.safetensors"); }, "model.safetensors"},
      {"an empty safetensors", [&] { write("model/model.safetensors", ""); }, "model.safetensors"},
      {"no model", [&] { training()["modelNameOrPath"] = (folder_ / "absent").string(); },
       "there is no such directory"},
      {"no data", [&] { fs::remove(folder_ / "rows.json"); }, "there is no such data file"},
      {"a pipe",
       [&] {
         ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
         training()["dataPath"] = (folder_ / "pipe").string();
       },
       "the data is a pipe"},
      {"a folder without rows",
       [&] {
         fs::create_directory(folder_ / "none");
         training()["dataPath"] = (folder_ / "none").string();
       },
       "is a directory without files of rows"},
      {"an empty data file", [&] { write("rows.json", ""); }, "rows.json"},
      {"no rows", [&] { write("rows.json", "[]"); }, "has no rows"},
      {"torn data", [&] { tear("rows.json"); }, "rows.json"},
      {"a bad row",
       [&] {
         write("rows.json", R"([{"input_ids": [1], "labels": [1]},
          {"input_ids": [1, 600], "labels": [1, 2]}])");
       },
       "1 of 2 rows are bad"},
      {"text rows without a tokenizer",
       [&] { write("rows.json", R"([{"instruction": "q", "output": "a"}])"); },
       "there is no tokenizer"},
      {"a tokenizer that is refused", [&] { write("model/tokenizer.json", tokenizer); },
       "not a byte-level BPE vocabulary"},
      {"chat rows without a tokenizer", [&] { write("rows.json", chat.dump()); },
       "there is no tokenizer"},
      {"no evaluation data",
       [&] {
         training()["evalDataPath"] = (folder_ / "absent.json").string();
         training()["evaluationStrategy"] = "steps";
       },
       "spec.training.evalDataPath: "},
      {"a checkpoint that is not there",
       [&] { training()["resumeFromCheckpoint"] = (folder_ / "absent").string(); },
       "spec.training.resumeFromCheckpoint: "},
      {"a key that is not built",
       [&] {
         config()["nebula"] = {{"enabled", true}};
       },
       "unsupported: spec.deepspeed.config.nebula"},
      {"no output directory", [&] { training().erase("outputDir"); }, "no output directory"},
      {"an output directory that is a file",
       [&] { training()["outputDir"] = (folder_ / "rows.json").string(); },
       "the output directory is a file"},
      {"no number of steps",
       [&] {
         training().erase("maxSteps");
         training()["dataPath"] = (folder_ / "absent.json").string();
       },
       "there is no such data file"},
  };
  for (const Fault& fault : faults) {
    make();
    fault.make();
    const Said refused = verdict(fault.what);
    EXPECT_EQ(refused.code, 1) << fault.what;
    const auto says = [&](const std::string& line) {
      return line.find(fault.says) != std::string::npos &&
             line.find(": warning: ") == std::string::npos;
    };
    EXPECT_TRUE(std::ranges::any_of(refused.lines, says))
        << fault.what << ": " << testing::PrintToString(refused.lines);
  }
}

TEST_F(JobCheckTest, FindingsComeInTheOrderOfTheirLines) {
  config()["zero_optimization"] = {{"stage", 7}};
  config()["nebula"] = {{"enabled", true}};
  training()["dataPath"] = (folder_ / "absent.json").string();
  training()["modelNameOrPath"] = (folder_ / "no-model").string();
  const Said refused = verdict("four faults");
  std::vector<int> lines;
  for (const std::string& line : refused.lines) {
    int number = 0;
    ASSERT_EQ(std::sscanf(line.c_str() + (folder_ / "job.yaml").string().size(), ":%d:", &number),
              1)
        << line;
    lines.push_back(number);
  }
  EXPECT_EQ(lines.size(), 4u) << testing::PrintToString(refused.lines);
  EXPECT_TRUE(std::ranges::is_sorted(lines)) << testing::PrintToString(refused.lines);
}

TEST_F(JobCheckTest, AResumedRunNeedsNoWeightsOfItsModel) {
  fs::remove(folder_ / "model/model.safetensors");
  fs::create_directories(folder_ / "out/checkpoints/step-3");
  EXPECT_EQ(validate().code, 0);
  training()["overwriteOutputDir"] = true;
  EXPECT_EQ(validate().code, 1) << "a run that begins anew begins with the model";
  training().erase("overwriteOutputDir");
  training()["lora"] = json::object();
  EXPECT_EQ(validate().code, 1) << "an adapter's base is read from the model";
}

/// For directories that are not checkpoints, the message says what they are and what to do.
TEST_F(JobCheckTest, ErrorsSayWhatADirectoryWithoutACheckpointIs) {
  const auto says = [&](const std::string& what) {
    const Said found = verdict(what);
    std::string text;
    for (const std::string& line : found.lines) text += line + "\n";
    return text;
  };
  fs::create_directories(folder_ / "trainer/checkpoint-900");
  fs::create_directories(folder_ / "trainer/checkpoint-1000");
  fs::create_directories(folder_ / "earlier/checkpoints/step-4");
  write("trainer/checkpoint-1000/trainer_state.json", "{}");
  for (const auto& [name, what] :
       {std::pair{"absent", "there is no such directory"},
        std::pair{"trainer", "trainer/checkpoint-1000"},
        std::pair{"trainer/checkpoint-1000", "without DeepSpeed's states"},
        std::pair{"trainer/checkpoint-900", "is not a checkpoint of a run"},
        std::pair{"earlier", "earlier/checkpoints"}}) {
    training()["resumeFromCheckpoint"] = (folder_ / name).string();
    EXPECT_NE(says(name).find(what), std::string::npos) << says(name);
  }
  training().erase("resumeFromCheckpoint");
  training()["outputDir"] = (folder_ / "trainer").string();
  for (const bool has_states : {false, true}) {
    if (has_states) write("trainer/checkpoint-1000/latest", "global_step1000");
    for (const char* word : {"", "true"}) {
      training().erase("resumeFromCheckpoint");
      if (*word) training()["resumeFromCheckpoint"] = word;
      EXPECT_EQ(validate().code, 1) << "Trainer would go on, or refuse the directory";
      const std::string text = says("Trainer's output");
      EXPECT_NE(text.find(has_states ? "--resume_from_checkpoint " : "--model_name_or_path "),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("trainer/checkpoint-1000"), std::string::npos) << text;
    }
  }
  training()["overwriteOutputDir"] = true;
  EXPECT_EQ(validate().code, 0) << says("begins anew");
  training().erase("overwriteOutputDir");
  fs::copy(folder_ / "model", folder_ / "trainer/checkpoint-1000");
  training()["modelNameOrPath"] = (folder_ / "trainer/checkpoint-1000").string();
  EXPECT_EQ(validate().code, 0) << says("begins with its weights");
}

TEST_F(JobCheckTest, RemarksOnRowsArePrintedBeforeTheRun) {
  const auto all = [](const Said& said) {
    std::string text;
    for (const std::string& line : said.lines) text += line + "\n";
    return text;
  };
  training()["chatTemplate"] = "chatml";
  Said said = validate();
  EXPECT_EQ(said.code, 0);
  EXPECT_NE(all(said).find("its rows have no messages: chatTemplate chatml is not used"),
            std::string::npos)
      << all(said);
  training()["evalDataPath"] = training()["dataPath"];
  said = validate();
  EXPECT_NE(all(said).find("evalDataPath"), std::string::npos) << all(said);
  training()["chatTemplate"] = "auto";
  EXPECT_EQ(all(validate()).find("have no messages"), std::string::npos);
  training()["eosToken"] = "<|im_end|>";
  said = validate();
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(all(said).find("the model has no tokenizer for this eos token"), std::string::npos)
      << all(said);
  training().erase("eosToken");
  training()["maxSeqLength"] = (1 << 24) + 1;
  said = validate();
  EXPECT_EQ(said.code, 1);
  EXPECT_NE(all(said).find("found 16777217, expected at most 16777216"), std::string::npos)
      << all(said);
  training()["maxSeqLength"] = 1 << 24;
  EXPECT_EQ(validate().code, 0);
}

/// All three verbs report before the start the error that would end a rank.
TEST_F(JobCheckTest, AMissingGpuIsRefusedByAllVerbs) {
  if (ThisMachine().lacking_gpu().empty()) GTEST_SKIP() << "this machine has a GPU";
  training()["device"] = "cuda";
  const Said said = verdict("device: cuda");
  EXPECT_EQ(said.code, 1);
  ASSERT_EQ(said.lines.size(), 1u);
  EXPECT_NE(said.lines[0].find("the job asks for GPUs, and "), std::string::npos) << said.lines[0];
  training()["device"] = "auto";
  EXPECT_EQ(verdict("device: auto").code, 0);
  training() = {{"modelNameOrPath", "/mnt/model"},
                {"dataPath", "/mnt/rows.json"},
                {"outputDir", "/mnt/out"},
                {"maxSteps", 1},
                {"device", "cuda"}};
  job_["spec"]["runPolicy"] = {{"cleanPodPolicy", "Running"}};
  EXPECT_EQ(validate().code, 0) << "a cluster's machines are others";
}

/// The files of a curriculum are read as by the run, not only searched.
TEST_F(JobCheckTest, TheFilesOfACurriculumMustFitTheRows) {
  PosixFiles files;
  const std::string folder = (folder_ / "metrics").string();
  const auto measured = [&](const std::vector<int64_t>& of_row) {
    ASSERT_TRUE(data::write_metric(files, folder, "length", of_row));
  };
  measured({4, 4, 4, 4, 4, 4, 4, 4});
  config()["data_efficiency"] = {{"enabled", true}};
  config()["data_efficiency"]["data_sampling"] = {{"enabled", true}};
  config()["data_efficiency"]["data_sampling"]["curriculum_learning"] = {
      {"enabled", true},
      {"curriculum_metrics",
       {{"length",
         {{"difficulty_type", "value"},
          {"clustering_type", "schedule_based"},
          {"index_to_sample_path", data::metric_file(folder, "length", "index_to_sample")},
          {"index_to_metric_path", data::metric_file(folder, "length", "index_to_metric")},
          {"min_difficulty", 4},
          {"max_difficulty", 8},
          {"schedule_type", "fixed_linear"},
          {"schedule_config", {{"total_curriculum_step", 10}, {"difficulty_step", 1}}}}}}}};
  Said said = validate();
  EXPECT_EQ(said.code, 0) << testing::PrintToString(said.lines);
  measured({4, 4, 4, 4});
  said = validate();
  EXPECT_EQ(said.code, 1);
  ASSERT_FALSE(said.lines.empty());
  EXPECT_NE(said.lines[0].find("it has 4 rows, the data has 8"), std::string::npos)
      << said.lines[0];
  measured({5, 5, 5, 5, 5, 5, 5, 5});
  said = validate();
  EXPECT_EQ(said.code, 1) << "no row is admitted at the first step";
  std::ofstream(data::metric_file(folder, "length", "index_to_sample") + ".idx") << "torn";
  EXPECT_EQ(validate().code, 1);
}

TEST_F(JobCheckTest, FilesOfAnotherMachineAreWarnings) {
  fs::remove(folder_ / "model/model.safetensors");
  fs::remove(folder_ / "rows.json");
  const auto elsewhere = [&] {
    return said([file = manifest()] {
      return run_validate(std::vector<std::string>{file, "--elsewhere"});
    });
  };
  const Said passed = elsewhere();
  EXPECT_EQ(passed.code, 0);
  EXPECT_EQ(passed.lines.size(), 2u) << testing::PrintToString(passed.lines);
  write("model/config.json", "{");
  EXPECT_EQ(elsewhere().code, 1) << "a file that is here decides";
}

/// A job with a pod template, as `kubectl` users write it, is checked by the rules of a cluster.
TEST_F(JobCheckTest, AJobForAClusterIsCheckedByTheClustersRules) {
  training() = {{"modelNameOrPath", "/mnt/model"},
                {"dataPath", "/mnt/rows.json"},
                {"outputDir", "/mnt/out"},
                {"maxSteps", 1}};
  job_["spec"]["runPolicy"] = {{"cleanPodPolicy", "Running"}};
  const Said passed = validate();
  EXPECT_EQ(passed.code, 0) << testing::PrintToString(passed.lines);
  job_["spec"]["runPolicy"] = {{"cleanPodPolicy", "Sometimes"}};
  EXPECT_EQ(validate().code, 1);
}

TEST_F(JobCheckTest, AFindingIsPrintedOnce) {
  jobspec::Job job;
  job.source = job.ds_config_source = "job.yaml";
  std::vector<dsconfig::Finding> findings = {
      {dsconfig::Finding::Severity::Warning, "spec.b", "x", "", 9, 1},
      {dsconfig::Finding::Severity::Error, "spec.c", "y", "", 0, 0},
      {dsconfig::Finding::Severity::Error, "spec.a", "z", "", 2, 3},
      {dsconfig::Finding::Severity::Warning, "spec.b", "x", "", 9, 1}};
  put_in_order(job, findings);
  ASSERT_EQ(findings.size(), 3u);
  EXPECT_EQ(findings[0].path, "spec.a");
  EXPECT_EQ(findings[1].path, "spec.b");
  EXPECT_EQ(findings[2].path, "spec.c");
}

}  // namespace
}  // namespace dsj::cli
