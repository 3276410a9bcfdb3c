#include "engine/models/micro_batch.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "common/check.h"
#include "engine/device/device.h"

namespace dsj::models {
namespace {

/// Picking rows copies them and splits a product in two. One part in so many must be left out.
constexpr int64_t kWorthLeavingOut = 16;

Targets targets_of(const at::Tensor& labels, const RowBounds& rows, at::Device place) {
  const auto* label = labels.const_data_ptr<int64_t>();
  const auto& starts = rows.starts();
  std::vector<int64_t> tokens, wanted;
  for (int64_t row = 0; row < rows.rows(); ++row) {
    for (int64_t t = starts[row]; t + 1 < starts[row + 1]; ++t) {
      if (label[t + 1] == -100) continue;
      tokens.push_back(t);
      wanted.push_back(label[t + 1]);
    }
  }
  return {std::ssize(tokens), device::upload(at::tensor(tokens), place),
          device::upload(at::tensor(wanted), place)};
}

}  // namespace

MicroBatch::MicroBatch(at::Tensor input_ids, at::Tensor labels, RowBounds rows)
    : input_ids_(std::move(input_ids)), labels_(std::move(labels)), rows_(std::move(rows)) {
  const int64_t tokens = rows_.tokens();
  DSJ_CHECK(tokens >= 1 && input_ids_.dim() == 1 && input_ids_.size(0) == tokens,
            "%lld tokens in rows, %lld ids", static_cast<long long>(tokens),
            static_cast<long long>(input_ids_.numel()));
  DSJ_CHECK(labels_.device().is_cpu() && labels_.is_contiguous() && labels_.size(0) == tokens);
  targets_ = targets_of(labels_, rows_, input_ids_.device());
}

const at::Tensor* MicroBatch::last_outputs() const {
  const int64_t left_out = rows_.tokens() - targets_.count;
  const bool few = targets_.count > 0 && left_out * kWorthLeavingOut >= rows_.tokens();
  return few ? &targets_.tokens : nullptr;
}

}  // namespace dsj::models
