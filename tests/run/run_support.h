// `dsj run` as a user starts it: a real process in a directory of its own, its output kept, and a
// mark in its environment by which everything it starts can be found again.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "agent/ranks/spawn.h"
#include "job/spec/yaml.h"
#include "test_paths.h"
#include "tests/support/soon.h"

namespace dsj::run_test {

namespace fs = std::filesystem;
using nlohmann::json;

inline std::string read_text(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

class RunTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    mark_ = "run-" + std::to_string(getpid()) + "-" + info->name();
    folder_ = fs::temp_directory_path() / ("dsj-" + mark_);
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    fs::copy(fs::path(DSJ_SOURCE_DIR) / "tests/fixtures/tiny-qwen2", folder_ / "model");
    write("data.json", counting_rows(4, 8).dump());
    write("ds.json", R"({"train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": "AdamW",
      "params": {"lr": "auto"}}, "zero_optimization": {"stage": 2}})");
  }

  void TearDown() override {
    if (folder_.empty()) return;  // skipped
    kill_marked();
    if (HasFailure()) {
      std::cerr << "---- stdout\n"
                << read_text(at("stdout")) << "---- stderr\n"
                << read_text(at("stderr")) << "---- agent 0\n"
                << read_text(out() / "logs/agent-0.log") << std::endl;
    }
    fs::remove_all(folder_);
  }

  /// False: the engine is not built (DSJ_ENGINE=OFF), and the test has to skip.
  static bool has_engine() { return fs::exists(fs::path(DSJ_BIN_DIR) / "dsj-train"); }
  /// Rows that count in strides, so that there is something to learn.
  static json counting_rows(int rows, int length) {
    json list = json::array();
    for (int row = 0; row < rows; ++row) {
      json ids = json::array();
      for (int i = 0; i < length; ++i) ids.push_back((row * 5 + i * (1 + row % 3)) % 200);
      list.push_back({{"input_ids", ids}, {"labels", ids}});
    }
    return list;
  }

  fs::path at(const std::string& name) const { return folder_ / name; }
  fs::path out() const { return folder_ / "out"; }
  void write(const std::string& name, const std::string& text) { std::ofstream(at(name)) << text; }

  /// JOB.yaml with `training` (lines of "key: value") and workers.
  void write_job(const std::map<std::string, std::string>& training, int replicas = 1,
                 int slots = 2, int backoff_limit = 3) {
    std::ostringstream job;
    job << "apiVersion: training.dsj.dev/v1alpha1\nkind: DeepSpeedJob\nmetadata: {name: test}\n"
        << "spec:\n  deepspeed: {configFrom: {file: ds.json}}\n  backoffLimit: " << backoff_limit
        << "\n  workers: {replicas: " << replicas << ", slotsPerWorker: " << slots
        << "}\n  training:\n    modelNameOrPath: model\n    dataPath: data.json\n    outputDir: "
           "out\n"
        << "    perDeviceTrainBatchSize: 1\n    saveStrategy: steps\n";
    for (const auto& [key, value] : training) job << "    " << key << ": " << value << "\n";
    write("job.yaml", job.str());
  }

  void start(const std::vector<std::string>& arguments, const std::string& verb = "run") {
    agent::SpawnSpec spec{.command = {std::string(DSJ_BIN_DIR) + "/dsj", verb},
                          .environment = environment(),
                          .log_file = at("both")};
    // stdout and stderr apart, by way of a shell.
    std::string script = "cd " + folder_.string() + " && exec \"$0\" \"$@\" >stdout 2>stderr";
    spec.command.insert(spec.command.end(), arguments.begin(), arguments.end());
    spec.command.insert(spec.command.begin(), {"/bin/sh", "-c", script});
    const auto pid = agent::spawn(spec);
    ASSERT_TRUE(pid) << pid.error().to_string();
    pid_ = *pid;
  }
  std::vector<std::string> environment() const {
    std::vector<std::string> result;
    for (auto& entry : agent::inherited_environment()) {
      if (!entry.starts_with("FAKE_") && !entry.starts_with("OMP_")) result.push_back(entry);
    }
    for (const auto& [name, value] : variables_) result.push_back(name + "=" + value);
    result.push_back("DSJ_TEST_MARK=" + mark_);
    return result;
  }
  /// The exit code; -signal when a signal ended it; -1000 when it had to be killed: it takes longer
  /// than any run here on a busy machine, but less than ranks may take to save (10 minutes).
  int finish() {
    std::optional<agent::ChildExit> exit;
    const auto ended = [&] { return (exit = agent::reap(pid_)).has_value(); };
    if (!soon(ended, std::chrono::seconds(500))) {
      kill_marked();
      return -1000;
    }
    return exit->signal ? -exit->signal : exit->exit_code;
  }
  int run(const std::vector<std::string>& arguments, const std::string& verb = "run") {
    start(arguments, verb);
    return finish();
  }

  std::string stdout_text() const { return read_text(at("stdout")); }
  std::string stderr_text() const { return read_text(at("stderr")); }
  json status() const {
    const auto document = jobspec::parse_yaml(read_text(out() / "status.yaml"), "status.yaml");
    return document ? document->value : json(nullptr);
  }
  /// The value of a condition, "" when it is not there.
  std::string condition(const std::string& type) const {
    for (const auto& entry : status().value("conditions", json::array())) {
      if (entry["type"] == type) return entry["status"];
    }
    return "";
  }
  std::vector<int64_t> metric_steps() const {
    std::vector<int64_t> steps;
    std::ifstream in(out() / "metrics.jsonl");
    for (std::string line;
         std::getline(in, line) && !in.eof();)  // what has no end is being written
      steps.push_back(json::parse(line)["step"]);
    return steps;
  }
  static std::vector<int64_t> one_to(int64_t last) {
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= last; ++step) steps.push_back(step);
    return steps;
  }
  int64_t steps_done() const {
    const auto text = read_text(out() / "metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  }

  /// Processes of this test whose command line has `program`; zombies do not count.
  std::vector<pid_t> processes(const std::string& program = "") const {
    std::vector<pid_t> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (read_text(entry.path() / "environ").find("DSJ_TEST_MARK=" + mark_ + '\0') ==
          std::string::npos) {
        continue;
      }
      if (read_text(entry.path() / "cmdline").find(program) == std::string::npos) continue;
      found.push_back(std::stoi(name));
    }
    return found;
  }
  /// The process that is rank `rank`; 0 when there is none.
  pid_t rank_process(int rank) const {
    const std::string wanted = std::string(1, '\0') + "RANK=" + std::to_string(rank) + '\0';
    for (const pid_t pid : processes()) {
      const std::string text = '\0' + read_text("/proc/" + std::to_string(pid) + "/environ");
      if (text.find(wanted) != std::string::npos) return pid;
    }
    return 0;
  }
  void kill_rank(int rank, int number) const {
    const pid_t pid = rank_process(rank);
    EXPECT_GT(pid, 0) << "rank " << rank << " does not run";
    if (pid > 0) kill(pid, number);
  }
  void kill_marked() const {
    for (const pid_t pid : processes()) kill(pid, SIGKILL);
  }

  std::string mark_;
  fs::path folder_;
  std::map<std::string, std::string> variables_;
  pid_t pid_ = -1;
};

}  // namespace dsj::run_test
