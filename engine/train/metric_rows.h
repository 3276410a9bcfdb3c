// The rows that a curriculum by metrics lets a run train on, and their order: from the ds_config and
// the files that it names.
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
#include "engine/train/events.h"
#include "engine/train/inputs.h"
#include "job/dsconfig/metric_curriculum.h"

namespace dsj::train {

class MetricRows {
 public:
  /// nullopt: the job has no such curriculum. BadInput: a file is not there, or of other data.
  static Result<std::optional<MetricRows>> read(const Inputs& in);

  /// What the step `step`, counted from 1, goes by.
  std::map<std::string, int64_t> difficulties(int64_t step) const {
    return dsconfig::difficulties(metrics_, step);
  }
  /// Tells of rows that no step comes to.
  void warn(const Inputs& in, const Events& events) const;

  /// The rows of a run with these options. A sampler deals places; row() says what lies there. One
  /// thread at a time. It must not outlive the MetricRows.
  class Order {
   public:
    Order(const MetricRows& rows, const data::SamplerOptions& options);
    /// Deals the places of all steps in order.
    const data::Sampler& places() const { return places_; }
    /// Counted from the first row that is trained on.
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
