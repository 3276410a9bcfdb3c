#include "job/dsconfig/batch.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "job/dsconfig/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

std::string described(const char* name, const BatchValue& value) {
  std::string text = std::string(name) + " ";
  text += value.value ? std::to_string(*value.value) : "not given";
  if (value.value && !value.from.empty()) text += " (" + value.from + ")";
  return text;
}

std::string described(const BatchGiven& given) {
  return described("train_batch_size", given.train) + ", " +
         described("train_micro_batch_size_per_gpu", given.micro) + ", " +
         described("gradient_accumulation_steps", given.accumulation) + ", world size " +
         std::to_string(given.world_size) +
         (given.sequence_parallel_size > 1
              ? " / sequence_parallel_size " + std::to_string(given.sequence_parallel_size)
              : "");
}

std::string shown(int64_t train, int64_t micro, int64_t accumulation, int64_t world) {
  return std::to_string(train) + " = " + std::to_string(micro) + " x " +
         std::to_string(accumulation) + " x " + std::to_string(world);
}

/// The product; nullopt on overflow of int64.
std::optional<int64_t> product(int64_t a, int64_t b, int64_t c) {
  int64_t ab = 0, abc = 0;
  if (__builtin_mul_overflow(a, b, &ab) || __builtin_mul_overflow(ab, c, &abc)) return std::nullopt;
  return abc;
}

/// The divisor of `number` nearest to `wanted`.
int64_t nearest_divisor(int64_t number, int64_t wanted) {
  constexpr int64_t kFar = 1'000'000;  // the search range
  for (int64_t step = 0; step < kFar; ++step) {
    if (wanted - step >= 1 && number % (wanted - step) == 0) return wanted - step;
    if (wanted + step <= number && number % (wanted + step) == 0) return wanted + step;
  }
  return 1;
}

std::string nearest(const BatchGiven& given) {
  const int64_t world = given.ranks();
  std::vector<std::string> valid;
  const auto add = [&](int64_t micro, int64_t accumulation) {
    const auto train = product(micro, accumulation, world);
    if (!train) return;
    std::string text = shown(*train, micro, accumulation, world);
    if (std::find(valid.begin(), valid.end(), text) == valid.end()) valid.push_back(text);
  };
  const int64_t micro = given.micro.value.value_or(0);
  const int64_t accumulation = given.accumulation.value.value_or(0);
  if (micro > 0 && accumulation > 0) add(micro, accumulation);
  if (given.train.value) {
    const int64_t per_rank = std::max<int64_t>(1, *given.train.value / world);
    if (micro > 0) {
      add(micro, std::max<int64_t>(1, per_rank / micro));
      const int64_t divisor = nearest_divisor(per_rank, std::min(micro, per_rank));
      add(divisor, per_rank / divisor);
    }
    if (accumulation > 0) add(std::max<int64_t>(1, per_rank / accumulation), accumulation);
    if (micro == 0 && accumulation == 0) add(per_rank, 1);
  }
  std::string text;
  for (const std::string& one : valid) text += (text.empty() ? "" : ", or ") + one;
  return "these hold: " + text;
}

}  // namespace

BatchAnswer solve_batch(const BatchGiven& given) {
  const int64_t world = given.ranks();
  BatchAnswer answer;
  const bool has_train = given.train.value.has_value(), has_micro = given.micro.value.has_value();
  if (!has_train && !has_micro) {
    answer.problem =
        "either train_batch_size or train_micro_batch_size_per_gpu needs to be given: " +
        described(given);
    answer.hint = "add train_micro_batch_size_per_gpu, or training.perDeviceTrainBatchSize";
    return answer;
  }
  BatchTriple triple;
  if (has_train && has_micro) {
    triple.micro = *given.micro.value;
    triple.accumulation =
        given.accumulation.value.value_or(*given.train.value / triple.micro / world);
  } else if (has_train) {
    triple.accumulation = given.accumulation.value.value_or(1);
    triple.micro = *given.train.value / world / triple.accumulation;
  } else {
    triple.micro = *given.micro.value;
    triple.accumulation = given.accumulation.value.value_or(1);
  }
  const auto held = product(triple.micro, triple.accumulation, world);
  triple.train = has_train ? *given.train.value : held.value_or(0);
  if (triple.train >= 1 && triple.micro >= 1 && triple.accumulation >= 1 && held == triple.train) {
    answer.triple = triple;
    return answer;
  }
  answer.problem = described(given);
  if (!held)
    answer.problem += ": the product is too large";
  else if (has_train && has_micro && given.accumulation.value)
    answer.problem += ": " + std::to_string(triple.train) + " is not " +
                      shown(*held, triple.micro, triple.accumulation, world);
  else
    answer.problem += ": they do not divide; the nearest, " +
                      shown(*held, triple.micro, triple.accumulation, world) + ", is not " +
                      std::to_string(triple.train);
  if (held) answer.hint = nearest(given);
  return answer;
}

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
