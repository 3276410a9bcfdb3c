#include "engine/data/batches/packs.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "common/check.h"

namespace dsj::data {
namespace {

/// Rows that TRL wraps at a time: the batch size of datasets.Dataset.map.
constexpr int64_t kWrappedTogether = 1000;

constexpr std::array<std::pair<PackingStrategy, std::string_view>, 3> kStrategies = {{
    {PackingStrategy::Bfd, "bfd"},
    {PackingStrategy::BfdSplit, "bfd_split"},
    {PackingStrategy::Wrapped, "wrapped"},
}};

/// Splits rows into parts of at most `capacity` tokens.
std::vector<RowPart> parts_of(std::span<const RowSize> rows, int64_t capacity) {
  std::vector<RowPart> parts;
  parts.reserve(rows.size());
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    for (int64_t begin = 0; begin < rows[row].tokens; begin += capacity) {
      const int64_t tokens = std::min<int64_t>(capacity, rows[row].tokens - begin);
      parts.push_back({row, static_cast<int32_t>(begin), static_cast<int32_t>(tokens)});
    }
  }
  return parts;
}

/// An upper bound of a part's targets: its first token is not predicted.
int32_t targets_at_most(const RowPart& part, const RowSize& row) {
  return part.tokens == row.tokens ? row.targets : std::min(row.targets, part.tokens - 1);
}

void append_part(Sample& to, const Sample& row, const RowPart& part) {
  const auto begin = part.begin, end = part.begin + part.tokens;
  to.input_ids.insert(to.input_ids.end(), row.input_ids.begin() + begin,
                      row.input_ids.begin() + end);
  to.labels.insert(to.labels.end(), row.labels.begin() + begin, row.labels.begin() + end);
}

}  // namespace

std::optional<PackingStrategy> packing_of(bool packing, std::string_view strategy) {
  if (!packing) return std::nullopt;
  for (const auto& [value, name] : kStrategies)
    if (strategy == name) return value;
  return PackingStrategy::Bfd;
}

std::string_view name_of(PackingStrategy strategy) {
  return kStrategies[static_cast<size_t>(strategy)].second;
}

Packs::Packs(std::span<const RowSize> rows, int64_t capacity, PackingStrategy strategy)
    : capacity_(capacity), strategy_(strategy) {
  DSJ_CHECK(std::ranges::all_of(rows, [](const RowSize& row) { return row.tokens >= 1; }));
  if (strategy == PackingStrategy::Bfd)
    DSJ_CHECK(
        std::ranges::all_of(rows, [&](const RowSize& row) { return row.tokens <= capacity; }));
  if (strategy == PackingStrategy::Wrapped)
    wrap(rows);
  else
    best_fit(parts_of(rows, capacity), rows);
}

void Packs::best_fit(std::vector<RowPart> parts, std::span<const RowSize> rows) {
  std::ranges::stable_sort(parts, std::greater<>(), &RowPart::tokens);
  std::vector<int64_t> pack_of(parts.size());
  std::set<std::pair<int64_t, int64_t>> room;  // (free tokens, pack)
  for (size_t i = 0; i < parts.size(); ++i) {
    const RowPart& part = parts[i];
    // The pack with the least sufficient room; the first of equal ones.
    const auto best = room.lower_bound({part.tokens, 0});
    int64_t pack = count(), left = capacity_;
    if (best == room.end()) {
      sizes_.emplace_back();
    } else {
      left = best->first, pack = best->second;
      room.erase(best);
    }
    sizes_[pack].tokens += part.tokens;
    sizes_[pack].targets += targets_at_most(part, rows[part.row]);
    pack_of[i] = pack;
    if (left > part.tokens) room.emplace(left - part.tokens, pack);
  }
  starts_.assign(sizes_.size() + 1, 0);
  for (const int64_t pack : pack_of) ++starts_[pack + 1];
  std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
  parts_.resize(parts.size());
  std::vector<int64_t> next(starts_.begin(), starts_.end() - 1);
  for (size_t i = 0; i < parts.size(); ++i) parts_[next[pack_of[i]]++] = parts[i];
}

void Packs::wrap(std::span<const RowSize> rows) {
  int64_t left = 0;  // free tokens of the pack that is being filled
  for (int64_t row = 0; row < std::ssize(rows); ++row) {
    if (row % kWrappedTogether == 0) left = 0;
    for (int32_t begin = 0; begin < rows[row].tokens;) {
      if (left == 0) {
        starts_.push_back(std::ssize(parts_));
        sizes_.emplace_back();
        left = capacity_;
      }
      const auto tokens = static_cast<int32_t>(std::min<int64_t>(left, rows[row].tokens - begin));
      parts_.push_back({row, begin, tokens});
      sizes_.back().tokens += tokens;
      begin += tokens;
      left -= tokens;
    }
  }
  starts_.push_back(std::ssize(parts_));
  for (RowSize& pack : sizes_) pack.targets = pack.tokens - 1;
}

std::span<const RowPart> Packs::parts(int64_t pack) const {
  DSJ_CHECK(pack >= 0 && pack < count());
  return std::span(parts_).subspan(starts_[pack], starts_[pack + 1] - starts_[pack]);
}

int32_t Packs::longest_row() const {
  int32_t longest = 0;
  if (strategy_ == PackingStrategy::Wrapped) {
    for (const RowSize& pack : sizes_) longest = std::max(longest, pack.tokens);
  } else {
    for (const RowPart& part : parts_) longest = std::max(longest, part.tokens);
  }
  return longest;
}

double Packs::filled() const {
  double tokens = 0;
  for (const RowSize& size : sizes_) tokens += size.tokens;
  return tokens / (static_cast<double>(capacity_) * static_cast<double>(count()));
}

Result<std::vector<Sample>> Packs::samples(
    int64_t pack, const std::function<Result<Sample>(int64_t)>& row_at) const {
  std::vector<Sample> samples;
  for (const RowPart& part : parts(pack)) {
    DSJ_TRY(Sample row, row_at(part.row));
    if (part.begin + part.tokens > std::ssize(row.input_ids))
      return fail(ErrorKind::Environment,
                  "the file was changed while it was in use: a row has " +
                      std::to_string(row.input_ids.size()) + " tokens, and had more",
                  "row " + std::to_string(part.row));
    const bool joins = strategy_ == PackingStrategy::Wrapped && !samples.empty();
    const bool whole = part.tokens == std::ssize(row.input_ids);
    if (whole && !joins) {
      samples.push_back(std::move(row));
      continue;
    }
    if (!joins) samples.emplace_back();
    append_part(samples.back(), row, part);
  }
  return samples;
}

}  // namespace dsj::data
