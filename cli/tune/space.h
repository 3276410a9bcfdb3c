// The search space of `dsj tune`: configurations as changes of the job's own file. Pure;
// docs/plan.md says where it equals DeepSpeed's space and where it differs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dsj::tune {

/// One configuration.
struct Candidate {
  bool given = false;  ///< the file unchanged; the other fields show its values
  int stage = 0;
  int64_t micro_batch = 1, accumulation = 1;
  bool offload = false;  ///< optimizer state in host memory, although the file keeps it elsewhere
  nlohmann::json settings = nlohmann::json::object();  ///< further keys of zero_optimization
};

/// The name in DeepSpeed's scheme: "z2_gas1_tmbspg8", "z2_gas1_tmbspg8_ocT"; "as_given" for the
/// given one.
std::string name_of(const Candidate& candidate);
/// `base` with the candidate's values; `base` itself for the given one.
nlohmann::json ds_config_of(const nlohmann::json& base, const Candidate& candidate);

/// Rows per rank and step.
struct BatchRule {
  int64_t world = 1;
  int64_t micro_batch = 1, accumulation = 1;  ///< values in the file
  bool keep = false;                          ///< train_batch_size stays: keep the product of both
  int64_t least = 1;                          ///< min_train_batch_size
  std::optional<int64_t> most;                ///< max_train_batch_size
};
/// The accumulation for a micro-batch of this size: the file's, changed as little as the rule
/// allows. nullopt if no accumulation satisfies the rule.
std::optional<int64_t> accumulation_of(int64_t micro_batch, const BatchRule& rule);

/// Sizes of micro-batches in ascending order: half the file's size, that size, and `doublings`
/// doublings of it, between `least` and `most`. With `rule.keep`, every size in that range that
/// divides the rows of a rank. Not empty if any size is allowed: then it has at least the
/// nearest one.
std::vector<int64_t> ladder(const BatchRule& rule, int64_t doublings, int64_t least, int64_t most);

/// How many of the ascending `sizes` fit. Calls `fits` O(log n) times.
template <typename Fits>
size_t count_that_fit(const std::vector<int64_t>& sizes, const Fits& fits) {
  size_t low = 0, high = sizes.size();
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (fits(sizes[middle]))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// The other ZeRO keys that DeepSpeed's tuner tries at a stage, in all combinations. Left out:
/// keys without an effect here according to the key table, and bucket sizes above `parameters`
/// elements, which all give a single bucket.
std::vector<nlohmann::json> settings_of(int stage, int64_t parameters);

}  // namespace dsj::tune
