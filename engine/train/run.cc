#include "engine/train/run.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <cstdlib>
#include <new>
#include <optional>
#include <utility>

#include "common/files/posix_files.h"
#include "common/log.h"
#include "common/startup_trace.h"
#include "common/text.h"
#include "engine/checkpoint/retention.h"
#include "engine/device/device.h"
#include "engine/memory/counting_allocator.h"
#include "engine/memory/device_memory.h"
#include "engine/train/inputs/accelerator.h"
#include "engine/train/inputs/events.h"
#include "engine/train/inputs/inputs.h"
#include "engine/train/inputs/leftovers.h"
#include "engine/train/inputs/long_rows.h"
#include "engine/train/inputs/metric_rows.h"
#include "engine/train/inputs/one_directory.h"
#include "engine/train/inputs/out_of_memory.h"
#include "engine/train/inputs/snapshot_here.h"
#include "engine/train/state/frozen.h"
#include "engine/train/state/loading.h"
#include "engine/train/state/saving.h"
#include "engine/train/step/finite_guard.h"
#include "engine/train/step/references.h"
#include "engine/train/step/step.h"
#include "engine/train/stop_signal.h"
#include "engine/train/train_loop.h"
#include "engine/train/watching.h"
#include "engine/weights/output_place.h"
#include "engine/zero/flat/groups.h"
#include "engine/zero/storage/layer_inputs.h"
#include "engine/zero/storage/scalar_type.h"
#include "engine/zero/storage/storage_error.h"
#include "job/contract.h"
#include "job/dsconfig/keys/resolved_json.h"
#include "job/flight_log.h"
#include "job/plan/rank_groups.h"
#include "job/plan/row_plan.h"
#include "job/plan/zero_plan.h"

namespace dsj::train {
namespace {

int exit_code(const Error& error) {
  switch (error.kind) {
    case ErrorKind::BadInput:
      return contract::kExitBadInput;
    case ErrorKind::Environment:
      return contract::kExitEnvironment;
    case ErrorKind::Transient:
      return contract::kExitPeerLost;
    case ErrorKind::Internal:
      break;
  }
  return contract::kExitFailed;
}

const char* reason(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::BadInput:
      return "BadInput";
    case ErrorKind::Environment:
      return "Environment";
    case ErrorKind::Transient:
      return "PeerLost";
    case ErrorKind::Internal:
      break;
  }
  return "Failed";
}

void announce(const Inputs& in, const RankEnv& env, const Events& events) {
  events.emit(report::Start{.pid = getpid(), .rank = env.rank});
  if (env.rank != 0) return;
  for (const auto& finding : in.resolution.findings)
    events.warn(finding.path + ": " + finding.message);
  const TrainingArgs& training = in.job.training;
  for (const std::string& note : in.dataset->notes()) events.warn(training.data_path + ": " + note);
  if (in.eval_dataset) {
    for (const std::string& note : in.eval_dataset->notes())
      events.warn(eval_source(training).path + ": " + note);
  }
  if (in.tokenizer)
    for (const std::string& note : in.tokenizer->notes()) events.warn(note);
  if (const std::string other = in.dataset->answer_end_note(); !other.empty()) events.warn(other);
  if (in.packs) {
    const int64_t rows = in.dataset->rows() - in.first_row();
    events.emit(
        report::Note{.text = "packing: " + std::to_string(rows) + " rows in " +
                             std::to_string(in.packs->count()) + " packed ones, filled to " +
                             text::number(std::round(1000 * in.packs->filled()) / 10) + " %"});
  }
  tell_long_rows(in, events);
  nlohmann::json origins = nlohmann::json::array();
  for (const auto& origin : in.resolution.origins) {
    origins.push_back({{"path", origin.path}, {"value", origin.value}, {"from", origin.from}});
  }
  events.emit(report::Resolved{.config = dsconfig::to_json(in.config()),
                               .origins = origins,
                               .total_steps = in.config().total_steps});
}

/// Warns if a limit is below one unit, which is gathered whole anyway.
void warn_of_limits(const zero::ModelState& state, const dsconfig::ResolvedConfig& config,
                    int world, const Events& events) {
  if (!plan::effective_stage(config, world).shards_parameters()) return;
  const int64_t limit = config.zero.max_live_parameters;
  const auto& plan = state.plan();
  for (int i = 0; i < static_cast<int>(plan.flats.size()); ++i) {
    const auto& flat = plan.flats[i];
    if (plan.is_persisted(i) || flat.numel() <= limit) continue;
    events.warn("zero_optimization.stage3_max_live_parameters is " + std::to_string(limit) +
                ", but " + flat.name() + " alone has " + std::to_string(flat.numel()) +
                " elements: it is gathered whole");
    return;
  }
}

/// Turns Transient errors of this rank's own files into Internal: no peer was lost, so the agent
/// must blame this rank; another attempt may help. Errors about a peer have no `where`.
template <typename T>
Result<T> by_itself(Result<T> result) {
  if (!result && result.error().kind == ErrorKind::Transient && !result.error().where.empty())
    result.error().kind = ErrorKind::Internal;
  return result;
}

/// Error: the run would overwrite its inputs, or foreign files in its output directory. (On a
/// cluster nothing else checks this, because the operator does not see the files.) A run with
/// checkpoints does not end because of foreign files in model/: the export keeps these.
Status check_output_place(const Inputs& in) {
  PosixFiles files;
  const std::string& out = in.job.output_dir;
  for (const auto& found : weights::endangered(files, weights::SystemPlaces(), in.job.training,
                                               weights::reads_of(in.job.training))) {
    DSJ_TRY(const auto checkpoints,
            checkpoint::list_candidates(files, path_join(out, contract::kCheckpointsDir)));
    if (found.key == "outputDir" && !checkpoints.empty()) continue;
    return bad_input(found.message, "training." + found.key, found.hint);
  }
  return {};
}

/// Null if layer inputs stay on the device, or none are kept.
std::unique_ptr<zero::LayerInputs> layer_inputs(const Inputs& in, const RankEnv& env,
                                                at::Device device, const zero::OffloadHost& host) {
  const TrainingArgs& training = in.job.training;
  if (!in.config().cpu_checkpointing || !training.gradient_checkpointing.value_or(false))
    return nullptr;
  return zero::make_layer_inputs(
      in.model, in.config(),
      {.tokens =
           plan::part_of({in.config().micro_batch_size * plan::longest_sample(training, in.model)},
                         in.config().sequence_parallel_size)
               .tokens,
       .output_dir = in.job.output_dir,
       .device = device,
       .rank = env.rank},
      host);
}

comm::Options group_options(const RankEnv& env, at::Device device, const plan::RankGroups& sizes,
                            FlightLog& flight) {
  return {.rank = env.rank,
          .world = env.world_size,
          .master_addr = env.master_addr,
          .master_port = env.master_port,
          .store_listen_fd = env.store_fd,
          .timeout = env.collective_timeout,
          .device = device,
          .splits = sizes.splits(),
          .flight = &flight};
}

void log_rank(const Inputs& in, const RankEnv& env, const Place& place,
              const comm::Collectives& collectives) {
  const auto attention =
      device::of(place.device)
          .attention_choice(zero::scalar_type(in.config().precision), in.model.head_dim);
  log::info("rank " + std::to_string(env.rank) + " of " + std::to_string(env.world_size) +
            ", backend " + std::string(collectives.backend()) + ", " +
            std::to_string(at::get_num_threads()) + " threads, on " + place.said +
            "; attention: " + attention.because);
}

/// Rank 0: which part of the model is trained.
void log_trained_part(const Inputs& in, const std::vector<layout::UnitSpec>& units) {
  std::string base;
  if (in.lora && in.lora->load_in_4bit)
    base = std::string("; the base's linear layers are in 4 bits (NF4") +
           (in.lora->double_quant ? ", scales in 8)" : ")");
  log::info((in.lora      ? "LoRA: "
             : in.trained ? "a part of the model: "
                          : "frozen as in the checkpoint: ") +
            std::to_string(layout::trainable_numel(units)) + " of " +
            std::to_string(layout::total_numel(units)) + " parameters are trained" + base);
}

StepOptions step_options(const Inputs& in, at::Device device, FlightLog& flight,
                         zero::LayerInputs* inputs) {
  const TrainingArgs& training = in.job.training;
  return {.recompute = training.gradient_checkpointing.value_or(false),
          .seed = static_cast<uint64_t>(in.seed()),
          .normalization = dsconfig::loss_normalization(training),
          .objective = in.objective,
          .token_loss = {.smoothing = training.label_smoothing_factor.value_or(0),
                         .dft = in.objective.dft},
          .neftune_alpha = training.neftune_noise_alpha.value_or(0),
          .flight = &flight,
          .pieces = layout::PieceRule::on(!device.is_cpu()),
          .inputs = inputs};
}

/// `fit`: set once the inputs are known, for out-of-memory errors.
Result<int> train(const RankEnv& env, const Events& events, FlightLog& flight,
                  std::optional<plan::FitInput>& fit) {
  DSJ_TRY(const Inputs in, by_itself(read_inputs(env)));
  DSJ_TRY_STATUS(check_output_place(in));
  fit = fit_input(in, env);
  announce(in, env, events);
  DSJ_TRY(const auto chosen, by_itself(MetricRows::read(in)));
  if (chosen && env.rank == 0) chosen->warn(in, events);
  DSJ_TRY(const Place place, choose_place(in.job.training, env.local_rank));
  const at::Device device = place.device;
  startup::recorder().stage_ends("device");
  const plan::RankGroups sizes = plan::rank_groups(in.config(), env.world_size);
  DSJ_TRY(auto group, comm::make_collectives(group_options(env, device, sizes, flight)));
  startup::recorder().stage_ends("rendezvous");
  observe::CommsLog comms(in.config().observe.comms, env.world_size);
  const auto collectives = watched(std::move(group), comms, in.config().observe.comms, device);
  DSJ_TRY(zero::RunGroups groups, zero::RunGroups::make(*collectives, sizes));
  log_rank(in, env, place, *collectives);
  PosixFiles files;
  if (env.world_size > env.local_world_size)
    DSJ_TRY_STATUS(check_one_directory(files, in.job.output_dir, *collectives, device));
  for (const std::string& warning : clear_leftovers(files, in.job, *collectives, device))
    events.warn(warning);
  DSJ_TRY(auto search, by_itself(AgreedSearch::begin(files, in.job, *collectives, device)));
  DSJ_TRY(const auto frozen, by_itself(frozen_in_checkpoint(files, search, in.job, in.config(),
                                                            *collectives, device)));
  DSJ_TRY(const auto trained, trained_part(in, frozen));
  const zero::OffloadHost host{.job = in.job.name,
                               .attempt = in.job.attempt,
                               .note = log::info,
                               .warn = [&](const std::string& text) { events.warn(text); }};
  zero::ModelState state(in.model, in.config(), device, groups.groups(), trained, host);
  if (env.rank == 0) {
    if (trained) log_trained_part(in, state.units());
    warn_of_limits(state, in.config(), env.world_size, events);
    if (const auto why = plan::dense_because(state.units(), in.config()); !why.empty())
      events.warn("sparse_gradients: " + why);
  }
  const auto inputs = layer_inputs(in, env, device, host);
  Stepper stepper(in.model, in.config(), step_options(in, device, flight, inputs.get()), state,
                  device);
  std::optional<References> references;
  if (in.objective.has_reference()) {
    flight.enter(FlightPhase::Evaluating, 0);
    DSJ_TRY(references,
            by_itself(find_references(files, in, state, stepper, events, device, stop_requested)));
    if (!references) {  // a stop was requested; there is nothing to save
      groups.shutdown();
      collectives->shutdown();
      return static_cast<int>(contract::kExitPreempted);
    }
    startup::recorder().stage_ends("reference");
  }
  DSJ_TRY(const Progress progress,
          by_itself(Loading(files, in, state, stepper, events, device).load(search)));
  Saver saver(files, in, state, stepper, events, device);
  startup::recorder().stage_ends("weights");
  if (progress.step > 0) saver.begins_with(progress.step);
  saver.save_behind(snapshot_here(in, env, device));
  FiniteGuard guard(in.job.training, in.config(), state, events);
  Watching watching(files, in, stepper, state, events, comms, env.rank, device);
  DSJ_TRY(const int code,
          run_steps({.inputs = in,
                     .chosen = chosen ? &*chosen : nullptr,
                     .references = references ? &*references : nullptr,
                     .stepper = stepper,
                     .saver = saver,
                     .guard = guard,
                     .events = events,
                     .watching = watching,
                     .collectives = *collectives,
                     .groups = groups,
                     .device = device,
                     .flight = flight,
                     .startup_file = path_join(path_parent(env.job_file), contract::kStartupFile)},
                    progress));
  groups.shutdown();
  collectives->shutdown();
  return code;
}

}  // namespace

int run_rank() {
  install_stop_signals();
  auto env = rank_env();
  const std::string name = "rank " + std::to_string(env ? env->rank : 0);
  log::init(name);
  if (const char* trace = std::getenv(contract::kEnvStartupTrace))
    startup::recorder().begin(name, trace);
  startup::recorder().stage_ends("exec and libraries");
  const Events events(env ? env->event_fd : -1);
  auto failed = [&](const Error& error) {
    log::error(error.to_string());
    events.emit(report::RankError{.reason = reason(error.kind), .message = error.to_string()});
    return exit_code(error);
  };
  std::optional<plan::FitInput> fit;
  auto no_memory = [&](const std::string& what) {
    return failed(out_of_device_memory(memory::last_shortage(), what, fit));
  };
  if (!env) return failed(env.error());
  const auto flight = FlightLog::open(env->flight_fd);
  if (!flight) return failed(flight.error());
  memory::install();
  const memory::CountDevice counts;
  c10::AutoGradMode no_autograd(false);
  try {
    const auto code = train(*env, events, **flight, fit);
    return code ? *code : failed(code.error());
  } catch (const comm::CollectiveError& error) {
    if (error.facts().out_of_memory) return no_memory(error.what());
    return failed({ErrorKind::Transient, error.what(), {}, {}});
  } catch (const zero::StorageError& error) {
    return failed(error.error());
  } catch (const comm::DeviceMemoryError& error) {  // a group could not be made
    return no_memory(error.what());
  } catch (const c10::OutOfMemoryError& error) {
    return no_memory(error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return failed({ErrorKind::Environment,
                   "out of host memory",
                   {},
                   "fewer rows per micro-batch, or gradientCheckpointing"});
  } catch (const std::exception& error) {
    return failed({ErrorKind::Internal, error.what(), {}, {}});
  }
}

}  // namespace dsj::train
