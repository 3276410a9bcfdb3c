#include "engine/train/step/extremes.h"

#include <limits>
#include <utility>
#include <vector>

#include "engine/comm/agree.h"

namespace dsj::train {

void join_extremes(const dsconfig::Objective& objective, comm::Collectives& collectives,
                   at::Device device, std::span<const optim::Tally> own,
                   std::span<optim::Tally> joined) {
  const auto& names = optim::tally_names(objective);
  const auto extreme = [&](size_t i) { return optim::extreme_of(names[i % names.size()]); };
  std::vector<double> values;
  for (size_t i = 0; i < own.size(); ++i)
    if (extreme(i) != 0)
      values.push_back(own[i].count > 0 ? extreme(i) * own[i].sum
                                        : -std::numeric_limits<double>::infinity());
  values = comm::max_over_ranks(collectives, device, std::move(values));
  size_t next = 0;
  for (size_t i = 0; i < joined.size(); ++i) {
    if (extreme(i) == 0) continue;
    const double most = values[next++];
    joined[i] = joined[i].count > 0 ? optim::Tally{extreme(i) * most, 1} : optim::Tally{};
  }
}

}  // namespace dsj::train
