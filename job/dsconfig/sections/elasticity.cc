// The section "elasticity": the batch that it decides.
#include <optional>
#include <string>

#include "job/dsconfig/config/elasticity.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

constexpr const char* kBatchKeys[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                      "gradient_accumulation_steps"};

/// nullopt if a mandatory key is missing or has an error; this is reported.
std::optional<ElasticityRequest> request_of(const Source& in, Report& out) {
  for (const char* path : {kElasticMaximumBatch, kElasticMicroBatches}) {
    if (in.literal(path) != nullptr) continue;
    if (!out.has_error(path)) out.error(path, "elasticity is enabled and this key is missing");
    return std::nullopt;
  }
  ElasticityRequest request{
      .version = in.value<double>("elasticity.version"),
      .max_train_batch_size = in.value<int64_t>(kElasticMaximumBatch, 0),
      .min_ranks = in.value<int64_t>("elasticity.min_gpus"),
      .max_ranks = in.value<int64_t>("elasticity.max_gpus"),
      .ranks_per_node = in.value<int64_t>("elasticity.num_gpus_per_node"),
      .model_parallel_size = in.value<int64_t>("elasticity.model_parallel_size"),
      .prefer_larger = in.value<bool>("elasticity.prefer_larger_batch")};
  for (const json& size : *in.literal(kElasticMicroBatches)) {
    const bool whole = size.is_number_integer() &&
                       !(size.is_number_unsigned() && size.get<uint64_t>() > INT64_MAX);
    if (!whole) {
      out.error(kElasticMicroBatches, "found " + size.dump() + ", expected whole numbers");
      return std::nullopt;
    }
    request.micro_batch_sizes.push_back(size.get<int64_t>());
  }
  return request;
}

/// Reports batch keys, which elasticity controls. False if there are any, which is an error.
bool judge_batch_keys(const Source& in, const ResolvedConfig& config, Report& out) {
  const bool ignored = in.value<bool>("elasticity.ignore_non_elastic_batch_info");
  const int64_t decided[] = {config.train_batch_size, config.micro_batch_size,
                             config.gradient_accumulation_steps};
  bool accepted = true;
  for (size_t i = 0; i < std::size(kBatchKeys); ++i) {
    const json* given = in.checked.find(kBatchKeys[i]);
    if (given == nullptr) continue;
    if (!ignored) {
      out.error(kBatchKeys[i], "elasticity is enabled and sets it",
                "remove it, or set elasticity.ignore_non_elastic_batch_info to true");
      accepted = false;
    } else if (*given != "auto" && *given != decided[i]) {
      out.warning(kBatchKeys[i],
                  "elasticity overrides " + given->dump() + " with " + std::to_string(decided[i]));
    }
  }
  return accepted;
}

void judge_arguments(const Source& in, const ResolvedConfig& config, Report& out) {
  const auto judge = [&](const std::optional<int64_t>& argument, const char* name,
                         int64_t decided) {
    if (argument && *argument != decided)
      out.warning("elasticity", std::string("it overrides training.") + name + ", " +
                                    std::to_string(*argument) + ", with " +
                                    std::to_string(decided));
  };
  judge(in.args.per_device_train_batch_size, "perDeviceTrainBatchSize", config.micro_batch_size);
  judge(in.args.gradient_accumulation_steps, "gradientAccumulationSteps",
        config.gradient_accumulation_steps);
}

}  // namespace

void resolve_elasticity(const Source& in, ResolvedConfig& config, Report& out) {
  const auto request = request_of(in, out);
  if (!request) return;
  const auto refuse = [&](const Error& error) {
    out.error(error.where, error.message, error.hint);
  };
  const auto solved = solve_elasticity(*request, in.alone ? 0 : in.facts.world_size);
  if (!solved) return refuse(solved.error());
  const bool any = in.alone && !solved->world_sizes.empty();
  const int64_t world = any ? solved->world_sizes.front() : in.facts.world_size;
  const auto batch = elastic_batch(*request, *solved, world);
  if (!batch) return refuse(batch.error());
  config.elastic_world_sizes = solved->world_sizes;
  config.train_batch_size = solved->train_batch_size;
  config.micro_batch_size = batch->micro;
  config.gradient_accumulation_steps = batch->accumulation;
  if (!judge_batch_keys(in, config, out)) return;
  judge_arguments(in, config, out);
  out.origin(kBatchKeys[0], std::to_string(config.train_batch_size), "elasticity");
  out.origin(kBatchKeys[1], std::to_string(config.micro_batch_size), "elasticity");
  out.origin(kBatchKeys[2], std::to_string(config.gradient_accumulation_steps), "elasticity");
}

}  // namespace dsj::dsconfig
