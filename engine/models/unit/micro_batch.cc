#include "engine/models/unit/micro_batch.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/check.h"
#include "engine/device/device.h"

namespace dsj::models {
namespace {

/// Picking rows copies them and splits a product in two. At least one in so many must be left out.
constexpr int64_t kWorthLeavingOut = 16;

/// The targets of tokens [first, end). `all`: set to the number of targets of all tokens.
Targets targets_of(const int64_t* label, const RowBounds& rows, int64_t first, int64_t end,
                   at::Device device, int64_t& all) {
  const auto& starts = rows.starts();
  std::vector<int64_t> tokens, wanted;
  all = 0;
  for (int64_t row = 0; row < rows.rows(); ++row) {
    for (int64_t t = starts[row]; t + 1 < starts[row + 1]; ++t) {
      if (label[t + 1] == -100) continue;
      ++all;
      if (t < first || t >= end) continue;
      tokens.push_back(t - first);
      wanted.push_back(label[t + 1]);
    }
  }
  return {std::ssize(tokens), device::upload(at::tensor(tokens), device),
          device::upload(at::tensor(wanted), device)};
}

/// The rows that tokens [first, end) form.
RowBounds bounds_of(const RowBounds& rows, int64_t first, int64_t end, at::Device device) {
  std::vector<int64_t> lengths, positions;
  for (int64_t row = 0; row < rows.rows(); ++row) {
    const int64_t start = rows.starts()[row];
    const int64_t from = std::max(first, start), to = std::min(end, rows.starts()[row + 1]);
    if (from >= to) continue;
    lengths.push_back(to - from);
    positions.push_back(from - start);
  }
  return RowBounds(lengths, device, std::span<const int64_t>(positions));
}

/// x followed by `count` times `value`.
at::Tensor longer(const at::Tensor& x, int64_t count, int64_t value) {
  return count == 0 ? x : at::cat({x, at::full({count}, value, x.options())});
}

}  // namespace

MicroBatch::MicroBatch(at::Tensor input_ids, at::Tensor labels, RowBounds rows)
    : input_ids_(std::move(input_ids)), labels_(std::move(labels)), rows_(std::move(rows)) {
  const int64_t tokens = rows_.tokens();
  DSJ_CHECK(tokens >= 1 && input_ids_.dim() == 1 && input_ids_.size(0) == tokens,
            "%lld tokens in rows, %lld ids", static_cast<long long>(tokens),
            static_cast<long long>(input_ids_.numel()));
  DSJ_CHECK(labels_.device().is_cpu() && labels_.is_contiguous() && labels_.size(0) == tokens);
  int64_t all = 0;
  targets_ =
      targets_of(labels_.const_data_ptr<int64_t>(), rows_, 0, tokens, input_ids_.device(), all);
}

MicroBatch MicroBatch::part_of(const at::Tensor& input_ids, const at::Tensor& labels,
                               std::span<const int64_t> lengths, TokenPart part,
                               at::Device device) {
  DSJ_CHECK(input_ids.device().is_cpu() && labels.device().is_cpu() && labels.is_contiguous() &&
            input_ids.size(0) == labels.size(0) && part.index >= 0 && part.index < part.count);
  const int64_t tokens = input_ids.size(0), each = (tokens + part.count - 1) / part.count;
  std::vector<int64_t> all_lengths(lengths.begin(), lengths.end());
  const int64_t more = each * part.count - tokens;
  if (more > 0) all_lengths.push_back(more);
  const auto whole = std::make_shared<Whole>();
  whole->rows = RowBounds(all_lengths, device);
  DSJ_CHECK(whole->rows.tokens() == each * part.count);
  const int64_t first = part.index * each;
  MicroBatch own;
  own.input_ids_ =
      device::upload(longer(input_ids, more, 0).narrow(0, first, each).clone(), device);
  own.rows_ = bounds_of(whole->rows, first, first + each, device);
  const at::Tensor all_labels = longer(labels, more, -100);
  own.targets_ = targets_of(all_labels.const_data_ptr<int64_t>(), whole->rows, first, first + each,
                            device, whole->targets);
  own.whole_ = whole;
  return own;
}

MicroBatch MicroBatch::of_scored(at::Tensor input_ids, RowBounds rows,
                                 const std::vector<int64_t>& scored) {
  const at::Tensor none = at::full({rows.tokens()}, -100, at::kLong);
  MicroBatch batch(std::move(input_ids), none, std::move(rows));
  const at::Tensor tokens =
      device::upload(at::tensor(scored, at::kLong), batch.input_ids_.device());
  batch.targets_ = {std::ssize(scored), tokens, {}};
  return batch;
}

const at::Tensor* MicroBatch::last_outputs() const {
  const int64_t left_out = rows_.tokens() - targets_.count;
  const bool few = targets_.count > 0 && left_out * kWorthLeavingOut >= rows_.tokens();
  return few ? &targets_.tokens : nullptr;
}

}  // namespace dsj::models
