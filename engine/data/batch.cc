#include "engine/data/batch.h"

#include <iterator>

#include "common/check.h"

namespace dsj::data {

Batch collate(std::span<const Sample> samples) {
  DSJ_CHECK(!samples.empty());
  Batch batch;
  for (const Sample& sample : samples) {
    DSJ_CHECK(!sample.input_ids.empty() && sample.input_ids.size() == sample.labels.size());
    batch.input_ids.insert(batch.input_ids.end(), sample.input_ids.begin(), sample.input_ids.end());
    batch.labels.insert(batch.labels.end(), sample.labels.begin(), sample.labels.end());
    batch.row_lengths.push_back(std::ssize(sample.input_ids));
  }
  return batch;
}

}  // namespace dsj::data
