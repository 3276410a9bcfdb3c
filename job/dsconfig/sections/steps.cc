// The number of steps of a run and of its warm-up.
#include <algorithm>
#include <cmath>

#include "common/text.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

namespace {

int64_t divided_up(int64_t n, int64_t by) {
  return n / by + (n % by != 0);
}

/// Optimizer steps of an epoch, as engine/data/batches/sampler.h counts them. The batch is resolved.
int64_t steps_per_epoch(const ResolvedConfig& config, int64_t rows) {
  const int64_t batch = config.train_batch_size;
  if (config.dataloader_drop_last) return rows / batch;
  if (!config.drop_last_micro_batches) return divided_up(rows, batch);
  const int64_t micro_steps = rows / (batch / config.gradient_accumulation_steps);
  return divided_up(micro_steps, config.gradient_accumulation_steps);
}

/// maxSteps, or the epochs over the known rows; nullopt if unknown or too large.
std::optional<int64_t> total_steps(const Source& in, ResolvedConfig& config, Report& out) {
  std::optional<int64_t> total;
  if (in.args.max_steps && *in.args.max_steps > 0) {
    total = *in.args.max_steps;
    out.origin("total_steps", std::to_string(*total), "training.maxSteps");
  }
  const auto rows_known = training_rows(in);
  const int64_t batch = config.train_batch_size, rows = rows_known.value_or(0);
  if (!rows_known || batch <= 0) return total;
  config.steps_per_epoch = steps_per_epoch(config, rows);
  if (config.drop_last_micro_batches && config.steps_per_epoch == 0 &&
      !config.dataloader_drop_last) {
    out.error("training.dataloaderDropLast",
              std::to_string(rows) + " rows do not fill a micro-batch of every rank (" +
                  std::to_string(batch / config.gradient_accumulation_steps) +
                  " rows): all are left out",
              "leave it out, or take a smaller perDeviceTrainBatchSize");
    return std::nullopt;
  }
  if (total) return total;
  const double epochs = in.args.num_train_epochs.value_or(3.0);
  const double steps = std::ceil(static_cast<double>(config.steps_per_epoch) * epochs);
  if (!(steps >= 1 && steps < 1e15)) {
    out.error("training.numTrainEpochs",
              text::number(epochs) + " epochs of " + std::to_string(rows) +
                  (in.args.packing.value_or(false) ? " packed rows, " : " rows, ") +
                  std::to_string(batch) + " per step, make " + text::number(steps) + " steps",
              rows < batch ? "there are fewer rows than train_batch_size" : "give maxSteps");
    return std::nullopt;
  }
  total = static_cast<int64_t>(steps);
  out.origin("total_steps", std::to_string(*total),
             std::to_string(config.steps_per_epoch) + " steps per epoch x " + text::number(epochs) +
                 (in.args.num_train_epochs ? " (training.numTrainEpochs)" : " epochs (default)"));
  return total;
}

std::optional<int64_t> warmup_steps(const TrainingArgs& args, std::optional<int64_t> total) {
  if (args.warmup_steps && *args.warmup_steps >= 1) return static_cast<int64_t>(*args.warmup_steps);
  const double share = args.warmup_steps.value_or(0);  // below 1: a share of the run
  const double ratio = share > 0 ? share : args.warmup_ratio.value_or(0);
  if (ratio <= 0) return 0;
  if (!total) return std::nullopt;
  return static_cast<int64_t>(std::ceil(static_cast<double>(*total) * ratio));
}

const char* warmup_origin(const TrainingArgs& args) {
  if (args.warmup_steps && *args.warmup_steps > 0)
    return *args.warmup_steps >= 1 ? "training.warmupSteps"
                                   : "ceil(total steps x training.warmupSteps)";
  if (args.warmup_ratio && *args.warmup_ratio > 0)
    return "ceil(total steps x training.warmupRatio)";
  return kHuggingFaceDefault;
}

}  // namespace

std::optional<int64_t> training_rows(const Source& in) {
  if (in.args.packing.value_or(false)) return in.facts.packed_rows;
  const auto& rows = in.facts.dataset_rows;
  return rows ? std::optional(*rows - held_out_rows(*rows, in.args)) : std::nullopt;
}

Length resolve_steps(const Source& in, ResolvedConfig& config, Report& out) {
  config.drop_last_micro_batches = in.args.dataloader_drop_last.value_or(false);
  config.steps_per_print = in.value<int64_t>("steps_per_print", 0);
  const auto total = total_steps(in, config, out);
  if (total)
    config.total_steps = *total;
  else
    out.incomplete();
  return {
      .total_steps = total,
      .total_origin = in.args.max_steps.value_or(0) > 0
                          ? "training.maxSteps"
                          : "the run's length by training.numTrainEpochs",
      .warmup_asked = in.args.warmup_steps.value_or(0) > 0 || in.args.warmup_ratio.value_or(0) > 0,
      .warmup_steps = warmup_steps(in.args, total),
      .warmup_origin = warmup_origin(in.args)};
}

}  // namespace dsj::dsconfig
