#include "common/dsconfig/resolve.h"

#include <algorithm>
#include <cmath>

#include "common/dsconfig/batch.h"
#include "common/dsconfig/check.h"
#include "common/dsconfig/keys.h"
#include "common/dsconfig/resolver.h"
#include "common/text.h"

namespace dsj::dsconfig {

using nlohmann::json;
using Severity = Finding::Severity;

void Resolver::report(Severity severity, const std::string& path, std::string message,
                      std::string hint) {
  out_.findings.push_back(
      {severity, checked_.written_path(path), std::move(message), std::move(hint)});
}

void Resolver::absent(Note note, std::string message, std::string hint) {
  if (alone_) {
    out_.notes.push_back(std::move(note));
  } else {
    report(Severity::Error, note.path, std::move(message), std::move(hint));
  }
}

void Resolver::origin(const std::string& path, const std::string& value, const std::string& from) {
  out_.origins.push_back({checked_.written_path(path), value, from});
}

bool Resolver::is_auto(const std::string& path) const {
  const json* value = checked_.find(path);
  return value != nullptr && *value == "auto";
}

const json* Resolver::literal(const std::string& path) const {
  const json* value = checked_.find(path);
  return value == nullptr || *value == "auto" ? nullptr : value;
}

double Resolver::matched(const std::string& path, const std::optional<double>& argument,
                         const char* argument_name, double hugging_face, double deepspeed) {
  const std::string argument_path = std::string("training.") + argument_name;
  if (const json* value = literal(path)) {
    const double found = value->get<double>();
    if (argument && *argument != found)
      mismatch(path, text::number(found), argument_path, text::number(*argument));
    return found;
  }
  if (argument) {
    origin(path, text::number(*argument), argument_path);
    return *argument;
  }
  if (is_auto(path)) {
    origin(path, text::number(hugging_face), "default (Hugging Face)");
    return hugging_face;
  }
  std::string from = kDeepSpeedDefault;
  if (const Key* key = find_key(path); key != nullptr && !key->fallback_013.is_null())
    from += "; in 0.13: " + key->fallback_013.dump();
  origin(path, text::number(deepspeed), from);
  return deepspeed;
}

void Resolver::mismatch(const std::string& path, const std::string& here,
                        const std::string& argument_path, const std::string& there) {
  report(Severity::Error, path, "ds_config says " + here + ", " + argument_path + " says " + there,
         "make them equal, or write \"auto\" in ds_config");
  out_.findings.back().other = argument_path;
}

int64_t Resolver::integer(const std::string& path, int64_t fallback) const {
  const json* value = literal(path);
  return value == nullptr ? fallback : value->get<int64_t>();
}

double Resolver::number(const std::string& path, double fallback) const {
  const json* value = literal(path);
  return value == nullptr ? fallback : value->get<double>();
}

bool Resolver::boolean(const std::string& path, bool fallback) const {
  const json* value = literal(path);
  return value == nullptr ? fallback : value->get<bool>();
}

// ---- the batch ----------------------------------------------------------------------------------

void Resolver::batch() {
  const auto take = [&](const char* path, const std::optional<int64_t>& argument,
                        const char* argument_name) {
    BatchValue value;
    const std::string argument_path = std::string("training.") + argument_name;
    if (const json* found = literal(path)) {
      value = {found->get<int64_t>(), "ds_config"};
      if (argument && *argument != *value.value)
        mismatch(path, std::to_string(*value.value), argument_path, std::to_string(*argument));
    } else if (argument && *argument >= 1) {
      value = {*argument, argument_path};
      origin(path, std::to_string(*argument), argument_path);
    }
    return value;
  };
  BatchGiven given{.world_size = facts_.world_size};
  given.micro = take(kMicro, args_.per_device_train_batch_size, "perDeviceTrainBatchSize");
  given.accumulation =
      take(kAccumulation, args_.gradient_accumulation_steps, "gradientAccumulationSteps");
  if (const json* train = literal(kTrain)) {
    given.train = {train->get<int64_t>(), "ds_config"};
  } else {  // train_batch_size does not decide an "auto": Hugging Face's default
    if (!given.micro.value && (is_auto(kMicro) || is_auto(kTrain))) {
      given.micro = {8, "default (Hugging Face)"};
      origin(kMicro, "8", given.micro.from);
    }
    if (!given.accumulation.value && is_auto(kAccumulation)) {
      given.accumulation = {1, "default (Hugging Face)"};
      origin(kAccumulation, "1", given.accumulation.from);
    }
  }
  // An entry with an error was left out. The batch rule would only repeat that error.
  for (const char* path : {kTrain, kMicro, kAccumulation})
    for (const Finding& finding : out_.findings)
      if (finding.severity == Severity::Error && finding.path == path) return;
  const BatchAnswer answer = solve_batch(given);
  if (!given.train.value && !given.micro.value) {
    absent({kMicro, "no batch size: the job has to set it",
            "spec.training.perDeviceTrainBatchSize, or --per_device_train_batch_size for dsj run"},
           answer.problem, answer.hint);
    return;
  }
  if (!answer.triple) {
    report(Severity::Error, given.train.value ? kTrain : kMicro, answer.problem, answer.hint);
    return;
  }
  const BatchTriple& triple = *answer.triple;
  out_.config.train_batch_size = triple.train;
  out_.config.micro_batch_size = triple.micro;
  out_.config.gradient_accumulation_steps = triple.accumulation;
  const std::string world = " and the world size, " + std::to_string(facts_.world_size);
  if (!given.train.value)
    origin(kTrain, std::to_string(triple.train), "micro batch x accumulation x world size");
  if (!given.micro.value)
    origin(kMicro, std::to_string(triple.micro), "from train_batch_size" + world);
  if (!given.accumulation.value)
    origin(kAccumulation, std::to_string(triple.accumulation),
           given.train.value && given.micro.value ? "from train_batch_size" + world
                                                  : kDeepSpeedDefault);
}

// ---- ZeRO ---------------------------------------------------------------------------------------

int64_t Resolver::of_hidden_size(const char* path, int64_t (*rule)(int64_t), const char* rule_text,
                                 bool applies, int64_t fallback) {
  if (!is_auto(path)) return integer(path, fallback);
  if (!applies) return fallback;
  if (!facts_.hidden_size) {
    incomplete_ = true;
    return fallback;
  }
  const int64_t value = rule(*facts_.hidden_size);
  origin(path, std::to_string(value), rule_text);
  return value;
}

void Resolver::zero() {
  ZeroConfig& zero = out_.config.zero;
  const ZeroConfig defaults;
  const auto at = [](const char* name) { return std::string("zero_optimization.") + name; };
  zero.stage = static_cast<int>(integer(at("stage"), defaults.stage));
  const bool stage3 = zero.stage == 3;
  zero.reduce_bucket_size = of_hidden_size(
      "zero_optimization.reduce_bucket_size", [](int64_t h) { return h * h; }, "hidden_size^2",
      true, defaults.reduce_bucket_size);
  zero.prefetch_bucket_size = of_hidden_size(
      "zero_optimization.stage3_prefetch_bucket_size",
      [](int64_t h) { return static_cast<int64_t>(0.9 * static_cast<double>(h) * h); },
      "int(0.9 x hidden_size^2)", stage3, defaults.prefetch_bucket_size);
  zero.param_persistence_threshold = of_hidden_size(
      "zero_optimization.stage3_param_persistence_threshold", [](int64_t h) { return 10 * h; },
      "10 x hidden_size", stage3, defaults.param_persistence_threshold);
  zero.allgather_bucket_size = integer(at("allgather_bucket_size"), defaults.allgather_bucket_size);
  zero.model_persistence_threshold =
      integer(at("stage3_model_persistence_threshold"), defaults.model_persistence_threshold);
  zero.max_live_parameters =
      integer(at("stage3_max_live_parameters"), defaults.max_live_parameters);
  zero.max_reuse_distance = integer(at("stage3_max_reuse_distance"), defaults.max_reuse_distance);
  zero.overlap_comm = boolean(at("overlap_comm"), stage3);
  // DeepSpeed 0.13 accepts a bucket of 0 (each tensor on its own), 0.19 does not.
  constexpr int64_t kSmallBucket = 1'000'000;
  for (auto [name, bucket] : {std::pair{"reduce_bucket_size", &zero.reduce_bucket_size},
                              std::pair{"allgather_bucket_size", &zero.allgather_bucket_size}}) {
    if (*bucket > 0) continue;
    *bucket = kSmallBucket;
    report(Severity::Warning, at(name), "0 is read as " + std::to_string(kSmallBucket),
           "write the number of elements you want");
  }
}

// ---- steps and the learning rate ----------------------------------------------------------------

void Resolver::steps() {
  ResolvedConfig& config = out_.config;
  config.dataloader_drop_last = boolean("dataloader_drop_last", false);
  config.steps_per_print = integer("steps_per_print", 0);
  if (args_.max_steps && *args_.max_steps > 0) {
    total_steps_ = *args_.max_steps;
    origin("total_steps", std::to_string(*total_steps_), "training.maxSteps");
  }
  const auto rows_known = training_rows();
  const int64_t batch = config.train_batch_size, rows = rows_known.value_or(0);
  if (rows_known && batch > 0) {
    config.steps_per_epoch =
        config.dataloader_drop_last ? rows / batch : rows / batch + (rows % batch != 0);
  }
  if (!total_steps_ && rows_known && batch > 0) {
    const double epochs = args_.num_train_epochs.value_or(3.0);
    const int64_t per_epoch = config.steps_per_epoch;
    const double steps = std::ceil(static_cast<double>(per_epoch) * epochs);
    if (!(steps >= 1 && steps < 1e15)) {
      report(Severity::Error, "training.numTrainEpochs",
             text::number(epochs) + " epochs of " + std::to_string(rows) + " rows, " +
                 std::to_string(batch) + " per step, make " + text::number(steps) + " steps",
             rows < batch ? "there are fewer rows than train_batch_size" : "give maxSteps");
      return;
    }
    total_steps_ = static_cast<int64_t>(steps);
    origin("total_steps", std::to_string(*total_steps_),
           std::to_string(per_epoch) + " steps per epoch x " + text::number(epochs) +
               (args_.num_train_epochs ? " (training.numTrainEpochs)" : " epochs (default)"));
  }
  if (total_steps_) config.total_steps = *total_steps_;
  if (!total_steps_) incomplete_ = true;
}

std::optional<int64_t> Resolver::warmup_steps() const {
  if (args_.warmup_steps && *args_.warmup_steps > 0) return *args_.warmup_steps;
  const double ratio = args_.warmup_ratio.value_or(0);
  if (ratio <= 0) return 0;
  if (!total_steps_) return std::nullopt;
  return static_cast<int64_t>(std::ceil(static_cast<double>(*total_steps_) * ratio));
}

const char* Resolver::warmup_origin() const {
  if (args_.warmup_steps && *args_.warmup_steps > 0) return "training.warmupSteps";
  if (args_.warmup_ratio && *args_.warmup_ratio > 0)
    return "ceil(total steps x training.warmupRatio)";
  return "default (Hugging Face)";
}

}  // namespace dsj::dsconfig
