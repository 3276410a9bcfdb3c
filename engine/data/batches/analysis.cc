#include "engine/data/batches/analysis.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "common/check.h"
#include "engine/data/batches/indexed_lists.h"
#include "engine/data/each_row.h"

namespace dsj::data {
namespace {

constexpr char kLength[] = "length", kRarity[] = "vocabulary_rarity";

/// -ln of each token's share of all tokens.
Result<std::unordered_map<int32_t, double>> surprises(const Dataset& dataset, int threads) {
  std::vector<std::unordered_map<int32_t, int64_t>> found(static_cast<size_t>(threads));
  DSJ_TRY_STATUS(
      each_row(dataset, 0, dataset.rows(), threads, [&](int thread, int64_t, const Sample& sample) {
        auto& mine = found[static_cast<size_t>(thread)];
        for (const int32_t token : sample.input_ids) ++mine[token];
      }));
  std::unordered_map<int32_t, int64_t> counts;
  int64_t all = 0;
  for (const auto& mine : found)
    for (const auto& [token, count] : mine) {
      counts[token] += count;
      all += count;
    }
  std::unordered_map<int32_t, double> surprise;
  for (const auto& [token, count] : counts)
    surprise[token] = std::log(static_cast<double>(all)) - std::log(static_cast<double>(count));
  return surprise;
}

/// Merges lists of rows to about a hundred, which suffice for percentile curricula.
Lists merged(const Lists& lists) {
  const int64_t together = std::max<int64_t>(1, lists.count() / 100);
  Lists out;
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < lists.count(); ++i) {
    rows.insert(rows.end(), lists.list(i).begin(), lists.list(i).end());
    if ((i + 1) % together != 0 && i + 1 != lists.count()) continue;
    out.add(rows);
    rows.clear();
  }
  return out;
}

}  // namespace

const std::vector<std::string>& metric_names() {
  static const std::vector<std::string> names = {kLength, kRarity};
  return names;
}

Result<std::vector<int64_t>> metric_of_rows(const Dataset& dataset, const std::string& name,
                                            int threads) {
  DSJ_CHECK(std::ranges::count(metric_names(), name) == 1 && threads >= 1);
  std::unordered_map<int32_t, double> surprise;
  if (name == kRarity) {
    DSJ_TRY(surprise, surprises(dataset, threads));
  }
  std::vector<int64_t> of_row(static_cast<size_t>(dataset.rows()));
  DSJ_TRY_STATUS(
      each_row(dataset, 0, dataset.rows(), threads, [&](int, int64_t row, const Sample& sample) {
        int64_t& value = of_row[static_cast<size_t>(row)];
        if (name == kLength) {
          value = std::ssize(sample.input_ids);
          return;
        }
        double sum = 0;
        for (const int32_t token : sample.input_ids) sum += surprise.at(token);
        value = std::llround(sum);
      }));
  return of_row;
}

std::string metric_file(const std::string& folder, const std::string& name,
                        const std::string& what) {
  return path_join(path_join(folder, name), name + "_" + what);
}

Status write_metric(Files& files, const std::string& folder, const std::string& name,
                    const std::vector<int64_t>& of_row) {
  std::map<int64_t, std::vector<int64_t>> rows_of;
  Lists of_sample, values, samples;
  for (size_t row = 0; row < of_row.size(); ++row) {
    of_sample.add(std::span(&of_row[row], 1));
    rows_of[of_row[row]].push_back(static_cast<int64_t>(row));
  }
  for (const auto& [value, rows] : rows_of) {
    values.add(std::span(&value, 1));
    samples.add(rows);
  }
  DSJ_TRY_STATUS(files.make_dirs(path_join(folder, name)));
  const auto write = [&](const char* what, const Lists& lists) {
    return write_lists(files, metric_file(folder, name, what), lists);
  };
  DSJ_TRY_STATUS(write("sample_to_metric", of_sample));
  DSJ_TRY_STATUS(write("index_to_metric", values));
  DSJ_TRY_STATUS(write("index_to_sample", samples));
  return write("index_to_sample_percentile_merged", merged(samples));
}

}  // namespace dsj::data
