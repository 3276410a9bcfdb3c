#include "job/spec/elastic.h"

#include <algorithm>

#include "job/dsconfig/config/batch.h"
#include "job/dsconfig/config/group_sizes.h"

namespace dsj::jobspec {
namespace {

using dsconfig::Finding;
using nlohmann::json;
using Severity = Finding::Severity;

constexpr char kElasticPath[] = "spec.elastic";

/// A number in ds_config; nullopt if it is "auto", missing or wrong.
std::optional<int64_t> number(const json& config, const char* key) {
  const auto found = config.is_object() ? config.find(key) : config.end();
  if (found == config.end() || !found->is_number_integer()) return std::nullopt;
  const int64_t value = found->get<int64_t>();
  return value >= 1 ? std::optional(value) : std::nullopt;
}

bool has_elasticity(const json& config) {
  const auto at = json::json_pointer("/elasticity/enabled");
  return config.is_object() && config.contains(at) && config[at] == true;
}

/// The rows of a step with `workers` workers and the job's present settings; nullopt on overflow.
std::optional<int64_t> rows_of(const ElasticInput& in, int64_t micro, int64_t accumulation,
                               int workers) {
  int64_t rows = 0;
  const int64_t ranks = static_cast<int64_t>(workers) * in.slots_per_worker /
                        number(in.ds_config, dsconfig::kSequenceKey).value_or(1);
  const bool over = __builtin_mul_overflow(micro, accumulation, &rows) ||
                    __builtin_mul_overflow(rows, ranks, &rows);
  return over ? std::nullopt : std::optional(rows);
}

struct FixedBatch {
  int64_t train = 0, micro = 0;  ///< rows of a step, rows of one rank's micro-step
};
/// nullopt if something is missing, which `findings` report.
std::optional<FixedBatch> fixed_batch(const ElasticInput& in, std::vector<Finding>& findings) {
  const auto train = number(in.ds_config, dsconfig::kTrainBatchKey);
  auto micro = number(in.ds_config, dsconfig::kMicroBatchKey);
  if (!micro && in.training.per_device_train_batch_size.value_or(0) > 0)
    micro = in.training.per_device_train_batch_size;
  auto accumulation = number(in.ds_config, dsconfig::kAccumulationKey);
  if (!accumulation) accumulation = in.training.gradient_accumulation_steps;
  const auto refuse = [&](std::string message, std::string hint) {
    findings.push_back({Severity::Error, kElasticPath, std::move(message), std::move(hint)});
  };
  if (!train) {
    const auto rows =
        rows_of(in, micro.value_or(8), accumulation.value_or(1), in.bounds.max_replicas);
    refuse(
        "the batch would change with the number of workers: ds_config's train_batch_size is "
        "not a number",
        (rows ? "write train_batch_size: " + std::to_string(*rows) + ", the batch of maxReplicas"
              : std::string("write train_batch_size as a number")) +
            ", or enable ds_config's elasticity");
  } else if (!micro) {
    refuse(
        "a rank's micro-batch would grow with fewer workers: "
        "train_micro_batch_size_per_gpu is not a number",
        "write it in ds_config, or spec.training.perDeviceTrainBatchSize");
  } else if (accumulation) {
    refuse("gradient_accumulation_steps is " + std::to_string(*accumulation) +
               " and must follow from the number of workers",
           "leave it out of ds_config, and gradientAccumulationSteps out of spec.training");
  } else {
    return FixedBatch{*train, *micro};
  }
  return std::nullopt;
}

}  // namespace

int largest_size(const std::vector<int>& sizes, int64_t most) {
  const auto above = std::ranges::upper_bound(sizes, most);
  return above == sizes.begin() ? 0 : *(above - 1);
}

ElasticSizes elastic_sizes(const ElasticInput& in) {
  const Elastic& bounds = in.bounds;
  ElasticSizes sizes;
  std::vector<int64_t> worlds;
  std::optional<FixedBatch> batch;
  const bool solver = has_elasticity(in.ds_config);
  const dsconfig::ResolvedConfig config = dsconfig::resolve_alone(in.ds_config).config;
  if (solver) {
    worlds = config.elastic_world_sizes;
    if (worlds.empty()) return sizes;
  } else {
    batch = fixed_batch(in, sizes.findings);
    if (!batch) return sizes;
  }
  for (int workers = bounds.min_replicas; workers <= bounds.max_replicas; ++workers) {
    const int64_t ranks = static_cast<int64_t>(workers) * in.slots_per_worker;
    const int64_t together = dsconfig::data_ranks(config, static_cast<int>(ranks));
    const int64_t share = solver ? 0 : batch->train / together;
    const bool fits = solver ? std::ranges::binary_search(worlds, ranks)
                             : batch->train % together == 0 && share % batch->micro == 0;
    if (fits && dsconfig::fits_groups(config, ranks)) sizes.workers.push_back(workers);
  }
  const auto refuse = [&](std::string message, std::string hint) {
    sizes.findings.push_back({Severity::Error, kElasticPath, std::move(message), std::move(hint)});
  };
  const std::string range =
      "from " + std::to_string(bounds.min_replicas) + " to " + std::to_string(bounds.max_replicas);
  const auto group = dsconfig::group_size(config.zero);
  const std::string groups =
      group ? " and " + group->path + ", " + std::to_string(group->ranks) : std::string();
  if (sizes.workers.empty()) {
    refuse("no number of workers " + range + " fits the batch" + groups +
               (solver ? " that elasticity decides"
                       : ": train_batch_size " + std::to_string(batch->train) +
                             " is not a multiple of micro-batch " + std::to_string(batch->micro) +
                             " x ranks"),
           "`dsj plan` shows the batch");
  } else if (sizes.workers.front() > in.replicas && in.replicas >= bounds.min_replicas) {
    refuse("no number of workers up to spec.workers.replicas, " + std::to_string(in.replicas) +
               ", fits the batch" + groups + "; the smallest that does is " +
               std::to_string(sizes.workers.front()),
           "raise replicas");
  }
  return sizes;
}

}  // namespace dsj::jobspec
