#include "job/dsconfig/config/elasticity.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "common/text.h"

namespace dsj::dsconfig {

namespace {

/// The first 38 highly composite numbers: each has more divisors than any smaller number.
constexpr int64_t kHighlyComposite[] = {
    1,      2,      4,      6,      12,     24,     36,     48,    60,    120,
    180,    240,    360,    720,    840,    1260,   1680,   2520,  5040,  7560,
    10080,  15120,  20160,  25200,  27720,  45360,  50400,  55440, 83160, 110880,
    166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};

/// nullopt if it is above kElasticBatchMax.
std::optional<int64_t> least_common_multiple(const std::vector<int64_t>& numbers) {
  int64_t all = 1;
  for (const int64_t number : numbers) {
    const int64_t factor = number / std::gcd(all, number);
    if (factor > kElasticBatchMax / all) return std::nullopt;
    all *= factor;
  }
  return all;
}

/// The largest multiple of `base` by a highly composite number that is not above `maximum`.
int64_t scaled(int64_t base, int64_t maximum) {
  const auto above = std::ranges::upper_bound(kHighlyComposite, maximum / base);
  return base * *(above - 1);
}

std::vector<int64_t> divisors_of(int64_t number) {
  std::vector<int64_t> low, high;
  for (int64_t i = 1; i <= number / i; ++i) {
    if (number % i != 0) continue;
    low.push_back(i);
    if (i != number / i) high.push_back(number / i);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

/// The rank counts from `least` to `most` that divide `batch` into whole micro-batches, ascending.
std::vector<int64_t> counts_of(int64_t batch, const std::set<int64_t>& micro_batches, int64_t least,
                               int64_t most) {
  std::vector<int64_t> counts;
  for (const int64_t count : divisors_of(batch)) {
    const int64_t share = batch / count;
    const auto divides = [&](int64_t micro) { return share % micro == 0; };
    if (count >= least && count <= most && std::ranges::any_of(micro_batches, divides))
      counts.push_back(count);
  }
  return counts;
}

/// Version 0.1, over ranks or over nodes.
Result<Elasticity> solve_flat(const std::vector<int64_t>& micro_batches, int64_t maximum,
                              int64_t least, int64_t most, bool prefer_larger) {
  const std::set<int64_t> sizes(micro_batches.begin(), micro_batches.end());
  if (*sizes.rbegin() > maximum)
    return bad_input("a micro-batch of " + std::to_string(*sizes.rbegin()) + " is more than " +
                         std::to_string(maximum) + " rows",
                     kElasticMicroBatches,
                     "raise max_train_batch_size, or leave this micro-batch out");
  if (least == 0) least = 1;
  if (most == 0) most = maximum / *sizes.begin();
  std::set<int64_t> candidates;
  for (const int64_t size : sizes) candidates.insert(scaled(size, maximum));
  if (const auto common = least_common_multiple(micro_batches); common && *common <= maximum)
    candidates.insert(scaled(*common, maximum));
  Elasticity best{.train_batch_size = *sizes.begin()};
  bool found = false;
  for (const int64_t batch : candidates) {
    auto counts = counts_of(batch, sizes, least, most);
    const bool as_many = counts.size() == best.world_sizes.size();
    const bool better =
        prefer_larger ? batch > best.train_batch_size : batch < best.train_batch_size;
    if (counts.size() < best.world_sizes.size() || (as_many && !better)) continue;
    best = {batch, std::move(counts)};
    found = true;
  }
  if (!found)
    return bad_input("no world size from min_gpus to max_gpus divides a batch of at most " +
                         std::to_string(maximum) + " rows",
                     kElasticMaximumBatch,
                     "raise max_train_batch_size, or widen min_gpus and max_gpus");
  return best;
}

/// The batch for exactly `world` ranks. Uses doubles, as DeepSpeed does, to get the same numbers.
Result<Elasticity> solve_for_world(const ElasticityRequest& request, int64_t per_node,
                                   int64_t world) {
  const double ranks = static_cast<double>(world) / static_cast<double>(request.ranks_per_node) *
                       static_cast<double>(per_node);
  double chosen = 0;
  bool first = true;
  for (const int64_t micro : request.micro_batch_sizes) {
    const double least = static_cast<double>(micro) * ranks;
    const double batch =
        std::floor(static_cast<double>(request.max_train_batch_size) / least) * least;
    if (first || (request.prefer_larger ? batch > chosen : batch < chosen)) chosen = batch;
    first = false;
  }
  if (chosen < 1)
    return bad_input("the world size, " + std::to_string(world) +
                         ", is not valid: one micro-batch for each rank is " +
                         "more than max_train_batch_size, " +
                         std::to_string(request.max_train_batch_size),
                     "elasticity", "run on fewer ranks, or raise max_train_batch_size");
  return Elasticity{static_cast<int64_t>(chosen), {static_cast<int64_t>(ranks)}};
}

Status check_request(const ElasticityRequest& request) {
  if (request.version != 0.1 && request.version != 0.2)
    return bad_input("version " + text::number(request.version) + ", DeepSpeed has 0.1 and 0.2",
                     "elasticity.version");
  if (request.micro_batch_sizes.empty())
    return bad_input("the list is empty", kElasticMicroBatches);
  const std::set<int64_t> sizes(request.micro_batch_sizes.begin(), request.micro_batch_sizes.end());
  if (sizes.size() > kElasticMicroBatchesMax)
    return bad_input(std::to_string(sizes.size()) + " different micro-batches, at most " +
                         std::to_string(kElasticMicroBatchesMax) + " are searched",
                     kElasticMicroBatches);
  if (*sizes.begin() < 1)
    return bad_input("found " + std::to_string(*sizes.begin()) + ", expected at least 1",
                     kElasticMicroBatches);
  if (request.max_ranks < request.min_ranks)
    return bad_input("max_gpus, " + std::to_string(request.max_ranks) + ", is below min_gpus, " +
                         std::to_string(request.min_ranks),
                     "elasticity.max_gpus");
  if (request.version == 0.1 && request.model_parallel_size > 1)
    return bad_input("version 0.1 has no model parallelism", "elasticity.model_parallel_size",
                     "write \"version\": 0.2");
  if (request.version == 0.2 && request.ranks_per_node % request.model_parallel_size != 0)
    return bad_input("num_gpus_per_node, " + std::to_string(request.ranks_per_node) +
                         ", is not a multiple of it",
                     "elasticity.model_parallel_size");
  return {};
}

std::string listed(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text.empty() ? "none" : text;
}

}  // namespace

Result<Elasticity> solve_elasticity(const ElasticityRequest& request, int64_t world) {
  DSJ_TRY_STATUS(check_request(request));
  if (request.version == 0.1)
    return solve_flat(request.micro_batch_sizes, request.max_train_batch_size, request.min_ranks,
                      request.max_ranks, request.prefer_larger);
  const int64_t per_node = request.ranks_per_node / request.model_parallel_size;
  auto solved = solve_flat(request.micro_batch_sizes, request.max_train_batch_size / per_node,
                           request.min_ranks / request.ranks_per_node,
                           request.max_ranks / request.ranks_per_node, request.prefer_larger);
  if (!solved) return solved;
  solved->train_batch_size *= per_node;
  for (int64_t& size : solved->world_sizes) size *= per_node;
  if (world == 0 ||
      std::ranges::binary_search(solved->world_sizes, world / request.model_parallel_size))
    return solved;
  return solve_for_world(request, per_node, world);
}

Result<ElasticBatch> elastic_batch(const ElasticityRequest& request, const Elasticity& solved,
                                   int64_t world) {
  if (!std::ranges::binary_search(solved.world_sizes, world))
    return bad_input("the world size, " + std::to_string(world) + ", is not valid; valid are " +
                         listed(solved.world_sizes),
                     "elasticity", "run on one of these numbers of ranks, or change the section");
  const std::set<int64_t> sizes(request.micro_batch_sizes.begin(), request.micro_batch_sizes.end());
  const int64_t share = solved.train_batch_size / world;
  for (auto micro = sizes.rbegin(); micro != sizes.rend(); ++micro)
    if (share % *micro == 0) return ElasticBatch{*micro, share / *micro};
  return bad_input("none of them divides a rank's " + std::to_string(share) + " rows",
                   kElasticMicroBatches);
}

}  // namespace dsj::dsconfig
