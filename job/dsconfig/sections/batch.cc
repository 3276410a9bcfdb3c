// The batch keys: which of them are given, and what they become.
#include "job/dsconfig/config/batch.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

/// Ranks that share a micro-batch; 1 if the world is smaller, which another check refuses.
int64_t shared_ranks(const Source& in) {
  const int64_t size = in.value<int64_t>(kSequenceKey);
  return size <= in.facts.world_size ? size : 1;
}

}  // namespace

void resolve_batch(const Source& in, ResolvedConfig& config, Report& out) {
  if (in.value<bool>("elasticity.enabled")) return resolve_elasticity(in, config, out);
  const auto take = [&](const char* path, const std::optional<int64_t>& argument,
                        const char* argument_name) {
    BatchValue value;
    const std::string argument_path = std::string("training.") + argument_name;
    if (const json* found = in.literal(path)) {
      value = {found->get<int64_t>(), "ds_config"};
      if (argument && *argument != *value.value)
        out.mismatch(path, std::to_string(*value.value), argument_path, std::to_string(*argument));
    } else if (argument && *argument >= 1) {
      value = {*argument, argument_path};
      out.origin(path, std::to_string(*argument), argument_path);
    }
    return value;
  };
  const int64_t together = shared_ranks(in);
  BatchGiven given;
  given.sequence_parallel_size = together;
  given.world_size = in.facts.world_size / together * together;
  given.micro =
      take(kMicroBatchKey, in.args.per_device_train_batch_size, "perDeviceTrainBatchSize");
  given.accumulation =
      take(kAccumulationKey, in.args.gradient_accumulation_steps, "gradientAccumulationSteps");
  const json* train = in.literal(kTrainBatchKey);
  if (train != nullptr) given.train = {train->get<int64_t>(), "ds_config"};
  // train_batch_size does not decide an "auto": Trainer writes its own defaults and refuses a
  // literal that is not their product. Without a job, only the literal is known.
  const bool open = train != nullptr && in.alone;
  if (!given.micro.value && !open &&
      (in.is_auto(kMicroBatchKey) || (train == nullptr && in.is_auto(kTrainBatchKey)))) {
    given.micro = {8, kHuggingFaceDefault};
    out.origin(kMicroBatchKey, "8", given.micro.from);
  }
  if (!given.accumulation.value && !open && in.is_auto(kAccumulationKey)) {
    given.accumulation = {1, kHuggingFaceDefault};
    out.origin(kAccumulationKey, "1", given.accumulation.from);
  }
  // An entry with an error was left out. The batch rule would only repeat the error.
  for (const char* path : {kTrainBatchKey, kMicroBatchKey, kAccumulationKey})
    if (out.has_error(path)) return;
  const BatchAnswer answer = solve_batch(given);
  if (!given.train.value && !given.micro.value) {
    out.absent(
        {kMicroBatchKey, "no batch size: the job has to set it",
         "spec.training.perDeviceTrainBatchSize, or --per_device_train_batch_size for dsj run"},
        answer.problem, answer.hint);
    return;
  }
  if (!answer.triple) {
    out.error(given.train.value ? kTrainBatchKey : kMicroBatchKey, answer.problem, answer.hint);
    return;
  }
  const BatchTriple& triple = *answer.triple;
  config.train_batch_size = triple.train;
  config.micro_batch_size = triple.micro;
  config.gradient_accumulation_steps = triple.accumulation;
  const std::string world = " and the world size, " + std::to_string(in.facts.world_size) +
                            (together > 1 ? ", / sequence_parallel_size" : "");
  if (!given.train.value)
    out.origin(kTrainBatchKey, std::to_string(triple.train),
               std::string("micro batch x accumulation x world size") +
                   (together > 1 ? " / sequence_parallel_size" : ""));
  if (!given.micro.value)
    out.origin(kMicroBatchKey, std::to_string(triple.micro), "from train_batch_size" + world);
  if (!given.accumulation.value)
    out.origin(kAccumulationKey, std::to_string(triple.accumulation),
               given.train.value && given.micro.value ? "from train_batch_size" + world
                                                      : kDeepSpeedDefault);
}

}  // namespace dsj::dsconfig
