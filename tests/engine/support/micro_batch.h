// Micro-batches for tests, on the CPU.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "engine/models/unit/unit.h"

namespace dsj::testing_support {

/// Rows of one length: ids and labels [rows, length] int64.
inline models::MicroBatch rectangle(const at::Tensor& ids, const at::Tensor& labels) {
  const std::vector<int64_t> lengths(static_cast<size_t>(ids.size(0)), ids.size(1));
  return {ids.reshape({-1}), labels.reshape({-1}), models::RowBounds(lengths, at::kCPU)};
}

/// Rows of any lengths; each has as many labels as ids.
inline models::MicroBatch ragged(const std::vector<std::vector<int64_t>>& ids,
                                 const std::vector<std::vector<int64_t>>& labels) {
  std::vector<int64_t> all_ids, all_labels, lengths;
  for (size_t i = 0; i < ids.size(); ++i) {
    all_ids.insert(all_ids.end(), ids[i].begin(), ids[i].end());
    all_labels.insert(all_labels.end(), labels[i].begin(), labels[i].end());
    lengths.push_back(std::ssize(ids[i]));
  }
  return {at::tensor(all_ids), at::tensor(all_labels), models::RowBounds(lengths, at::kCPU)};
}

/// One part of the same rows.
inline models::MicroBatch ragged_part(const std::vector<std::vector<int64_t>>& ids,
                                      const std::vector<std::vector<int64_t>>& labels,
                                      models::TokenPart part) {
  std::vector<int64_t> all_ids, all_labels, lengths;
  for (size_t i = 0; i < ids.size(); ++i) {
    all_ids.insert(all_ids.end(), ids[i].begin(), ids[i].end());
    all_labels.insert(all_labels.end(), labels[i].begin(), labels[i].end());
    lengths.push_back(std::ssize(ids[i]));
  }
  return models::MicroBatch::part_of(at::tensor(all_ids), at::tensor(all_labels), lengths, part,
                                     at::kCPU);
}

}  // namespace dsj::testing_support
