// The loop of a run is that of Hugging Face's Trainer: command lines drawn by tests/oracle/trainer_oracle.py,
// run here and compared with what Trainer logged, evaluated and kept.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "test_paths.h"
#include "tests/run/run_support.h"

namespace dsj::run_test {
namespace {

struct Logged {
  int64_t step;
  double loss, rate, norm;
};

class TrainerRun : public RunTest {
 protected:
  static json oracle() {
    return json::parse(read_text(fs::path(DSJ_SOURCE_DIR) / "tests/fixtures/trainer.oracle.json"));
  }

  void write_rows(const char* name, const json& rows, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += rows[i].dump() + "\n";
    write(name, text);
  }

  std::vector<std::string> command_line(const json& one) const {
    const auto model = fs::path(DSJ_SOURCE_DIR) / "tests/fixtures/tiny-llama";
    std::vector<std::string> line = {"--nproc_per_node",
                                     std::to_string(one["world"].get<int>()),
                                     "--model_name_or_path",
                                     model.string(),
                                     "--data_path",
                                     "rows.jsonl",
                                     "--output_dir",
                                     "out",
                                     "--use_cpu",
                                     "True",
                                     "--train_sampling_strategy",
                                     "sequential"};
    if (one.contains("eval_rows")) line.insert(line.end(), {"--eval_data_path", "eval.jsonl"});
    for (const auto& [name, value] : one["args"].items())
      line.insert(line.end(),
                  {"--" + name, value.is_string() ? value.get<std::string>() : value.dump()});
    return line;
  }

  std::vector<json> metrics(const char* with) const {
    std::vector<json> lines;
    std::istringstream text(read_text(out() / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);)
      if (json parsed = json::parse(line); parsed.contains(with)) lines.push_back(parsed);
    return lines;
  }

  /// The printed lines, with the rate and the norm of their step.
  std::vector<Logged> logged() const {
    std::map<int64_t, json> steps;
    for (const json& line : metrics("grad_norm")) steps[line["step"].get<int64_t>()] = line;
    static const std::regex kLine(R"(step (\d+)/\d+ loss (\S+) lr )");
    const std::string text = read_text(at("stdout"));
    std::vector<Logged> lines;
    for (std::sregex_iterator found(text.begin(), text.end(), kLine), end; found != end; ++found) {
      const int64_t step = std::stoll((*found)[1]);
      lines.push_back({step, std::stod((*found)[2]), steps[step]["lr"].get<double>(),
                       steps[step]["grad_norm"].get<double>()});
    }
    return lines;
  }

  std::vector<int64_t> saved() const {
    std::vector<int64_t> steps;
    if (!fs::exists(out() / "checkpoints")) return steps;
    for (const auto& entry : fs::directory_iterator(out() / "checkpoints"))
      if (const std::string name = entry.path().filename(); name.starts_with("step-"))
        steps.push_back(std::stoll(name.substr(5)));
    std::ranges::sort(steps);
    return steps;
  }

  void compare(const json& one) const {
    EXPECT_EQ(metrics("grad_norm").back()["step"], one["steps"]);
    EXPECT_EQ(json(saved()), one["saved"]);
    const auto lines = logged();
    ASSERT_EQ(lines.size(), one["logged"].size());
    for (size_t i = 0; i < lines.size(); ++i) {
      const json& trainer = one["logged"][i];
      EXPECT_EQ(lines[i].step, trainer[0]);
      EXPECT_NEAR(lines[i].loss, trainer[1].get<double>(), 1.5e-4);  // four places are printed
      EXPECT_NEAR(lines[i].rate, trainer[2].get<double>(), 1e-9 * trainer[2].get<double>());
      EXPECT_NEAR(lines[i].norm, trainer[3].get<double>(), 1e-4 * trainer[3].get<double>());
    }
    const auto evaluated = metrics("eval_loss");
    ASSERT_EQ(evaluated.size(), one["evaluated"].size());
    for (size_t i = 0; i < evaluated.size(); ++i) {
      EXPECT_EQ(evaluated[i]["step"], one["evaluated"][i][0]);
      EXPECT_NEAR(evaluated[i]["eval_loss"].get<double>(), one["evaluated"][i][1].get<double>(),
                  1e-4);
    }
  }
};

TEST_F(TrainerRun, DrawnCommandLinesTrainAsTrainerDoes) {
  if (!has_engine()) GTEST_SKIP();
  const json given = oracle();
  ASSERT_EQ(given["cases"].size(), 48u);
  for (const json& one : given["cases"]) {
    SCOPED_TRACE(one["args"].dump() + " on " + one["world"].dump() + " ranks");
    fs::remove_all(out());
    write_rows("rows.jsonl", given["rows"], one["rows"]);
    write_rows("eval.jsonl", given["eval_rows"], one.value("eval_rows", size_t{0}));
    start(command_line(one));
    ASSERT_EQ(finish(), 0) << read_text(at("stderr"));
    compare(one);
  }
}

}  // namespace
}  // namespace dsj::run_test
