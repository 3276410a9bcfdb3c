#include "engine/data/packs.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "common/check.h"

namespace dsj::data {

Packs::Packs(std::span<const RowSize> rows, int64_t capacity) : capacity_(capacity) {
  std::vector<int64_t> order(rows.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return rows[a].tokens > rows[b].tokens; });
  std::vector<int64_t> pack_of(rows.size());
  std::set<std::pair<int64_t, int64_t>> room;  // what is left in a pack, and the pack
  for (const int64_t row : order) {
    const RowSize& size = rows[row];
    DSJ_CHECK(size.tokens >= 1 && size.tokens <= capacity);
    // The least room that is enough; of packs with the same room the first one.
    const auto best = room.lower_bound({size.tokens, 0});
    int64_t pack = count(), left = capacity;
    if (best == room.end()) {
      sizes_.emplace_back();
    } else {
      left = best->first, pack = best->second;
      room.erase(best);
    }
    sizes_[pack].tokens += size.tokens;
    sizes_[pack].targets += size.targets;
    pack_of[row] = pack;
    if (left > size.tokens) room.emplace(left - size.tokens, pack);
  }
  starts_.assign(sizes_.size() + 1, 0);
  for (const int64_t pack : pack_of) ++starts_[pack + 1];
  std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
  rows_.resize(rows.size());
  std::vector<int64_t> next(starts_.begin(), starts_.end() - 1);
  for (const int64_t row : order) rows_[next[pack_of[row]]++] = row;
}

std::span<const int64_t> Packs::rows(int64_t pack) const {
  DSJ_CHECK(pack >= 0 && pack < count());
  return std::span(rows_).subspan(starts_[pack], starts_[pack + 1] - starts_[pack]);
}

double Packs::filled() const {
  double tokens = 0;
  for (const RowSize& size : sizes_) tokens += size.tokens;
  return tokens / (static_cast<double>(capacity_) * static_cast<double>(count()));
}

}  // namespace dsj::data
