#include "engine/data/batches/batch.h"

#include <algorithm>
#include <iterator>

#include "common/check.h"

namespace dsj::data {
namespace {

/// The part with the tokens from `begin` to `end`, in a row that begins at `row`.
AnswerPart part_of(const Sample& sample, int64_t row, int64_t begin, int64_t end) {
  AnswerPart part;
  for (int64_t at = begin; at < end; ++at) {
    if (sample.labels[static_cast<size_t>(at)] == kIgnoredLabel) continue;
    ++part.tokens;
    part.targets += at > row;
  }
  return part;
}

/// Adds the part of a marked row.
void add_part(const Sample& sample, Batch& batch) {
  AnswerPart part = part_of(sample, 0, 0, std::ssize(sample.input_ids));
  if (!sample.reference.empty()) part.reference = sample.reference[0];
  part.good = *sample.good;
  batch.parts.push_back(part);
}

void add_parts(const Sample& sample, Batch& batch) {
  const int64_t second = sample.second, end = std::ssize(sample.input_ids);
  if (sample.answer >= 0) batch.parts.push_back(part_of(sample, 0, 0, sample.answer));
  AnswerPart chosen = part_of(sample, 0, std::max<int64_t>(0, sample.answer), second);
  AnswerPart rejected = part_of(sample, second, second, end);
  if (sample.reference.size() == 2) {
    chosen.reference = sample.reference[0];
    rejected.reference = sample.reference[1];
  }
  batch.parts.push_back(chosen);
  batch.parts.push_back(rejected);
}

/// For a pair whose rows are scored. `first`: index of the pair's first token in the batch.
void add_scores(const Sample& sample, int64_t first, Batch& batch) {
  const int64_t second = sample.second, end = std::ssize(sample.input_ids);
  AnswerPart parts[2] = {{.tokens = second, .margin = *sample.margin}, {.tokens = end - second}};
  for (int64_t at = 0; at < end; ++at) {
    if (sample.labels[static_cast<size_t>(at)] == kIgnoredLabel) continue;
    parts[at >= second].targets = 1;
    batch.scored.push_back(first + at);
  }
  batch.parts.insert(batch.parts.end(), std::begin(parts), std::end(parts));
}

}  // namespace

Batch collate(std::span<const Sample> samples) {
  DSJ_CHECK(!samples.empty());
  Batch batch;
  batch.is_scored = samples.front().margin.has_value();
  std::vector<Sample> beside;
  for (const Sample& sample : samples) {
    DSJ_CHECK(!sample.input_ids.empty() && sample.input_ids.size() == sample.labels.size());
    batch.input_ids.insert(batch.input_ids.end(), sample.input_ids.begin(), sample.input_ids.end());
    batch.labels.insert(batch.labels.end(), sample.labels.begin(), sample.labels.end());
    DSJ_CHECK((sample.second > 0) == (samples.front().second > 0) &&
              sample.good.has_value() == samples.front().good.has_value() &&
              sample.margin.has_value() == samples.front().margin.has_value() &&
              sample.beside.size() == samples.front().beside.size());
    beside.insert(beside.end(), sample.beside.begin(), sample.beside.end());
    const int64_t length = std::ssize(sample.input_ids);
    DSJ_CHECK(sample.second >= 0 && sample.second < length && sample.answer <= sample.second);
    if (sample.good) add_part(sample, batch);
    if (sample.second > 0) {
      batch.row_lengths.push_back(sample.second);
      sample.margin ? add_scores(sample, batch.tokens() - length, batch) : add_parts(sample, batch);
    }
    batch.row_lengths.push_back(length - sample.second);
  }
  if (!beside.empty()) batch.beside.push_back(collate(beside));
  return batch;
}

}  // namespace dsj::data
