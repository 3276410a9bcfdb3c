#include "engine/train/watching.h"

#include <utility>

#include "common/format.h"
#include "common/log.h"
#include "engine/memory/counting_allocator.h"
#include "engine/observe/flops.h"
#include "engine/train/device_marks.h"
#include "job/dsconfig/keys/resolved_json.h"

namespace dsj::train {
namespace {

using text::format;

std::string times_text(const observe::StepTimes& times, double steps) {
  return format(
      "time (ms) | forward: %.2f | backward: %.2f | backward_inner: %.2f | "
      "backward_allreduce: %.2f | step: %.2f",
      times.forward / steps, times.backward() / steps, times.backward_inner / steps,
      times.backward_allreduce / steps, times.step / steps);
}

}  // namespace

std::unique_ptr<comm::Collectives> watched(std::unique_ptr<comm::Collectives> group,
                                           observe::CommsLog& log,
                                           const dsconfig::CommsLoggerConfig& config,
                                           at::Device device) {
  if (!config.enabled) return group;
  return comm::observed(
      std::move(group),
      [&log](const comm::Call& call) {
        const auto line =
            log.add({comm::name_of(call.kind), call.unit, call.bytes, call.seconds * 1000});
        if (line) log::info(*line);
      },
      device);
}

Watching::Watching(Files& files, const Inputs& inputs, Stepper& stepper,
                   const zero::ModelState& state, const Events& events, observe::CommsLog& comms,
                   int rank, at::Device device)
    : files_(files),
      in_(inputs),
      stepper_(stepper),
      state_(state),
      events_(events),
      comms_(comms),
      speaks_(rank == 0) {
  if (!speaks_ || !in_.config().observe.wall_clock_breakdown) return;
  clock_ = std::make_unique<observe::StepClock>(marks_for(device), state.units().size());
  stepper_.observe(clock_.get());
}

Watching::~Watching() {
  stepper_.observe(nullptr);
}

Status Watching::begin(const Progress& progress) {
  const auto& config = in_.config();
  if (!speaks_) return {};
  // Continue after the samples of the loaded checkpoint, whose own sample stays.
  const int64_t from = progress.step == 0 ? 0 : progress.step * config.train_batch_size + 1;
  if (config.observe.tensorboard.enabled) {
    DSJ_TRY(auto monitor, observe::open_tensorboard(files_, config.observe.tensorboard, from));
    monitors_.push_back(std::move(monitor));
  }
  if (config.observe.csv.enabled) {
    DSJ_TRY(auto monitor, observe::open_csv(files_, config.observe.csv, from));
    monitors_.push_back(std::move(monitor));
  }
  if (config.observe.dump_state) {
    const auto& schedule = stepper_.schedule();
    note("state: resolved configuration\n" + dsconfig::to_json(config).dump(2) +
         "\nstate: " + std::to_string(state_.units().size()) + " units, " +
         std::to_string(state_.plan().flats.size()) + " flats, " +
         std::to_string(schedule.actions.size()) + " actions per step, " +
         std::to_string(schedule.gathers) + " gathers, at most " +
         std::to_string(schedule.peak_live) + " gathered elements at a time");
  }
  return {};
}

int64_t Watching::print_every() const {
  const auto& config = in_.config();
  return config.steps_per_print > 0 ? config.steps_per_print : config.logging.every;
}

double Watching::epoch(int64_t step) const {
  const int64_t per_epoch = in_.config().steps_per_epoch;
  return per_epoch > 0 ? static_cast<double>(step) / static_cast<double>(per_epoch) : 0;
}

void Watching::note(const std::string& text) const {
  log::info(text);
  events_.emit(report::Note{.text = text});
}

/// Closes a monitor that cannot be written; the run continues.
void Watching::write(const std::vector<observe::Scalar>& scalars) {
  std::erase_if(monitors_, [&](auto& monitor) {
    const Status written = monitor->write(scalars);
    if (!written) events_.warn("a monitor ends: " + written.error().to_string());
    return !written;
  });
}

void Watching::after_step(const report::Step& step, const Progress& progress,
                          const models::MicroBatch& batch) {
  if (!speaks_) return;
  const auto& config = in_.config();
  const int64_t samples = step.step * config.train_batch_size;
  observe::StepTimes times;
  if (clock_) times = clock_->take();
  if (!monitors_.empty()) {
    std::vector<observe::Scalar> scalars = {{"Train/Samples/train_loss", *step.loss, samples},
                                            {"Train/Samples/lr", *step.lr, samples}};
    if (dsconfig::scales_loss(config)) {
      scalars.push_back({"Train/Samples/loss_scale", *step.loss_scale, samples});
    }
    if (step.metrics)
      for (const auto& [name, value] : *step.metrics)
        scalars.push_back({"Train/Samples/" + name, value, samples});
    if (clock_) {
      const std::string prefix = "Train/Samples/elapsed_time_ms_";
      scalars.insert(scalars.end(),
                     {{prefix + "forward", times.forward, samples},
                      {prefix + "backward", times.backward(), samples},
                      {prefix + "backward_inner", times.backward_inner, samples},
                      {prefix + "backward_allreduce", times.backward_allreduce, samples},
                      {prefix + "step", times.step, samples}});
    }
    write(scalars);
  }
  interval_times_ += times;
  interval_seconds_ += *step.step_seconds;
  ++interval_steps_;
  log_line(step);
  if (step.step % print_every() == 0) print_step(step, progress);
  if (config.observe.flops.enabled && step.step == config.observe.flops.profile_step) {
    profile_flops(step.step, times, batch);
  }
}

void Watching::log_line(const report::Step& step) {
  const auto& config = in_.config();
  logged_loss_ += *step.loss;
  ++logged_steps_;
  if (step.metrics)
    for (const auto& [name, value] : *step.metrics) {
      optim::Tally& tally = logged_metrics_[name];
      tally.sum += value;
      ++tally.count;
    }
  const bool first = config.logging_first_step && step.step == 1;
  if (!first && !config.logging.due(step.step, config.steps_per_epoch, config.total_steps)) {
    return;
  }
  report::Log told{.step = step.step,
                   .loss = logged_loss_ / static_cast<double>(logged_steps_),
                   .grad_norm = step.grad_norm,
                   .lr = step.lr,
                   .epoch = epoch(step.step)};
  if (!logged_metrics_.empty()) {
    told.metrics.emplace();
    for (const auto& [name, tally] : std::exchange(logged_metrics_, {}))
      (*told.metrics)[name] = tally.sum / tally.count;
  }
  events_.emit(told);
  logged_loss_ = 0;
  logged_steps_ = 0;
}

void Watching::print_step(const report::Step& step, const Progress& progress) {
  const auto& config = in_.config();
  const double steps = static_cast<double>(interval_steps_);
  if (config.steps_per_print > 0) {
    const double samples = steps * static_cast<double>(config.train_batch_size);
    note(format("step=%lld, skipped=%lld, lr=%.6g, loss=%.4f, %.2f samples/s",
                static_cast<long long>(step.step), static_cast<long long>(progress.skipped),
                *step.lr, *step.loss, samples / interval_seconds_));
  }
  if (clock_) note(times_text(interval_times_, steps));
  if (config.observe.memory_breakdown) print_memory();
  interval_times_ = {};
  interval_seconds_ = 0;
  interval_steps_ = 0;
}

void Watching::print_memory() const {
  const auto& ledger = memory::current_ledger();
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string text = "memory (MiB, live/peak)";
  for (int i = 0; i < memory::kClassCount; ++i) {
    const auto klass = static_cast<memory::Class>(i);
    text += format(" | %s: %.1f/%.1f", memory::name_of(klass), mib(ledger.live(klass)),
                   mib(ledger.peak(klass)));
  }
  note(text + format(" | all: %.1f/%.1f", mib(ledger.live()), mib(ledger.peak())));
}

void Watching::profile_flops(int64_t step, const observe::StepTimes& times,
                             const models::MicroBatch& batch) {
  const auto& config = in_.config();
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < batch.rows().rows(); ++row)
    lengths.push_back(batch.rows().length(row));
  observe::ShorterRows shorter;
  if (const auto& ltd = config.data_efficiency.random_ltd)
    shorter = {.layers = ltd->layers, .most = ltd->kept(step - 1)};
  const std::string text = observe::flops_report(
      config.observe.flops, observe::count_forward(in_.model, state_.units(), lengths, shorter),
      {.step = step,
       .world = in_.job.world_size,
       .rows = batch.rows().rows(),
       .tokens = batch.rows().tokens(),
       .accumulation = config.gradient_accumulation_steps,
       .samples_per_step = static_cast<double>(config.train_batch_size),
       .times = times});
  const std::string& path = config.observe.flops.output_file;
  if (path.empty()) return note(text);
  if (const Status written = files_.write_atomically(path, text); !written) {
    events_.warn("the flops profile is not written: " + written.error().to_string());
  }
}

void Watching::after_evaluation(int64_t step, const EvalResult& result, double seconds) {
  if (!speaks_) return;
  const double rate = seconds > 0 ? static_cast<double>(result.rows) / seconds : 0;
  warn_of_targets(result);
  report::Eval told{.step = step,
                    .loss = result.loss,
                    .epoch = epoch(step),
                    .seconds = seconds,
                    .rows = result.rows,
                    .rows_per_second = rate,
                    .targets = result.targets};
  if (result.rows_without_target > 0) told.rows_without_target = result.rows_without_target;
  const int64_t samples = step * in_.config().train_batch_size;
  std::vector<observe::Scalar> scalars;
  if (result.loss) scalars.push_back({"Train/Samples/eval_loss", *result.loss, samples});
  if (!result.metrics.empty()) told.metrics.emplace();
  for (const auto& [name, value] : result.metrics) {
    (*told.metrics)["eval_" + name] = value;
    scalars.push_back({"Train/Samples/eval_" + name, value, samples});
  }
  events_.emit(told);
  if (!scalars.empty()) write(scalars);
}

void Watching::warn_of_targets(const EvalResult& result) {
  if (result.rows_without_target == 0 || std::exchange(warned_of_targets_, true)) return;
  const std::string why =
      "raise maxSeqLength above the length of the prompts, or look for rows whose labels are all "
      "-100";
  events_.warn(result.loss ? "evaluation: " + std::to_string(result.rows_without_target) + " of " +
                                 std::to_string(result.rows) +
                                 " rows have no target and no part in eval_loss: " + why
                           : "evaluation: no row has a target, so there is no eval_loss: " + why);
}

void Watching::finish() {
  if (!speaks_) return;
  if (const std::string table = comms_.table(); !table.empty()) note(table);
}

}  // namespace dsj::train
