#include "engine/train/train_loop.h"

#include <ATen/ATen.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "common/log.h"
#include "common/startup_trace.h"
#include "common/text.h"
#include "engine/checkpoint/layout.h"
#include "engine/comm/agree.h"
#include "engine/data/batches/cut_rows.h"
#include "engine/data/batches/loader.h"
#include "engine/memory/counting_allocator.h"
#include "engine/optim/lr_schedule.h"
#include "engine/train/step/micro_batch.h"
#include "engine/train/stop_signal.h"
#include "job/contract.h"

namespace dsj::train {
namespace {

using Clock = std::chrono::steady_clock;

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

/// The loop over steps, once all parts of the run are ready.
class Loop {
 public:
  explicit Loop(const RunParts& parts)
      : in_(parts.inputs),
        chosen_(parts.chosen),
        references_(parts.references),
        stepper_(parts.stepper),
        saver_(parts.saver),
        guard_(parts.guard),
        events_(parts.events),
        watching_(parts.watching),
        collectives_(parts.collectives),
        groups_(parts.groups),
        device_(parts.device),
        flight_(parts.flight),
        startup_file_(parts.startup_file) {}

  /// Runs to the planned end. Returns the exit code: done, preempted, or not finite.
  Result<int> run(Progress progress) {
    const auto& config = in_.config();
    defer_stops();
    DSJ_TRY_STATUS(watching_.begin(progress));
    guard_.begin();
    if (config.eval.on_start && progress.step == 0) {
      DSJ_TRY(const EvalResult seen, evaluate(progress));
      if (seen.stopped) return static_cast<int>(contract::kExitPreempted);  // nothing to save
    }
    if (progress.evaluation_due && evaluates_now(progress)) {
      DSJ_TRY(const Evaluated made_up, evaluate_step(progress));
      if (made_up.stopped) return static_cast<int>(contract::kExitPreempted);  // still due
      if (made_up.is_best) DSJ_TRY_STATUS(save_again(progress));
    }
    const data::Sampler dealt = in_.sampler(groups_.groups().data_ranks());
    std::optional<MetricRows::Order> order;
    if (chosen_) order.emplace(*chosen_, dealt.options());
    const data::Sampler& sampler = order ? order->places() : dealt;
    data::Loader loader(
        [this, &order](int64_t row) {
          return in_.training_row(order ? order->row(row) : row,
                                  references_ ? &references_->train : nullptr);
        },
        sampler,
        {.rank = groups_.groups().data_rank(),
         .first_step = progress.step - progress.dealt_from,
         .packs = in_.packs ? &*in_.packs : nullptr});
    const Rows rows{loader, sampler, progress.dealt_from};
    while (progress.step < config.total_steps && !progress.best.stopped) {
      DSJ_TRY(bool stop, step(rows, progress));
      if (const auto why = guard_.gives_up(progress.step); !why.empty()) return give_up(why);
      bool is_best = false;
      progress.evaluation_due = evaluates_now(progress);
      if (!stop && progress.evaluation_due) {
        DSJ_TRY(const Evaluated seen, evaluate_step(progress));
        stop = seen.stopped;
        is_best = seen.is_best;
      }
      const bool last = progress.step == config.total_steps || progress.best.stopped;
      bool saved = false;
      const bool only_model = in_.job.training.save_only_model.value_or(false);
      const bool saves_last = last && config.save.kind != dsconfig::Cadence::Kind::Never;
      const bool due = is_due(config.save, progress) || (is_best && config.eval.best.save);
      if (stop || (!only_model && (saves_last || due))) {
        DSJ_TRY(saved, save(progress, stop || last));
      } else if (due && !last) {  // the last one goes to model/
        DSJ_TRY_STATUS(save_model(progress));
      }
      if (stop || last) watching_.finish();
      if (stop && (!last || progress.evaluation_due))
        return saved ? Result<int>(static_cast<int>(contract::kExitPreempted))
                     : give_up("stopped on request, and step " + std::to_string(progress.step) +
                               " is not saved: its weights are not finite");
    }
    DSJ_TRY_STATUS(saver_.finish());  // with "best", the last step may save nothing
    report_memory();
    try_last_weights();
    if (progress.best.stopped) tell_early_stop(progress);
    DSJ_TRY_STATUS(load_best(progress));
    flight_.enter(FlightPhase::Exporting, progress.step);
    if (const auto why = guard_.keeps_back(); !why.empty()) return give_up(why);
    DSJ_TRY_STATUS(saver_.export_model(figures(progress)));
    events_.emit(report::Done{.step = progress.step});
    return static_cast<int>(contract::kExitDone);
  }

 private:
  bool is_due(const dsconfig::Cadence& cadence, const Progress& progress) const {
    const auto& config = in_.config();
    return cadence.due(progress.step, config.steps_per_epoch, config.total_steps);
  }

  /// As Hugging Face's DefaultFlowCallback: the last step is also evaluated.
  bool evaluates_now(const Progress& progress) const {
    const auto& config = in_.config();
    const dsconfig::EvalConfig& eval = config.eval;
    const auto step = static_cast<double>(progress.step);
    if (eval.when.kind == dsconfig::Cadence::Kind::Steps)
      return eval.delay <= step &&
             (is_due(eval.when, progress) || progress.step == config.total_steps);
    return is_due(eval.when, progress) &&
           eval.delay * static_cast<double>(config.steps_per_epoch) <= step;
  }

  /// Rank 0 reports facts about the whole run.
  void note(const std::string& text) const {
    if (collectives_.rank() != 0) return;
    log::info(text);
    events_.emit(report::Note{.text = text});
  }

  void tell_early_stop(const Progress& progress) const {
    note("early stopping: eval_loss has not improved in " + std::to_string(progress.best.failures) +
         " evaluations; the run ends after step " + std::to_string(progress.step));
  }

  /// The figures of the exported model.
  CardFigures figures(const Progress& progress) const {
    const auto best = in_.config().eval.best.load ? progress.best.checkpoint : std::nullopt;
    if (best && *best != progress.step)
      return {.step = *best, .eval_loss = progress.best.loss, .eval_step = progress.best.step};
    return {.step = progress.step,
            .loss = last_loss_,
            .eval_loss = last_evaluation_.loss,
            .eval_step = evaluated_step_,
            .eval_metrics = last_evaluation_.metrics};
  }

  /// If load_best_model_at_end asks for it, loads the best checkpoint.
  Status load_best(const Progress& progress) {
    const Best& best = progress.best;
    if (!in_.config().eval.best.load) return {};
    if (!best.checkpoint) {
      note("no evaluation has a checkpoint: the last model is exported");
      return {};
    }
    note("the model of step " + std::to_string(*best.checkpoint) +
         " is exported, the best by eval_loss");
    if (*best.checkpoint == progress.step) return {};
    guard_.replaced();
    return saver_.take_back(*best.checkpoint);
  }

  /// No step follows that shows whether the last weights are sound. So this evaluates a micro-batch
  /// of the last step: that confirms the last checkpoint, or may prevent the export of the model.
  void try_last_weights() {
    if (!tried_) return;
    const double bad = at::isfinite(stepper_.evaluate(*tried_).loss_sum).item<bool>() ? 0 : 1;
    const bool finite = comm::max_over_ranks(collectives_, device_, {bad})[0] == 0;
    saver_.took(finite);
    guard_.tried(finite);
  }

  /// There is no loss if there are no evaluation rows or targets, or if all ranks stop now.
  Result<EvalResult> evaluate(const Progress& progress) {
    EvalRows rows = in_.eval_rows();
    if (!rows.dataset) return EvalResult{};
    if (references_) rows.reference = in_.eval_dataset ? &references_->eval : &references_->train;
    flight_.enter(FlightPhase::Evaluating, progress.step);
    const auto start = Clock::now();
    DSJ_TRY(const EvalResult result,
            (in_.objective.judges() ? evaluate_answers : train::evaluate)(
                stepper_, collectives_, rows, in_.config().eval.micro_batch_size, device_,
                stop_requested));
    if (result.stopped) return result;
    const std::chrono::duration<double> seconds = Clock::now() - start;
    watching_.after_evaluation(progress.step, result, seconds.count());
    last_evaluation_ = result;
    evaluated_step_ = progress.step;
    return result;
  }

  struct Evaluated {
    bool stopped, is_best;
  };
  /// The evaluation that is due after this step.
  Result<Evaluated> evaluate_step(Progress& progress) {
    DSJ_TRY(const EvalResult seen, evaluate(progress));
    progress.evaluation_due = seen.stopped;
    // NaN must not be the best: no later loss would be better.
    const bool is_best =
        seen.loss && std::isfinite(*seen.loss) &&
        count_evaluation(in_.config().eval.best, progress.step, *seen.loss, progress.best);
    return Evaluated{seen.stopped, is_best};
  }

  /// Saves an existing checkpoint's step again, with what is known since.
  Status save_again(Progress& progress) {
    const auto saved = save(progress, false);
    return saved ? Status{} : std::unexpected(saved.error());
  }

  /// Saves only a model, if its weights are finite.
  Status save_model(const Progress& progress) {
    flight_.enter(FlightPhase::Exporting, progress.step);
    if (!guard_.may_save(progress.step)) return {};
    return saver_.save_model(figures(progress));
  }

  /// Returns false if it is not saved because its weights are not finite.
  Result<bool> save(Progress& progress, bool last) {
    flight_.enter(FlightPhase::Saving, progress.step);
    if (!guard_.may_save(progress.step)) {
      DSJ_TRY_STATUS(saver_.finish());
      return false;
    }
    count_save(progress.step, progress.best);
    DSJ_TRY_STATUS(saver_.save(progress, last));
    return true;
  }

  /// Ends the run because of infinity or NaN.
  Result<int> give_up(std::string why) {
    DSJ_TRY_STATUS(saver_.finish());
    const auto good = saver_.confirmed().step();
    if (good && good != saver_.confirmed().newest())
      why += "; the last checkpoint after which loss and gradient were finite is step " +
             std::to_string(*good) + ": --resume_from_checkpoint " +
             path_join(path_join(in_.job.output_dir, contract::kCheckpointsDir),
                       checkpoint::step_name(*good)) +
             " resumes from it";
    log::error(why);
    events_.emit(report::RankError{.reason = contract::kReasonNotFinite, .message = why});
    return static_cast<int>(contract::kExitNotFinite);
  }

  /// The source of the rows, and the number of micro-batches per step.
  struct Rows {
    data::Loader& loader;
    const data::Sampler& sampler;
    int64_t dealt_from;  ///< the step that gets the sampler's first rows
  };
  /// One step's rows on this rank. Tokens and targets are 0 if another rank counts them.
  struct StepRows {
    std::vector<data::Batch> micro_batches;
    int64_t tokens = 0, targets = 0;
  };

  /// `step` counts from 0. Call it for each step in order.
  Result<StepRows> read(const Rows& rows, int64_t step) {
    StepRows out;
    for (int64_t i = 0; i < rows.sampler.micro_steps(step - rows.dealt_from); ++i) {
      DSJ_TRY(auto next, rows.loader.next());
      if (const auto& length = in_.config().data_efficiency.row_length)
        next.batch = data::cut_rows(next.batch, length->schedule.at(step + 1));
      warn_of_no_targets(next.batch, step + 1);
      if (groups_.groups().sequence_rank() == 0) {  // only one of the ranks that share it counts
        out.tokens += next.batch.tokens();
        out.targets += data::targets(next.batch);
      }
      out.micro_batches.push_back(std::move(next.batch));
    }
    return out;
  }

  /// This rank's targets of the step after `step`. That step reports an error of reading them.
  int64_t read_ahead(const Rows& rows, int64_t step) {
    if (step + 1 == in_.config().total_steps) return 0;
    flight_.enter(FlightPhase::Reading, step + 1);
    ahead_ = read(rows, step + 1);
    flight_.enter(FlightPhase::Training, step + 1);
    return *ahead_ ? (*ahead_)->targets : 0;
  }

  /// Runs one step. Returns whether all ranks stop after it.
  Result<bool> step(const Rows& rows, Progress& progress) {
    const auto start = Clock::now();
    const auto& config = in_.config();
    flight_.enter(FlightPhase::Reading, progress.step + 1);
    if (!ahead_) ahead_ = read(rows, progress.step);
    DSJ_TRY(const StepRows own, *std::exchange(ahead_, std::nullopt));
    tried_.reset();  // the memory plan counts only one step's rows
    std::vector<models::MicroBatch> batches, beside;
    std::vector<Answers> answers, beside_answers;
    for (const data::Batch& batch : own.micro_batches) {
      batches.push_back(on_device(batch, device_, token_part(groups_.groups())));
      if (in_.objective.judges()) answers.push_back(answers_of(batch));
      for (const data::Batch& other : batch.beside) {
        beside.push_back(on_device(other, device_));
        beside_answers.push_back(answers_of(other));
      }
    }
    flight_.enter(FlightPhase::Training, progress.step + 1);
    if (first_) startup::recorder().stage_ends("first rows");
    groups_.reset_counters();
    const optim::Rates rates = optim::rates_at(config, progress.step - progress.skipped);
    const StepResult result =
        stepper_.run({.micro_batches = batches,
                      .answers = answers,
                      .beside = beside,
                      .beside_answers = beside_answers,
                      .step = progress.step,
                      .rates = rates,
                      .tokens = own.tokens,
                      .targets = targets_,
                      .stop_requested = stop_requested(),
                      .votes = saver_.votes(),
                      .next_targets = [&] { return read_ahead(rows, progress.step); },
                      .before_update = [this] { saver_.settle(); }});
    if (std::exchange(first_, false)) {
      startup::recorder().stage_ends("first step");
      startup::append_line(startup_file_, in_.job.attempt);
    }
    targets_ = result.next_targets;
    last_loss_ = result.loss;
    ++progress.step;
    progress.skipped += result.skipped;
    report(progress, result, rates.lr, std::chrono::duration<double>(Clock::now() - start).count(),
           batches.front());
    flight_.enter(FlightPhase::Saving, progress.step);
    guard_.took(result);
    saver_.took(result.finite);
    tried_ = std::move(batches.front());
    DSJ_TRY_STATUS(saver_.advance(result.votes));
    if (const Status judged = judge_skipped(progress, result); !judged) {
      DSJ_TRY_STATUS(saver_.finish());  // the run ends on all ranks
      return std::unexpected(judged.error());
    }
    return result.stop;
  }

  /// Warns once of a micro-batch without targets.
  void warn_of_no_targets(const data::Batch& batch, int64_t step) {
    if (warned_of_targets_ || data::targets(batch) > 0) return;
    warned_of_targets_ = true;
    const std::string why =
        in_.config().data_efficiency.row_length
            ? "the curriculum cuts every row of a micro-batch before its first target: nothing "
              "is learnt from it; raise min_difficulty above the length of the prompts"
            : "no row of a micro-batch has a target: nothing is learnt from it; raise "
              "maxSeqLength above the length of the prompts, or look for rows whose labels are all "
              "-100";
    events_.warn("step " + std::to_string(step) + ": " + why);
  }

  /// Reports which gradient caused the skip. Error, the same on all ranks: the loss scale is at its
  /// minimum, and another attempt would not get further.
  Status judge_skipped(const Progress& progress, const StepResult& result) {
    if (!result.skipped) return {};
    const bool scaled = dsconfig::scales_loss(in_.config());
    const std::string what = "the gradient of \"" + result.bad_gradient + "\" is not finite";
    const std::string where = "step " + std::to_string(progress.step);
    if (result.scale_exhausted) {
      return bad_input(what + " at fp16's smallest loss scale, " + text::number(result.loss_scale),
                       where,
                       "use bf16, which has fp32's range, or a lower learning rate, or a lower "
                       "fp16.min_loss_scale");
    }
    if (collectives_.rank() != 0) return {};
    std::string said = where + " was skipped: " + what;
    if (scaled) said += " at loss scale " + text::number(result.loss_scale);
    log::warn(said);
    return {};
  }

  /// Reports the memory that the run used, to compare with `dsj plan`.
  void report_memory() {
    const memory::Ledger& ledger = memory::process_ledger();
    report::Memory memory{.total = ledger.peak()};
    for (int i = 0; i < memory::kClassCount; ++i) {
      const auto klass = static_cast<memory::Class>(i);
      memory.peak[memory::name_of(klass)] = ledger.peak(klass);
    }
    events_.emit(memory);
  }

  void report(const Progress& progress, const StepResult& result, double lr, double seconds,
              const models::MicroBatch& batch) {
    if (collectives_.rank() != 0) {
      events_.emit(report::Step{.step = progress.step});
      return;
    }
    const auto counters = groups_.counters();
    auto difficulties = in_.config().data_efficiency.difficulties(progress.step);
    if (chosen_) difficulties.merge(chosen_->difficulties(progress.step));
    report::Step step{.step = progress.step,
                      .loss = result.loss,
                      .lr = lr,
                      .grad_norm = result.grad_norm,
                      .loss_scale = result.loss_scale,
                      .skipped = result.skipped,
                      .tokens = result.tokens,
                      .tokens_per_second = static_cast<double>(result.tokens) / seconds,
                      .step_seconds = seconds,
                      .wire_bytes = counters.bytes() - counters.of(comm::Traffic::Control).bytes,
                      .host_rss_bytes = peak_rss_bytes()};
    if (!result.bad_gradient.empty()) step.bad_gradient = result.bad_gradient;
    if (!difficulties.empty()) step.difficulty = std::move(difficulties);
    if (!result.metrics.empty()) step.metrics = result.metrics;
    events_.emit(step);
    watching_.after_step(step, progress, batch);
  }

  const Inputs& in_;
  const MetricRows* chosen_;  ///< null without a curriculum by metrics
  const References* references_;
  Stepper& stepper_;
  Saver& saver_;
  FiniteGuard& guard_;
  const Events& events_;
  Watching& watching_;
  comm::Collectives& collectives_;
  zero::RunGroups& groups_;
  const at::Device device_;
  FlightLog& flight_;
  std::optional<models::MicroBatch> tried_;  ///< the last step's first micro-batch
  std::optional<Result<StepRows>> ahead_;    ///< the next step's rows, once read
  std::optional<int64_t> targets_;           ///< the next step's targets on all ranks
  std::optional<double> last_loss_;          ///< of this attempt's last step
  EvalResult last_evaluation_;               ///< this attempt's
  int64_t evaluated_step_ = 0;
  bool warned_of_targets_ = false;
  const std::string startup_file_;
  bool first_ = true;
};

}  // namespace

Result<int> run_steps(const RunParts& parts, const Progress& progress) {
  return Loop(parts).run(progress);
}

}  // namespace dsj::train
