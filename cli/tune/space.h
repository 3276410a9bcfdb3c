// What `dsj tune` may try: configurations as changes of the job's own file, and which of them there
// are. Pure; docs/plan.md says where it is DeepSpeed's space and where not.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dsj::tune {

/// One configuration.
struct Candidate {
  bool given = false;  ///< the file as it is; the other fields say what it has
  int stage = 0;
  int64_t micro_batch = 1, accumulation = 1;
  bool offload = false;  ///< the optimizer's state in host memory, where the file has it elsewhere
  nlohmann::json settings = nlohmann::json::object();  ///< further keys of zero_optimization
};

/// As DeepSpeed names its experiments: "z2_gas1_tmbspg8", "z2_gas1_tmbspg8_ocT". The given one:
/// "as_given".
std::string name_of(const Candidate& candidate);
/// `base` with the candidate's values; the one that is given is `base` itself.
nlohmann::json ds_config_of(const nlohmann::json& base, const Candidate& candidate);

/// Rows per rank and step.
struct BatchRule {
  int64_t world = 1;
  int64_t micro_batch = 1, accumulation = 1;  ///< of the file
  bool keep = false;  ///< train_batch_size stays: micro-batch x accumulation is what the file has
  int64_t least = 1;  ///< min_train_batch_size
  std::optional<int64_t> most;  ///< max_train_batch_size
};
/// The accumulation with which a micro-batch of this size is tried: the file's, changed as little as
/// the rule allows; nullopt: no accumulation keeps the rule.
std::optional<int64_t> accumulation_of(int64_t micro_batch, const BatchRule& rule);

/// Sizes of micro-batches, rising: half the file's own size, that, and `doublings` doublings of it,
/// as far as they lie between `least` and `most`; with `rule.keep` every size in that range that
/// divides the rows of a rank. Never empty if some size is allowed: then the nearest one.
std::vector<int64_t> ladder(const BatchRule& rule, int64_t doublings, int64_t least, int64_t most);

/// The largest of the rising `sizes` that fits; 0: none does. Calls `fits` O(log) times.
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

/// The other keys of ZeRO that DeepSpeed's tuner tries at a stage, in all combinations, without
/// those that change nothing here: keys that the key table does not act on, and bucket sizes above
/// `parameters` elements, which are one bucket each.
std::vector<nlohmann::json> settings_of(int stage, int64_t parameters);

}  // namespace dsj::tune
