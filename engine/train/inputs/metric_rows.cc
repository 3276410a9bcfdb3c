#include "engine/train/inputs/metric_rows.h"

#include <algorithm>

#include "common/files/posix_files.h"

namespace dsj::train {
namespace {

/// As many positions as the run has, in order.
data::SamplerOptions all_places(data::SamplerOptions options, int64_t steps) {
  options.rows =
      std::max<int64_t>(1, steps) * options.accumulation * options.world * options.micro_batch;
  options.shuffle = false;
  options.drop_last = options.drop_last_micro_batches = false;
  return options;
}

}  // namespace

Result<std::optional<MetricRows>> MetricRows::read(const Inputs& in) {
  MetricRows rows;
  rows.metrics_ = dsconfig::metric_curricula(in.job.ds_config);
  if (rows.metrics_.empty()) return std::optional<MetricRows>();
  rows.total_steps_ = in.config().total_steps;
  std::vector<data::MetricFiles> named;
  for (const auto& metric : rows.metrics_)
    named.push_back(data::metric_files(metric, rows.total_steps_));
  PosixFiles files;
  DSJ_TRY(rows.clusters_, data::read_clusters(files, named, in.dataset->rows(), in.first_row()));
  return std::optional<MetricRows>(std::move(rows));
}

void MetricRows::warn(const Inputs& in, const Events& events) const {
  if (clusters_->never == 0) return;
  events.warn("the curriculum never admits " + std::to_string(clusters_->never) + " of " +
              std::to_string(in.rows()) + " rows: their metric is above what the run comes to");
}

MetricRows::Order::Order(const MetricRows& rows, const data::SamplerOptions& options)
    : places_(all_places(options, rows.total_steps_)),
      batch_(places_.global_batch()),
      order_(rows.clusters_, batch_, options.seed) {}

}  // namespace dsj::train
