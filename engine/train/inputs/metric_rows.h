// The rows that a curriculum by metrics admits, and their order, from the ds_config and the files
// that it names.
// Tested by: tests/run/curriculum_run_test.cc, tests/engine/data/batches/cluster_order_test.cc
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/data/batches/cluster_order.h"
#include "engine/data/batches/sampler.h"
#include "engine/train/inputs/events.h"
#include "engine/train/inputs/inputs.h"
#include "job/dsconfig/keys/metric_curriculum.h"

namespace dsj::train {

class MetricRows {
 public:
  /// nullopt if the job has no such curriculum. BadInput: a file is missing, or is of other data.
  static Result<std::optional<MetricRows>> read(const Inputs& in);

  /// The difficulties of step `step`, counted from 1.
  std::map<std::string, int64_t> difficulties(int64_t step) const {
    return dsconfig::difficulties(metrics_, step);
  }
  /// Warns of rows that no step admits.
  void warn(const Inputs& in, const Events& events) const;

  /// The order of rows of a run with these options. A sampler deals positions; row() maps them to
  /// rows. One thread at a time. Must not outlive the MetricRows.
  class Order {
   public:
    Order(const MetricRows& rows, const data::SamplerOptions& options);
    /// Deals the positions of all steps in order.
    const data::Sampler& places() const { return places_; }
    /// The row at a position, counted from the first trained row.
    int64_t row(int64_t place) { return order_.row(place / batch_, place % batch_); }

   private:
    data::Sampler places_;
    const int64_t batch_;
    data::ClusterOrder order_;
  };

 private:
  std::vector<dsconfig::MetricCurriculum> metrics_;
  std::shared_ptr<const data::Clusters> clusters_;
  int64_t total_steps_ = 0;
};

}  // namespace dsj::train
