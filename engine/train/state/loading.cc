#include "engine/train/state/loading.h"

#include <algorithm>

#include "common/log.h"
#include "engine/checkpoint/damage.h"
#include "engine/checkpoint/layout.h"
#include "engine/deepspeed/checkpoint.h"
#include "engine/train/state/frozen.h"
#include "engine/train/state/named_checkpoint.h"
#include "engine/weights/continued_adapter.h"
#include "engine/weights/tensor_check.h"
#include "engine/weights/weight_source.h"
#include "job/contract.h"

namespace dsj::train {

using nlohmann::json;

namespace {

/// `aside`: the checkpoint's new name; empty if it could not be renamed. The message names the file
/// relative to the checkpoint, because the path that was read no longer exists.
std::string told_of(const checkpoint::Search::Passed& passed, const std::string& aside) {
  const std::string inside = passed.name + "/";
  const size_t at = passed.problem.where.rfind(inside);
  const std::string file =
      at == std::string::npos ? "" : passed.problem.where.substr(at + inside.size()) + ": ";
  return "checkpoint " + passed.name + " is passed over" +
         (aside.empty() ? "" : " and set aside as " + aside) + ": " + file + passed.problem.message;
}

}  // namespace

Loading::Loading(Files& files, const Inputs& inputs, zero::ModelState& state, Stepper& stepper,
                 const Events& events, at::Device device)
    : files_(files),
      in_(inputs),
      state_(state),
      stepper_(stepper),
      events_(events),
      device_(device),
      checkpoints_(inputs.job.output_dir + "/" + contract::kCheckpointsDir) {}

Result<Progress> Loading::load(AgreedSearch& search) {
  if (!begun(in_.job).is_null() && !search.any_readable()) return begin_anew();
  return search.count() == 0 ? load_weights() : load_newest(search);
}

Result<Progress> Loading::begin_anew() {
  const std::string& from = *in_.job.training.resume_from_checkpoint;
  return from == "false" ? load_weights() : load_named(from);
}

Result<Progress> Loading::load_weights() {
  const auto source = weights::WeightSource::open(files_, in_.job.training.model_name_or_path);
  DSJ_TRY_STATUS(agree(source));
  const comm::Collectives& ranks = state_.collectives();
  DSJ_TRY_STATUS(agree(weights::check_tied_head(*source, in_.model, ranks.rank(), ranks.world())));
  const auto adapter = weights::open_continued(files_, in_.job.training.lora);
  DSJ_TRY_STATUS(agree(adapter));
  DSJ_TRY_STATUS(state_.load(*source, {.seed = static_cast<uint64_t>(in_.seed()),
                                       .saved = *adapter ? &**adapter : nullptr}));
  if (*adapter && state_.collectives().rank() == 0)
    log::info("training begins with the adapter in " + in_.job.training.lora->adapter);
  return Progress{};
}

Status check_goes_on_from_deepspeed(const dsconfig::ResolvedConfig& config,
                                    const std::string& path) {
  if (config.optimizer.kind != dsconfig::OptimizerKind::Muon) return {};
  return bad_input(
      "Muon does not resume from DeepSpeed's checkpoints: its state has another layout there at "
      "each stage",
      path, "start from its weights: dsj checkpoint export --to fp32 writes them");
}

Result<std::unique_ptr<checkpoint::SavedRun>> Loading::open_named(const std::string& path) {
  DSJ_TRY(const auto folder, deepspeed_folder(files_, path, in_.config().load_universal,
                                              state_.collectives(), device_));
  if (!folder) {
    DSJ_TRY(auto reader, checkpoint::Reader::open(files_, path));
    return std::make_unique<checkpoint::Reader>(std::move(reader));
  }
  DSJ_TRY_STATUS(check_goes_on_from_deepspeed(in_.config(), path));
  DSJ_TRY(auto theirs, deepspeed::Checkpoint::open(files_, *folder));
  if (state_.collectives().rank() == 0)
    for (const std::string& note : theirs.notes()) events_.warn(path + ": " + note);
  return std::make_unique<deepspeed::Checkpoint>(std::move(theirs));
}

Result<Progress> Loading::load_named(const std::string& path) {
  auto opened = open_named(path);
  DSJ_TRY_STATUS(agree(opened));
  checkpoint::SavedRun& saved = **opened;
  if (!same_everywhere(state_.collectives(), device_, static_cast<double>(saved.step()))) {
    return fail(ErrorKind::Environment, "ranks see different checkpoints", path,
                "the checkpoint must be on storage that all ranks share");
  }
  DSJ_TRY_STATUS(load_base());
  DSJ_TRY_STATUS(restore(saved));
  return resumed(saved);
}

Result<Progress> Loading::load_newest(AgreedSearch& search) {
  DSJ_TRY_STATUS(load_base());
  for (int index = 0;; ++index) {
    DSJ_TRY(index, search.open(index));
    if (index == search.count()) return std::unexpected(search.nothing_left());
    const Status restored = restore(search.reader());
    const bool damaged = !restored && restored.error().cause == Error::Cause::Damage;
    const Verdict all = verdict(restored, damaged);
    if (all == Verdict::Failed) return std::unexpected(restored.error());
    if (all == Verdict::Sound) break;
    search.reject(index, damaged ? std::optional(restored.error()) : std::nullopt);
  }
  set_aside(search);
  return resumed(search.reader());
}

void Loading::set_aside(AgreedSearch& search) {
  const auto passed = search.passed_over();
  if (passed.empty() || state_.collectives().rank() != 0) return;
  std::vector<std::string> names;
  for (const auto& one : passed) names.push_back(one.name);
  const auto aside = checkpoint::set_aside(files_, checkpoints_, names);
  std::string text = "the run continues from step " + std::to_string(search.reader().step());
  for (size_t i = 0; i < passed.size(); ++i) text += "; " + told_of(passed[i], aside.names[i]);
  log::warn(text);
  const int64_t step = std::ranges::max(passed, {}, &checkpoint::Search::Passed::step).step;
  events_.emit(report::Damage{.step = step, .message = text});
  for (const auto& warning : aside.warnings) events_.warn(warning);
}

Loading::Verdict Loading::verdict(const Status& restored, bool damaged) {
  // Transient means that another rank failed.
  const bool own = !restored && restored.error().kind != ErrorKind::Transient;
  const double code = damaged ? 1 : own ? 2 : 0;
  const double worst = comm::max_over_ranks(state_.collectives(), device_, {code})[0];
  if (worst == 1) return Verdict::Damaged;
  return worst == 0 && restored ? Verdict::Sound : Verdict::Failed;
}

/// Error if the checkpoint's LoRA settings differ: they decide which parameters were trained.
Status Loading::check_lora(const checkpoint::SavedRun& from) const {
  const json saved = from.run_state().value("lora", json());
  const std::string other = "name another output directory, or give the settings it was made with";
  if (saved.is_null() != !in_.lora) {
    return bad_input(std::string("the checkpoint was made with") + (saved.is_null() ? "out" : "") +
                         " LoRA, the run is with" + (saved.is_null() ? "" : "out") + " it",
                     from.path(), other);
  }
  if (!in_.lora) return {};
  DSJ_TRY(const LoraArgs before, lora_args_from_json(saved, from.path() + ": lora"));
  if (before == *in_.lora) return {};
  return bad_input(
      "the checkpoint was made with other LoRA settings: " + differences(before, *in_.lora),
      from.path(), other);
}

Status Loading::load_base() {
  const auto has_buffers = [](const layout::UnitSpec& unit) { return !unit.buffers.empty(); };
  if (!in_.lora && frozen_of(in_, state_).empty() &&
      std::ranges::none_of(state_.units(), has_buffers))
    return {};
  const auto source = weights::WeightSource::open(files_, in_.job.training.model_name_or_path);
  DSJ_TRY_STATUS(agree(source));
  return state_.load_frozen(*source);
}

Status Loading::restore(checkpoint::SavedRun& saved) {
  DSJ_TRY_STATUS(agree(check_lora(saved)));
  DSJ_TRY_STATUS(agree(check_frozen(files_, in_, saved, state_)));
  DSJ_TRY_STATUS(agree(check_data(saved.run_state(), in_, saved.path())));
  return state_.restore(saved);
}

void Loading::drop_lost_best(Best& best) {
  if (!best.checkpoint) return;
  const std::string path = path_join(checkpoints_, checkpoint::step_name(*best.checkpoint));
  const double lost = files_.exists(path).value_or(false) ? 0 : 1;
  if (comm::max_over_ranks(state_.collectives(), device_, {lost})[0] == 0) return;
  if (state_.collectives().rank() == 0)
    events_.warn("the best checkpoint, " + path + ", is gone: it is not looked for at the end");
  best.checkpoint.reset();
}

Progress Loading::resumed(const checkpoint::SavedRun& from) {
  const json& saved = from.run_state();
  // Only rank 0 knows the data; the others take the saved value, which is not larger.
  const auto dealt = static_cast<double>(dealt_from(saved, in_, from.step()));
  Progress progress{.step = from.step(),
                    .skipped = saved.value("skipped", int64_t{0}),
                    .best = best_from_json(saved.value("best", json()), in_.config().eval.best),
                    .dealt_from = static_cast<int64_t>(
                        comm::max_over_ranks(state_.collectives(), device_, {dealt})[0]),
                    .evaluation_due = saved.value("evaluation_due", false)};
  drop_lost_best(progress.best);
  stepper_.set_updates(saved.value("updates", progress.step - progress.skipped));
  if (const auto scaler = saved.find("loss_scaler"); scaler != saved.end()) {
    if (stepper_.loss_scaler().dynamic()) stepper_.set_loss_scaler(loss_scaler_state(*scaler));
  }
  if (state_.collectives().rank() == 0) {
    for (const std::string& warning :
         differences(saved, run_state(in_, state_, stepper_, Progress{})))
      events_.warn(warning);
    if (const auto dropped = state_.update_method().dropped(); !dropped.empty())
      events_.warn(dropped);
    events_.emit(report::Resumed{.step = progress.step, .path = from.path()});
    log::info("resumed step " + std::to_string(progress.step) + " from " + from.path());
  }
  return progress;
}

}  // namespace dsj::train
