// dsj data show|check: shows how the rows of a job are read, before it trains on them.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "cli/check/hub_cache.h"
#include "cli/input.h"
#include "cli/result_format.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/format.h"
#include "common/grouped.h"
#include "common/host.h"
#include "common/terminal.h"
#include "engine/data/row_sizes.h"
#include "engine/rows/job_rows.h"
#include "job/layout/trained_model.h"
#include "job/plan/memory_input.h"

namespace dsj::cli {
namespace {

using text::format;
using text::grouped;

constexpr int64_t kUncut = std::numeric_limits<int32_t>::max();
/// A core tokenizes about 20,000 rows per second.
constexpr int64_t kRowsMeasuredMax = 500'000;
constexpr int kBars = 12;

struct DataOptions {
  std::string file, format;
  std::vector<std::string> line, overrides;
  int64_t row = 0;
  bool tokens = false;
};

/// A job's rows, as the run cuts them and uncut.
struct JobRows {
  jobspec::Job job;
  data::DatasetOptions how;
  int64_t longest = 0;  ///< tokens that the run keeps of a row, or of both rows of a pair
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::unique_ptr<data::Dataset> cut, whole;
};

/// Parses the common arguments of "show" and "check".
std::optional<int> parse(Arguments args, const char* name, const char* what, DataOptions& to,
                         bool shows) {
  ArgumentParser parser{what, name};
  parser.option("FILE", to.file, "a DeepSpeedJob (YAML), or a line: --nproc_per_node=2 ...");
  parser.option("--set", to.overrides, "spec.path=value, any number of times").one_word_each();
  if (shows) {
    parser.option("--row", to.row, "counted from 0").non_negative();
    parser.flag("--tokens", to.tokens, "a line per token: place, id, text, whether it has loss");
  }
  add_format_and_output(parser, to.format);
  JobWords words = split_words(args, {{"-o"},
                                      {"--output"},
                                      {"--set"},
                                      {"--row"},
                                      {"--tokens", false},
                                      {"--help", false},
                                      {"-h", false}});
  words.own.insert(words.own.end(), words.file.begin(), words.file.end());
  to.line = std::move(words.line);
  if (const auto over = parser.parse(words.own)) return over;
  if (!to.file.empty() || !to.line.empty()) return std::nullopt;
  return report(name + std::strlen("dsj "),
                Error{ErrorKind::BadInput, "no FILE was given", "", "see --help"});
}

/// Opens what the job names, except its rows.
Result<JobRows> open_job(const DataOptions& options) {
  DSJ_TRY(Input input, options.line.empty() ? read_input(options.file, options.overrides)
                                            : read_line(options.line, options.overrides));
  if (input.syntax) return std::unexpected(*input.syntax);
  if (!input.job) return bad_input("this is a bare ds_config", options.file, "name a DeepSpeedJob");
  JobRows open{.job = std::move(*input.job)};
  const TrainingArgs& training = open.job.training;
  DSJ_TRY(const std::string directory,
          find_model(training.model_name_or_path, hub_cache_directory()));
  DSJ_TRY(const layout::ModelConfig model,
          layout::read_trained_model(directory, training.objective == "reward"));
  DSJ_TRY(open.tokenizer, data::tokenizer_of(directory));
  DSJ_TRY_STATUS(data::choose_eos(training, open.tokenizer.get()));
  DSJ_TRY(open.how, data::job_rows_options(training, model));
  open.longest = plan::longest_sample(training, model);
  return open;
}

Result<JobRows> open_rows(const DataOptions& options) {
  DSJ_TRY(JobRows open, open_job(options));
  data::DatasetOptions how = open.how;
  const std::string& path = open.job.training.data_path;
  DSJ_TRY(open.cut, data::Dataset::open(path, open.tokenizer.get(), how));
  how.max_seq_length = kUncut;
  DSJ_TRY(open.whole, data::Dataset::open(path, open.tokenizer.get(), how));
  return open;
}

/// The text of tokens, with line ends escaped; their ids without a tokenizer.
std::string shown(const JobRows& open, std::span<const int32_t> ids) {
  if (!open.tokenizer) {
    std::string list;
    for (const int32_t id : ids) list += (list.empty() ? "" : " ") + std::to_string(id);
    return list;
  }
  return nlohmann::json(open.tokenizer->decode(ids, /*skip_special=*/false))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Prints which row of a pair begins at a token, or the mark of a marked answer.
void print_heading(const data::Sample& sample, size_t at) {
  if (at == 0 && sample.good) std::puts(*sample.good ? "good:" : "bad:");
  if (sample.second == 0) return;
  if (at == 0) std::puts("chosen:");
  if (at == static_cast<size_t>(sample.second)) std::puts("rejected:");
}

/// Prints the row in sections of tokens with and without loss.
void print_stretches(const JobRows& open, const data::Sample& sample, bool colour) {
  const auto learned = [&](size_t at) { return sample.labels[at] != data::kIgnoredLabel; };
  const auto second = static_cast<size_t>(sample.second);
  for (size_t begin = 0, end; begin < sample.input_ids.size(); begin = end) {
    print_heading(sample, begin);
    const size_t last = begin < second ? second : sample.input_ids.size();
    for (end = begin; end < last && learned(end) == learned(begin);) ++end;
    const auto ids = std::span(sample.input_ids).subspan(begin, end - begin);
    const bool on = colour && learned(begin);
    std::printf("  %-7s %6zu tokens  %s%s%s\n", learned(begin) ? "loss" : "no loss", end - begin,
                on ? "\x1b[32m" : "", shown(open, ids).c_str(), on ? "\x1b[0m" : "");
  }
}

void print_tokens(const JobRows& open, const data::Sample& sample) {
  for (size_t at = 0; at < sample.input_ids.size(); ++at) {
    print_heading(sample, at);
    std::printf("  %6zu %8d  %-7s %s\n", at, sample.input_ids[at],
                sample.labels[at] == data::kIgnoredLabel ? "no loss" : "loss",
                shown(open, std::span(sample.input_ids).subspan(at, 1)).c_str());
  }
}

/// Rows whose uncut length is from `first` to `last` tokens.
struct Bar {
  int64_t first, last, rows = 0;
};

/// A histogram with bars of equal width; empty without rows.
std::vector<Bar> bars(const std::vector<data::RowSize>& rows) {
  if (rows.empty()) return {};
  const auto most = std::ranges::max_element(rows, {}, &data::RowSize::tokens)->tokens;
  const int64_t width = std::max<int64_t>(1, (most + kBars - 1) / kBars);
  std::vector<Bar> all;
  for (int64_t first = 0; first <= most; first += width) all.push_back({first, first + width - 1});
  for (const auto& row : rows) ++all[static_cast<size_t>(row.tokens / width)].rows;
  return all;
}

/// Prints the histogram and marks where the run cuts.
void print_lengths(const std::vector<Bar>& all, int64_t longest) {
  if (all.empty()) return;
  const int64_t highest = std::ranges::max_element(all, {}, &Bar::rows)->rows;
  std::printf("lengths in tokens, uncut:\n");
  for (const Bar& bar : all) {
    const auto marks = static_cast<size_t>(bar.rows * 40 / highest);
    std::printf("  %7ld-%-7ld %9s %s%s\n", static_cast<long>(bar.first),
                static_cast<long>(bar.last), grouped(bar.rows).c_str(),
                std::string(bar.rows > 0 ? std::max<size_t>(1, marks) : 0, '#').c_str(),
                longest >= bar.first && longest <= bar.last ? "  <- cut here" : "");
  }
}

nlohmann::json to_json(const std::vector<Bar>& all) {
  nlohmann::json list = nlohmann::json::array();
  for (const Bar& bar : all)
    list.push_back({{"from", bar.first}, {"to", bar.last}, {"rows", bar.rows}});
  return list;
}

/// Sizes of all rows that are trained on or held out; empty if there are too many to measure.
Result<std::vector<data::RowSize>> measured(const data::Dataset& rows) {
  if (rows.rows() > kRowsMeasuredMax) return std::vector<data::RowSize>();
  return data::row_sizes(rows, 0, rows.rows(), usable_cores());
}

Result<int> show(const DataOptions& options) {
  DSJ_TRY(const JobRows open, open_rows(options));
  const std::string& path = open.job.training.data_path;
  if (options.row >= open.cut->rows())
    return bad_input("row " + std::to_string(options.row) + ": there are " +
                         std::to_string(open.cut->rows()) + " rows, counted from 0",
                     path);
  DSJ_TRY(const data::Sample row, open.cut->at(options.row));
  DSJ_TRY(const data::Sample whole, open.whole->at(options.row));
  const auto learned = [](const data::Sample& sample) {
    return std::ssize(sample.labels) - std::ranges::count(sample.labels, data::kIgnoredLabel);
  };
  DSJ_TRY(const auto rows, measured(*open.whole));
  const std::vector<Bar> lengths = bars(rows);
  if (options.format == "json") {
    nlohmann::json found = {{"data", path},
                            {"row", options.row},
                            {"rows", open.cut->rows()},
                            {"shapes", open.cut->shapes()},
                            {"inputIds", row.input_ids},
                            {"labels", row.labels},
                            {"targets", learned(row)},
                            {"uncutTokens", whole.input_ids.size()},
                            {"uncutTargets", learned(whole)},
                            {"lengths", to_json(lengths)}};
    if (row.second != 0) found["rejectedFrom"] = row.second;
    if (open.tokenizer)
      found["text"] = open.tokenizer->decode(row.input_ids, /*skip_special=*/false);
    std::fputs(document_text(found).c_str(), stdout);
    return 0;
  }
  std::printf("%s: row %ld of %s: %s tokens, %s with loss\n", path.c_str(),
              static_cast<long>(options.row), grouped(open.cut->rows()).c_str(),
              grouped(std::ssize(row.input_ids)).c_str(), grouped(learned(row)).c_str());
  if (row.input_ids.size() < whole.input_ids.size())
    std::printf(
        "cut: of %s tokens the run keeps %s (maxSeqLength, or the model's positions); %s "
        "with loss are lost\n",
        grouped(std::ssize(whole.input_ids)).c_str(), grouped(std::ssize(row.input_ids)).c_str(),
        grouped(learned(whole) - learned(row)).c_str());
  std::printf("%s\n", open.cut->shapes().c_str());
  if (options.tokens)
    print_tokens(open, row);
  else
    print_stretches(open, row, draws_over(STDOUT_FILENO));
  print_lengths(lengths, open.longest);
  return 0;
}

/// Counts bad rows by problem. `message`: that of Dataset::open, with every bad row.
std::map<std::string, int64_t> by_problem(const std::string& message) {
  std::map<std::string, int64_t> counts;
  for (size_t at = message.find("\n  row "); at != std::string::npos;
       at = message.find("\n  row ", at + 1)) {
    const size_t begin = message.find(": ", at), end = message.find('\n', at + 1);
    if (begin < end) ++counts[message.substr(begin + 2, end - begin - 2)];
  }
  return counts;
}

Result<int> check(const DataOptions& options) {
  DSJ_TRY(JobRows open, open_job(options));
  const std::string& path = open.job.training.data_path;
  data::DatasetOptions how = open.how;
  how.bad_rows_listed_max = std::numeric_limits<int64_t>::max();
  how.max_seq_length = kUncut;
  auto opened = data::Dataset::open(path, open.tokenizer.get(), how);
  if (!opened) {
    const auto problems = by_problem(opened.error().message);
    if (problems.empty()) return std::unexpected(opened.error());
    if (options.format == "json") {
      std::fputs(document_text({{"data", path}, {"valid", false}, {"problems", problems}}).c_str(),
                 stdout);
      return 1;
    }
    std::printf("%s: %s\n", path.c_str(),
                opened.error().message.substr(0, opened.error().message.find('\n')).c_str());
    for (const auto& [problem, count] : problems)
      std::printf("  %9s rows: %s\n", grouped(count).c_str(), problem.c_str());
    return 1;
  }
  DSJ_TRY(const auto rows, measured(**opened));
  // Prompts of pairs and marked answers are cut separately, in addition to their rows.
  std::vector<data::RowSize> kept;
  const bool two_cuts = how.aim == data::RowAim::Pairs || how.aim == data::RowAim::Marked;
  if (two_cuts && !rows.empty()) {
    how.max_seq_length = open.how.max_seq_length;
    DSJ_TRY(const auto cut_rows, data::Dataset::open(path, open.tokenizer.get(), how));
    DSJ_TRY(kept, measured(*cut_rows));
  }
  int64_t tokens = 0, targets = 0, cut = 0, without = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const data::RowSize& row = rows[i];
    tokens += row.tokens, targets += row.targets;
    cut += kept.empty() ? row.tokens > open.longest : kept[i].tokens < row.tokens;
    without += row.targets == 0;
  }
  const std::vector<Bar> lengths = bars(rows);
  if (options.format == "json") {
    nlohmann::json found = {{"data", path},
                            {"valid", true},
                            {"rows", (*opened)->rows()},
                            {"shapes", (*opened)->shapes()}};
    if (!rows.empty())
      found.update({{"tokens", tokens},
                    {"targets", targets},
                    {"cutRows", cut},
                    {"rowsWithoutTargets", without},
                    {"lengths", to_json(lengths)}});
    std::fputs(document_text(found).c_str(), stdout);
    return 0;
  }
  std::printf("%s: %s rows, each can be read\n  %s\n", path.c_str(),
              grouped((*opened)->rows()).c_str(), (*opened)->shapes().c_str());
  if (rows.empty()) return 0;
  std::printf(
      "  %s tokens, %s with loss; %s rows are longer than %s tokens and are cut, %s rows "
      "have no token with loss\n",
      grouped(tokens).c_str(), grouped(targets).c_str(), grouped(cut).c_str(),
      grouped(open.how.max_seq_length).c_str(), grouped(without).c_str());
  print_lengths(lengths, open.longest);
  return 0;
}

}  // namespace

int run_data(Arguments args) {
  const std::string name = args.empty() ? "" : args[0];
  DataOptions options;
  if (name == "show") {
    if (const auto over = parse(args.subspan(1), "dsj data show",
                                "Shows how one row of a job's data is read: its text, which tokens "
                                "carry loss, what is cut; and how long all rows are.",
                                options, true))
      return *over;
    const auto code = show(options);
    return code ? *code : report("data show", code.error());
  }
  if (name == "check") {
    if (const auto over = parse(args.subspan(1), "dsj data check",
                                "Reads every row of a job's data and counts errors by kind. Exit "
                                "code: 0, or 1 if a row is bad.",
                                options, false))
      return *over;
    const auto code = check(options);
    return code ? *code : report("data check", code.error());
  }
  const bool help = name == "--help" || name == "-h";
  std::fputs(
      "usage: dsj data show JOB.yaml|LINE [--row N] [--tokens] [-o json]\n"
      "       dsj data check JOB.yaml|LINE [-o json]\n\n"
      "  show    shows how a row is read: text, tokens with loss, cuts; the lengths of all rows\n"
      "  check   reads every row and counts errors by kind; trains nothing\n",
      help ? stdout : stderr);
  return help ? 0 : 2;
}

}  // namespace dsj::cli
