#include "job/dsconfig/keys/metric_curriculum.h"

#include <nlohmann/json.hpp>

#include "job/dsconfig/keys/resolved_json.h"

namespace dsj::dsconfig {

std::vector<MetricCurriculum::Level> MetricCurriculum::admitted(int64_t steps) const {
  std::vector<Level> all;
  for (int64_t step = 1; step <= steps; ++step) {
    const int64_t difficulty = schedule.at(step);
    if (all.empty() || difficulty > all.back().difficulty) all.push_back({step - 1, difficulty});
    if (difficulty >= schedule.max) break;  // reached: it stays there
  }
  return all;
}

std::map<std::string, int64_t> difficulties(const std::vector<MetricCurriculum>& metrics,
                                            int64_t step) {
  std::map<std::string, int64_t> all;
  for (const MetricCurriculum& one : metrics) all[one.metric] = one.schedule.at(step);
  return all;
}

nlohmann::json to_json(const std::vector<MetricCurriculum>& metrics) {
  nlohmann::json all = nlohmann::json::object();
  for (const MetricCurriculum& metric : metrics) {
    DataEfficiencyConfig schedule;
    schedule.row_length = {metric.metric, metric.schedule};
    nlohmann::json& one = all[metric.metric];
    one = to_json(schedule)["row_length"];
    one["difficulty_type"] = metric.percentile ? "percentile" : "value";
    one["index_to_sample_path"] = metric.index_to_sample;
    if (!metric.percentile) one["index_to_metric_path"] = metric.index_to_metric;
  }
  return all;
}

}  // namespace dsj::dsconfig
