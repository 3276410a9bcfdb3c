// Against real files that lie beside the checkout and are not part of it: recorded DeepSpeed runs
// and ds_configs from public repositories. Skips when they are absent.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "common/dsconfig/check.h"
#include "common/dsconfig/reader.h"
#include "common/dsconfig/resolve.h"

namespace dsj::dsconfig {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path shared() {
  const char* named = std::getenv("DSJ_SHARED_DIR");
  return named ? fs::path(named) : fs::path(DSJ_SOURCE_DIR) / ".." / "shared";
}

std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string first_problem(const std::vector<Finding>& findings) {
  for (const auto severity : {Finding::Severity::Error, Finding::Severity::Unsupported})
    for (const Finding& finding : findings)
      if (finding.severity == severity) return finding.path + ": " + finding.message;
  return "";
}

TEST(SharedTest, GoldenRunsResolveToWhatDeepSpeedRan) {
  const fs::path folder = shared() / "golden" / "deepspeed_0.19.8";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here: NOT RUN";
  int agree = 0, unsupported = 0, refused = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::string text = slurp(entry.path());
    for (size_t at; (at = text.find("Infinity")) != std::string::npos;) text.replace(at, 8, "null");
    const json run = json::parse(text);
    SCOPED_TRACE(entry.path().filename().string());
    const Resolution r = resolve(run["ds_config"], {}, {.world_size = run["world"]});
    if (run["status"] != "ok") {
      EXPECT_FALSE(r.runnable()) << "DeepSpeed refused this one";
      ++refused;
      continue;
    }
    EXPECT_TRUE(r.ok()) << first_problem(r.findings);
    EXPECT_EQ(r.config.micro_batch_size, run["micro"]);
    EXPECT_EQ(r.config.gradient_accumulation_steps, run["accum"]);
    EXPECT_EQ(r.config.train_batch_size, run["train_batch"]);
    EXPECT_EQ(r.config.zero.stage, run["zero_stage"]);
    if (!r.runnable()) {
      std::cout << "unsupported: " << entry.path().filename().string() << ": "
                << first_problem(r.findings) << "\n";
      ++unsupported;
      continue;
    }
    const json& params = run["ds_config"]["optimizer"]["params"];
    EXPECT_DOUBLE_EQ(r.config.optimizer.lr, params["lr"]);
    EXPECT_DOUBLE_EQ(r.config.optimizer.weight_decay, params["weight_decay"]);
    EXPECT_DOUBLE_EQ(r.config.optimizer.beta2,
                     params.contains("betas") ? params["betas"][1].get<double>() : 0.999);
    EXPECT_DOUBLE_EQ(r.config.gradient_clipping, run["ds_config"].value("gradient_clipping", 1.0));
    EXPECT_EQ(r.config.precision == Precision::Bf16, run["ds_config"].contains("bf16"));
    EXPECT_EQ(r.config.scheduler.type,
              run["ds_config"].contains("scheduler")
                  ? run["ds_config"]["scheduler"]["type"].get<std::string>()
                  : "constant");
    ++agree;
  }
  std::cout << "golden: " << agree << " runnable and equal, " << unsupported << " unsupported, "
            << refused << " refused as by DeepSpeed\n";
  EXPECT_GT(agree, 30);
}

struct Row {
  std::string file, verdict, unknown;
};

std::vector<Row> corpus_index(const fs::path& folder) {
  std::vector<Row> rows;
  std::ifstream index(folder / "index.tsv");
  std::string line;
  std::getline(index, line);
  while (std::getline(index, line)) {
    std::vector<std::string> cells;
    std::stringstream row(line);
    for (std::string cell; std::getline(row, cell, '\t');) cells.push_back(cell);
    if (cells.size() >= 14)
      rows.push_back({cells[0], cells[13], cells.size() > 14 ? cells[14] : ""});
  }
  return rows;
}

TEST(SharedTest, RealFilesGetAVerdict) {
  const fs::path folder = shared() / "corpus" / "ds_configs";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here: NOT RUN";
  int agree = 0, total = 0, runnable = 0;
  std::map<std::string, int> mechanisms;
  for (const Row& row : corpus_index(folder)) {
    SCOPED_TRACE(row.file);
    const auto document = read_file((folder / row.file).string());
    ASSERT_TRUE(document) << document.error().to_string();
    EXPECT_EQ(document->value, json::parse(slurp(folder / row.file)));
    std::vector<Finding> findings = check(document->value).findings;
    locate(findings, document->positions);
    bool valid = true, unsupported = false;
    for (const Finding& finding : findings) {
      EXPECT_TRUE(finding.path.empty() || finding.line > 0) << finding.path;
      valid = valid && finding.severity != Finding::Severity::Error;
      unsupported = unsupported || finding.severity == Finding::Severity::Unsupported;
    }
    ++total;
    runnable += valid && !unsupported;
    const bool accepted = row.verdict.starts_with("accepts");
    agree += valid == accepted;
    if (valid != accepted) {
      const std::string ours = first_problem(findings);
      ++mechanisms[accepted ? "we refuse: " + ours : "we accept: " + row.verdict];
    }
  }
  std::cout << "corpus: " << total << " read, " << agree << " verdicts as DeepSpeed 0.19's, "
            << runnable << " with no unsupported key\n";
  for (const auto& [mechanism, count] : mechanisms)
    std::cout << "  " << count << " x " << mechanism << "\n";
  EXPECT_EQ(total, 243);
  // Theirs is a verdict of the section models alone; 23 files have optimizer.params.max_grad_norm,
  // which DeepSpeed refuses later, when it makes the optimizer.
  EXPECT_GE(agree, 213);
}

TEST(SharedTest, FilesThatAreNotStrictJson) {
  const fs::path folder = shared() / "corpus" / "ds_configs_invalid";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not here: NOT RUN";
  int read = 0, refused = 0;
  for (const Row& row : corpus_index(folder)) {
    SCOPED_TRACE(row.file);
    const auto document = read_file((folder / row.file).string());
    (document ? read : refused) += 1;
    EXPECT_EQ(document.has_value(), row.verdict.starts_with("yes")) << "as the Hjson library";
    if (!document) {
      EXPECT_NE(document.error().where.find(".json"), std::string::npos);
    }
  }
  std::cout << "not strict JSON: " << read << " read, " << refused
            << " refused, each as the Hjson library does\n";
  EXPECT_EQ(read + refused, 25);
}

TEST(SharedTest, BadConfigs) {
  const fs::path file = shared() / "golden" / "bad_configs.json";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is not here: NOT RUN";
  std::string text = slurp(file);  // Python's JSON: Infinity is bare, which Hjson reads as a word
  for (size_t at; (at = text.find(": Infinity")) != std::string::npos;)
    text.replace(at, 10, ": \"Infinity\"");
  const json cases = json::parse(text)["cases"];
  int refused = 0, unsupported = 0, accepted = 0, agree = 0;
  for (const json& one : cases) {
    const std::string name = one["name"];
    const bool theirs = one["parser"]["result"] == "accepted" &&
                        (!one.contains("initialize") || one["initialize"].is_null() ||
                         one["initialize"]["result"] == "accepted");
    json config = one["config"];
    std::string ours;
    if (name.starts_with("file:")) {
      const auto document = parse_text(config.get<std::string>(), name);
      if (!document) ours = document.error().to_string();
      config = document ? document->value : json::object();
    }
    bool known = false;
    if (ours.empty()) {
      const Resolution r = resolve(config, {}, {.world_size = 1});
      if (!r.runnable()) ours = first_problem(r.findings);
      known = r.ok() && !r.runnable();
    }
    (ours.empty() ? accepted : known ? unsupported : refused) += 1;
    agree += ours.empty() == theirs;
    if (ours.empty() != theirs)
      std::cout << "  " << name << ": DeepSpeed " << (theirs ? "runs it" : "refuses it") << ", we "
                << (ours.empty() ? "run it" : (known ? "say unsupported: " : "refuse: ") + ours)
                << "\n";
  }
  std::cout << "bad configs: " << cases.size() << " cases, " << refused << " refused, "
            << unsupported << " unsupported, " << accepted << " accepted; " << agree
            << " as DeepSpeed\n";
  EXPECT_GT(agree, 60);
}

}  // namespace
}  // namespace dsj::dsconfig
