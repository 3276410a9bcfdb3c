#include "bench/train_loop/rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/files/posix_files.h"
#include "tools/random.h"
#include "tools/random_model.h"

namespace dsj::bench {
namespace {

constexpr int64_t kRows = 256, kTokens = 256;

struct Kind {
  tools::ModelShape shape;
  bool alpaca = false;
};

const std::map<std::string, Kind>& kinds() {
  static const tools::ModelShape usual = {.hidden = 384,
                                          .layers = 6,
                                          .heads = 6,
                                          .kv_heads = 6,
                                          .inner = 2048,
                                          .vocabulary = 8192,
                                          .positions = 512,
                                          .tied = false};
  static const tools::ModelShape wide = {.hidden = 256,
                                         .layers = 2,
                                         .heads = 4,
                                         .kv_heads = 4,
                                         .inner = 1024,
                                         .vocabulary = 151936,
                                         .positions = 512,
                                         .tied = false};
  static const std::map<std::string, Kind> all = {
      {"fixed", {usual, false}}, {"alpaca", {usual, true}}, {"vocabulary", {wide, true}}};
  return all;
}

/// Prompt and all tokens of a row like alpaca's: a prompt of 34 tokens and more, 49 in the mean, and
/// a log-normal response, 44 in the median.
std::pair<int64_t, int64_t> alpaca_lengths(tools::Random& random, int64_t most) {
  const auto prompt = 34 + static_cast<int64_t>(19 * std::abs(random.normal()));
  const auto response = 1 + static_cast<int64_t>(44 * std::exp(0.8 * random.normal()));
  return {prompt, std::min(prompt + response, most)};
}

Row row(int64_t number, const Kind& kind) {
  tools::Random random(1000 + static_cast<uint64_t>(number));
  const auto [masked, tokens] =
      kind.alpaca ? alpaca_lengths(random, kind.shape.positions) : std::pair{int64_t{0}, kTokens};
  Row row;
  for (int64_t i = 0; i < tokens; ++i) {
    row.ids.push_back(
        static_cast<int64_t>(random.below(static_cast<uint64_t>(kind.shape.vocabulary))));
    row.labels.push_back(i < masked ? -100 : row.ids.back());
  }
  return row;
}

}  // namespace

Result<int64_t> prepare(const std::string& directory, const std::string& kind) {
  const auto found = kinds().find(kind);
  if (found == kinds().end()) {
    return fail(ErrorKind::BadInput, "rows \"" + kind + "\" are not known", "ROWS",
                "fixed, alpaca or vocabulary");
  }
  PosixFiles files;
  const auto& [shape, alpaca] = found->second;
  DSJ_TRY_STATUS(files.make_dirs(directory + "/model"));
  DSJ_TRY_STATUS(tools::write_random_model(files, directory + "/model", shape, 1));
  nlohmann::json samples = nlohmann::json::array();
  for (int64_t i = 0; i < kRows; ++i) {
    const Row one = row(i, found->second);
    samples.push_back({{"input_ids", one.ids}, {"labels", one.labels}});
  }
  DSJ_TRY_STATUS(files.write_atomically(directory + "/data.json",
                                        nlohmann::json{{"samples", samples}}.dump()));
  return tools::parameter_count(shape);
}

std::vector<Row> read_rows(const std::string& path) {
  std::vector<Row> rows;
  const nlohmann::json data = nlohmann::json::parse(std::ifstream(path));
  for (const auto& sample : data["samples"])
    rows.push_back({sample["input_ids"], sample["labels"]});
  return rows;
}

Padded padded(const std::vector<Row>& rows, int64_t first, int64_t count) {
  const auto at = [&](int64_t i) -> const Row& {
    return rows[static_cast<size_t>((first + i) % std::ssize(rows))];
  };
  Padded batch;
  size_t longest = 0;
  for (int64_t i = 0; i < count; ++i) {
    longest = std::max(longest, at(i).ids.size());
    batch.tokens += std::ssize(at(i).ids);
  }
  std::vector<int64_t> ids, labels;
  for (int64_t i = 0; i < count; ++i) {
    Row one = at(i);
    one.ids.resize(longest, 0), one.labels.resize(longest, -100);
    ids.insert(ids.end(), one.ids.begin(), one.ids.end());
    labels.insert(labels.end(), one.labels.begin(), one.labels.end());
  }
  batch.ids = at::tensor(ids).view({count, -1});
  batch.labels = at::tensor(labels).view({count, -1});
  return batch;
}

}  // namespace dsj::bench
