// dsj analyze DATA: computes metrics of a data file's rows for a curriculum by metrics
// (docs/data.md). Writes the files of DeepSpeed's analyzer and prints the section of a
// ds_config that uses them.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/check/hub_cache.h"
#include "cli/result_format.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "common/host.h"
#include "engine/data/batches/analysis.h"
#include "engine/data/dataset.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "job/layout/model_config.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

struct AnalyzeOptions {
  std::string data, model, output, chat_template = "auto", format;
  std::vector<std::string> metrics;
  int64_t max_seq_length = 2048;
};

/// The data set and its tokenizer.
struct Opened {
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::unique_ptr<data::Dataset> dataset;
};

Result<Opened> open(const AnalyzeOptions& options) {
  Opened opened;
  data::DatasetOptions rows{.max_seq_length = options.max_seq_length,
                            .vocab_size = std::numeric_limits<int32_t>::max(),
                            .chat_template = options.chat_template};
  if (!options.model.empty()) {
    DSJ_TRY(const std::string directory, find_model(options.model, hub_cache_directory()));
    DSJ_TRY(const auto model, layout::read_model_config(directory));
    rows.vocab_size = model.vocab_size;
    rows.max_seq_length = std::min(rows.max_seq_length, model.longest_sequence());
    // Pre-tokenized rows need no tokenizer; the data set reports it if other rows lack one.
    if (auto loaded = data::Tokenizer::load(directory)) opened.tokenizer = std::move(*loaded);
  }
  DSJ_TRY(opened.dataset, data::Dataset::open(options.data, opened.tokenizer.get(), rows));
  if (opened.dataset->rows() == 0) return bad_input("there are no rows", options.data);
  return opened;
}

/// The value that the given percentage of the rows do not exceed.
struct Percentiles {
  long long least, tenth, median, ninetieth, most;
};

Percentiles percentiles(std::vector<int64_t> values) {
  std::ranges::sort(values);
  const auto share = [&](int64_t percent) {
    return static_cast<long long>(
        values[static_cast<size_t>(percent * (std::ssize(values) - 1) / 100)]);
  };
  return {share(0), share(10), share(50), share(90), share(100)};
}

/// The section of a ds_config, with a schedule to change.
json section(const AnalyzeOptions& options) {
  json metrics = json::object();
  for (const std::string& name : options.metrics)
    metrics[name] = {
        {"index_to_sample_path",
         data::metric_file(options.output, name, "index_to_sample_percentile_merged")},
        {"index_to_metric_path", data::metric_file(options.output, name, "index_to_metric")},
        {"difficulty_type", "percentile"},
        {"clustering_type", "schedule_based"},
        {"min_difficulty", 10},
        {"max_difficulty", 100},
        {"schedule_type", "fixed_root"},
        {"schedule_config",
         {{"total_curriculum_step", 1000}, {"difficulty_step", 1}, {"root_degree", 2}}}};
  return {{"data_efficiency",
           {{"data_sampling",
             {{"curriculum_learning", {{"enabled", true}, {"curriculum_metrics", metrics}}}}}}}};
}

Status analyze(const AnalyzeOptions& options) {
  JsonResult result(options.format);
  DSJ_TRY(const Opened opened, open(options));
  const int threads = usable_cores();
  PosixFiles files;
  std::printf("%lld rows of %s, metrics in %s\n\n%-18s %10s %10s %10s %10s %10s\n",
              static_cast<long long>(opened.dataset->rows()), options.data.c_str(),
              options.output.c_str(), "", "least", "10 %", "median", "90 %", "most");
  json metrics = json::object();
  for (const std::string& name : options.metrics) {
    DSJ_TRY(const auto values, data::metric_of_rows(*opened.dataset, name, threads));
    DSJ_TRY_STATUS(data::write_metric(files, options.output, name, values));
    const Percentiles of = percentiles(values);
    std::printf("%-18s %10lld %10lld %10lld %10lld %10lld\n", name.c_str(), of.least, of.tenth,
                of.median, of.ninetieth, of.most);
    metrics[name] = {{"least", of.least},
                     {"percentile10", of.tenth},
                     {"median", of.median},
                     {"percentile90", of.ninetieth},
                     {"most", of.most}};
  }
  std::printf("\nFor a ds_config, with a schedule to change (docs/data.md):\n%s\n",
              section(options).dump(2).c_str());
  result.print({{"data", options.data},
                {"rows", opened.dataset->rows()},
                {"directory", options.output},
                {"metrics", metrics},
                {"ds_config", section(options)}});
  return {};
}

}  // namespace

int run_analyze(Arguments args) {
  AnalyzeOptions options;
  ArgumentParser parser{
      "Measures every row of a data file, for a curriculum by a metric. Writes the files of "
      "DeepSpeed's data analyzer: OUT/METRIC/METRIC_index_to_sample and others.",
      "dsj analyze"};
  parser.option("DATA", options.data, "a data file (.json, .jsonl)").required();
  parser.option("--model", options.model,
                "the model directory or hub id with the tokenizer; not needed for pre-tokenized "
                "rows");
  parser.option("--output", options.output, "a directory; default: DATA.metrics");
  add_format(parser, options.format);
  parser.option("--metric", options.metrics, "length or vocabulary_rarity; default: both")
      .one_of(data::metric_names())
      .one_word_each();
  parser
      .option("--max-seq-length", options.max_seq_length,
              "cuts rows to this length, as in training")
      .positive()
      .show_default();
  parser.option("--chat-template", options.chat_template, "as training.chatTemplate")
      .show_default();
  if (const auto over = parser.parse(args)) return *over;
  if (options.metrics.empty()) options.metrics = data::metric_names();
  if (options.output.empty()) options.output = options.data + ".metrics";
  options.output = std::filesystem::absolute(options.output).lexically_normal().string();
  const Status done = analyze(options);
  return done ? 0 : report("analyze", done.error());
}

}  // namespace dsj::cli
