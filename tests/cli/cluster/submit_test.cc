#include <filesystem>
#include <fstream>

#include "tests/cli/cluster/world.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Submit : public testing::World {
 protected:
  Submit() {
    fs::create_directories(folder_);
    write("ds.json", R"({"train_micro_batch_size_per_gpu": 2, // per rank
      "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}})");
  }
  ~Submit() override { fs::remove_all(folder_); }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  std::string manifest(const std::string& more = "") {
    write("job.yaml", R"(apiVersion: training.dsj.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: quick}
spec:
  deepspeed: {configFrom: {file: ds.json}}
  training: {modelNameOrPath: /m, dataPath: /d.json, outputDir: /o)" +
                          more + "}\n");
    return (folder_ / "job.yaml").string();
  }
  bool there() { return client_.get(jobs_resource(), "team", "quick").has_value(); }

  const fs::path folder_ = fs::temp_directory_path() / ("dsj-submit-" + std::to_string(getpid()));
};

TEST_F(Submit, PutsTheFileBesideTheManifestIntoTheJob) {
  ASSERT_EQ(run(run_submit, {manifest()}), 0) << err_;
  const Json job = *client_.get(jobs_resource(), "team", "quick");
  EXPECT_EQ(job["spec"]["deepspeed"]["config"]["train_micro_batch_size_per_gpu"], 2);
  EXPECT_FALSE(job["spec"]["deepspeed"].contains("configFrom"));
  EXPECT_EQ(run(run_submit, {manifest()}), 2);
  EXPECT_THAT(err_, HasSubstr("a job with this name exists"));
  EXPECT_EQ(run(run_submit, {manifest(), "--name", "again"}), 0) << err_;
  ASSERT_EQ(run(run_submit, {manifest(), "--name", "third", "-o", "yaml"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("name: third"));
  EXPECT_THAT(err_, HasSubstr("third is created"));
  EXPECT_EQ(run(run_submit, {manifest(), "--name", "fourth", "-o", "yaml", "--dry-run"}), 2);
}

TEST_F(Submit, AcceptsTheFileLikeKubectl) {
  const std::string file = manifest();
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-f", file},
                                             {"-f" + file},
                                             {"-f=" + file},
                                             {"--filename", file},
                                             {"--filename=" + file}}) {
    ASSERT_EQ(run(run_submit, words), 0) << words[0] << err_;
    EXPECT_TRUE(there());
    ASSERT_TRUE(client_.remove(jobs_resource(), "team", "quick"));
  }
  EXPECT_EQ(run(run_submit, {"-f", file, file}), 2);
  EXPECT_EQ(run(run_submit, {"-f"}), 2);
  EXPECT_EQ(run(run_submit, {}), 2);
  EXPECT_THAT(err_, HasSubstr("--filename is required"));
  EXPECT_FALSE(there());
}

/// `kustomize build | dsj submit -f -`
TEST_F(Submit, ReadsStandardInput) {
  const int kept = dup(0);
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"-f", "-"}, {"-f-"}, {"--filename=-"}, {"-"}}) {
    std::string text =
        "apiVersion: training.dsj.dev/v1alpha1\nkind: DeepSpeedJob\n"
        "metadata: {name: quick}\nspec: {deepspeed: {config: "
        "{train_micro_batch_size_per_gpu: 1}}, training: {modelNameOrPath: /m, "
        "dataPath: /d.json, outputDir: /out, maxSteps: 3}, workers: {replicas: 1}}\n";
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(::write(ends[1], text.data(), text.size()), std::ssize(text));
    close(ends[1]);
    dup2(ends[0], 0);
    close(ends[0]);
    EXPECT_EQ(run(run_submit, words), 0) << words[0] << err_;
    EXPECT_TRUE(there());
    (void)client_.remove(jobs_resource(), "team", "quick");
  }
  dup2(kept, 0);
  close(kept);
}

/// 1 MiB holds the manifest, and not what the operator keeps of it.
TEST_F(Submit, AJobThatNoConfigMapHoldsIsRefused) {
  write("ds.json", Json({{"train_micro_batch_size_per_gpu", 2},
                         {"tensorboard", {{"job_name", std::string(600'000, 'x')}}}})
                       .dump());
  EXPECT_EQ(run(run_submit, {manifest()}), 2);
  EXPECT_THAT(err_, HasSubstr("expected at most 1015808"));
  EXPECT_FALSE(there());
}

TEST_F(Submit, AFileTooLargeForAClusterIsRefusedWithItsTrueSize) {
  write("big.yaml", std::string(1'134'727, '#'));
  EXPECT_EQ(run(run_submit, {(folder_ / "big.yaml").string()}), 2);
  EXPECT_THAT(err_, HasSubstr("the file has 1134727 bytes, expected at most 1048576"));
}

TEST_F(Submit, ZeroWorkersAreRefusedInFavourOfSuspend) {
  EXPECT_EQ(run(run_scale, {"quick", "--replicas", "0"}), 2);
  EXPECT_THAT(err_, HasSubstr("dsj suspend NAME"));
  EXPECT_EQ(run(run_scale, {"quick", "--replicas=0"}), 2);
  EXPECT_THAT(err_, HasSubstr("dsj suspend NAME"));
}

TEST_F(Submit, BadInputCreatesNothing) {
  EXPECT_EQ(run(run_submit, {manifest(", learningRat: 1")}), 2);
  EXPECT_THAT(err_, HasSubstr("did you mean"));
  EXPECT_FALSE(there());
  write("ds.json", "{\"zero_optimization\": {\"stage\": 7}}");
  EXPECT_EQ(run(run_submit, {manifest()}), 2);
  EXPECT_THAT(err_, HasSubstr("nothing was created"));
  EXPECT_FALSE(there());
  write("pod.yaml", "kind: Pod\n");
  EXPECT_EQ(run(run_submit, {(folder_ / "pod.yaml").string()}), 2);
  EXPECT_EQ(run(run_submit, {"/no/such/file"}), 2);
}

TEST_F(Submit, ADryRunCreatesNothing) {
  EXPECT_EQ(run(run_submit, {manifest(), "--dry-run"}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("can be created in namespace team"));
  EXPECT_FALSE(there());
}

TEST_F(Submit, WaitsForTheEnd) {
  clock_.meanwhile = [&] { set_status("quick", {{"phase", "Failed"}, {"observedGeneration", 1}}); };
  EXPECT_EQ(run(run_submit, {manifest(), "--wait"}), 1);
  EXPECT_THAT(err_, HasSubstr("the job is Failed"));
}

}  // namespace
}  // namespace dsj::cli
