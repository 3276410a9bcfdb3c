#include "engine/train/saving.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <cstring>

#include "common/format.h"
#include "common/log.h"
#include "engine/checkpoint/damage.h"
#include "engine/checkpoint/writer.h"
#include "engine/deepspeed/checkpoint.h"
#include "engine/kernels/kernels.h"
#include "engine/models/gemm.h"
#include "engine/weights/export.h"
#include "engine/weights/weight_source.h"
#include "job/contract.h"

namespace dsj::train {
namespace {

using nlohmann::json;

weights::DType export_type(dsconfig::Precision precision) {
  switch (precision) {
    case dsconfig::Precision::Bf16:
      return weights::DType::BF16;
    case dsconfig::Precision::Fp16:
      return weights::DType::F16;
    case dsconfig::Precision::Fp32:
      break;
  }
  return weights::DType::F32;
}

template <typename T>
Status status_of(const Result<T>& result) {
  return result ? Status{} : Status(std::unexpected(result.error()));
}

}  // namespace

json to_json(const optim::LossScaler::State& state) {
  return {{"scale", state.scale},
          {"hysteresis", state.hysteresis},
          {"step", state.step},
          {"last_overflow", state.last_overflow}};
}

optim::LossScaler::State loss_scaler_state(const json& saved) {
  optim::LossScaler::State state;
  state.scale = saved.value("scale", state.scale);
  state.hysteresis = saved.value("hysteresis", state.hysteresis);
  state.step = saved.value("step", state.step);
  state.last_overflow = saved.value("last_overflow", state.last_overflow);
  return state;
}

Saver::Saver(Files& files, const Inputs& inputs, zero::ModelState& state, Stepper& stepper,
             const Events& events, at::Device device)
    : files_(files),
      in_(inputs),
      state_(state),
      stepper_(stepper),
      events_(events),
      device_(device),
      checkpoints_(inputs.job.output_dir + "/" + contract::kCheckpointsDir) {}

bool Saver::same_everywhere(double number) {
  const auto most = comm::max_over_ranks(state_.collectives(), device_, {number, -number});
  return most[0] == -most[1];
}

// ---- loading

Result<Progress> Saver::load() {
  const auto& path = in_.job.training.resume_from_checkpoint;
  if (!path || *path == "true") return load_newest();
  return *path == "false" ? load_weights() : load_named(*path);
}

Result<Progress> Saver::load_weights() {
  const auto source = weights::WeightSource::open(files_, in_.job.training.model_name_or_path);
  DSJ_TRY_STATUS(agree(status_of(source)));
  DSJ_TRY_STATUS(state_.load(*source, {.seed = static_cast<uint64_t>(in_.seed())}));
  return Progress{};
}

Result<std::unique_ptr<checkpoint::SavedRun>> Saver::open_named(const std::string& path) {
  DSJ_TRY(const bool deepspeeds, deepspeed::is_deepspeed(files_, path));
  if (!deepspeeds) {
    DSJ_TRY(auto reader, checkpoint::Reader::open(files_, path));
    return std::make_unique<checkpoint::Reader>(std::move(reader));
  }
  DSJ_TRY(auto theirs,
          deepspeed::Checkpoint::open(files_, path, {.universal = in_.config().load_universal}));
  DSJ_TRY_STATUS(theirs.check_trainable());
  if (state_.collectives().rank() == 0)
    for (const std::string& note : theirs.notes()) events_.warn(path + ": " + note);
  return std::make_unique<deepspeed::Checkpoint>(std::move(theirs));
}

Result<Progress> Saver::load_named(const std::string& path) {
  auto opened = open_named(path);
  DSJ_TRY_STATUS(agree(status_of(opened)));
  checkpoint::SavedRun& saved = **opened;
  if (!same_everywhere(static_cast<double>(saved.step()))) {
    return fail(ErrorKind::Environment, "ranks see different checkpoints", path,
                "the checkpoint must be on storage that all ranks share");
  }
  DSJ_TRY_STATUS(load_base());
  DSJ_TRY_STATUS(restore(saved));
  return resumed(saved);
}

Result<Progress> Saver::load_newest() {
  auto search = checkpoint::Search::begin(files_, checkpoints_);
  DSJ_TRY_STATUS(agree(status_of(search)));
  // Ranks on one file system see one directory. If one sees other checkpoints, or none, no rank
  // continues.
  if (!same_everywhere(search->fingerprint())) {
    return fail(ErrorKind::Environment, "ranks see different checkpoints", checkpoints_,
                "the output directory must be on storage that all ranks share");
  }
  if (search->count() == 0) return load_weights();
  share_problems(*search);
  search->settle();
  DSJ_TRY_STATUS(load_base());
  for (int index = 0;; ++index) {
    DSJ_TRY(index, open_everywhere(*search, index));
    if (index == search->count()) return std::unexpected(search->nothing_left());
    const Status restored = restore(search->reader());
    const bool damaged = !restored && checkpoint::is_damage(restored.error());
    const Verdict all = verdict(restored, damaged);
    if (all == Verdict::Failed) return std::unexpected(restored.error());
    if (all == Verdict::Sound) break;
    tell(*search, index, damaged ? std::optional(restored.error()) : std::nullopt);
  }
  set_aside(*search);
  return resumed(search->reader());
}

void Saver::share_problems(checkpoint::Search& search) {
  std::vector<double> seen;
  for (int i = 0; i < search.count(); ++i) seen.push_back(search.problem(i) ? 1 : 0);
  seen = comm::max_over_ranks(state_.collectives(), device_, seen);
  for (int i = 0; i < search.count(); ++i)
    if (seen[static_cast<size_t>(i)] > 0) tell(search, i, search.problem(i));
}

Result<int> Saver::open_everywhere(checkpoint::Search& search, int index) {
  for (;;) {
    const auto opened = search.open(index);
    DSJ_TRY_STATUS(agree(status_of(opened)));
    const double own = *opened;
    const auto most = comm::max_over_ranks(state_.collectives(), device_, {own, -own});
    const int agreed = static_cast<int>(most[0]);
    if (most[0] == -most[1]) return agreed;
    for (; index < agreed; ++index) tell(search, index, search.problem(index));
  }
}

void Saver::tell(checkpoint::Search& search, int index, const std::optional<Error>& mine) {
  if (const auto problem = comm::first_error(state_.collectives(), device_, mine)) {
    search.reject(index, *problem);
  }
}

void Saver::set_aside(const checkpoint::Search& search) {
  if (state_.collectives().rank() != 0) return;
  std::vector<std::string> names;
  for (const auto& passed : search.passed_over()) {
    names.push_back(passed.name);
    events_.warn("checkpoint " + passed.name + " is passed over and set aside as " +
                 checkpoint::kDamagedPrefix + passed.name + ": " + passed.problem);
  }
  for (const auto& warning : checkpoint::set_aside(files_, checkpoints_, names)) {
    events_.warn(warning);
  }
}

Saver::Verdict Saver::verdict(const Status& restored, bool damaged) {
  // The error of a rank that only heard of another one's is Transient.
  const bool own = !restored && restored.error().kind != ErrorKind::Transient;
  const double code = damaged ? 1 : own ? 2 : 0;
  const double worst = comm::max_over_ranks(state_.collectives(), device_, {code})[0];
  if (worst == 1) return Verdict::Damaged;
  return worst == 0 && restored ? Verdict::Sound : Verdict::Failed;
}

/// Error if the checkpoint's LoRA settings differ: they decide which parameters were trained.
Status Saver::check_lora(const checkpoint::SavedRun& from) const {
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

Status Saver::load_base() {
  if (!in_.lora) return {};
  const auto source = weights::WeightSource::open(files_, in_.job.training.model_name_or_path);
  DSJ_TRY_STATUS(agree(status_of(source)));
  return state_.load_frozen(*source);
}

Status Saver::restore(checkpoint::SavedRun& saved) {
  DSJ_TRY_STATUS(agree(check_lora(saved)));
  return state_.restore(saved);
}

Progress Saver::resumed(const checkpoint::SavedRun& from) {
  const json& saved = from.run_state();
  const Progress progress{.step = from.step(), .skipped = saved.value("skipped", int64_t{0})};
  stepper_.set_updates(saved.value("updates", progress.step - progress.skipped));
  if (const auto scaler = saved.find("loss_scaler"); scaler != saved.end()) {
    if (stepper_.loss_scaler().dynamic()) stepper_.set_loss_scaler(loss_scaler_state(*scaler));
  }
  if (state_.collectives().rank() == 0) {
    warn_of_differences(saved);
    if (state_.one_bit() && state_.one_bit()->dropped())
      events_.warn(
          "the checkpoint's compression errors belong to other ranks or vectors: they start at "
          "zero");
    events_.emit(report::Resumed{.step = progress.step, .path = from.path()});
    log::info("resumed step " + std::to_string(progress.step) + " from " + from.path());
  }
  return progress;
}

json Saver::run_state(const Progress& progress) const {
  const auto& config = in_.config();
  return {{"step", progress.step},
          {"loss_scaler", to_json(stepper_.loss_scaler().state())},
          {"skipped", progress.skipped},
          {"updates", stepper_.updates()},
          {"optimizer", dsconfig::name_of(config.optimizer)},
          {"train_batch_size", config.train_batch_size},
          {"seed", in_.seed()},
          {"shuffle", in_.shuffle()},
          {"world_size", state_.collectives().world()},
          {"stage", config.zero.stage},
          {"precision", static_cast<int>(config.precision)},
          {"micro_batch_size", config.micro_batch_size},
          {"reduce_bucket_size", config.zero.reduce_bucket_size},
          {"threads", at::get_num_threads()},
          {"isa", kernels::table().isa},
          {"native_bf16", models::gemm::native(at::empty({0}, at::kBFloat16))},
          {"lora", in_.lora ? to_json(*in_.lora) : json()},
          {"backend", std::string(state_.collectives().backend())}};
}

void Saver::warn_of_differences(const json& saved) const {
  const json now = run_state({});
  if (saved.contains("optimizer") && saved["optimizer"] != now["optimizer"])
    events_.warn("the optimizer was " + saved["optimizer"].get<std::string>() + " and is " +
                 now["optimizer"].get<std::string>() +
                 ": it goes on from the states that have the same names");
  for (const char* key : {"train_batch_size", "seed", "shuffle"}) {
    if (saved.contains(key) && saved[key] != now[key]) {
      events_.warn(std::string(key) + " was " + saved[key].dump() +
                   " when the checkpoint was saved and is " + now[key].dump() +
                   ": the order of the data changes");
    }
  }
  std::string changed;
  for (const char* key : {"world_size", "stage", "precision", "micro_batch_size",
                          "reduce_bucket_size", "threads", "isa", "native_bf16", "backend"}) {
    if (!saved.contains(key) || saved[key] == now[key]) continue;
    changed += (changed.empty() ? "" : ", ") + std::string(key) + " " + saved[key].dump() + " → " +
               now[key].dump();
  }
  if (!changed.empty())
    events_.warn("losses will not be bit-identical to an uninterrupted run: " + changed);
}

// ---- saving

namespace {

/// Copies with all threads of a step: they have nothing else to do then.
void copy_in_parallel(std::span<float> to, std::span<const float> from) {
  constexpr int64_t kGrain = 1 << 18;  // elements
  at::parallel_for(0, static_cast<int64_t>(from.size()), kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(to.data() + begin, from.data() + begin,
                static_cast<size_t>(end - begin) * sizeof(float));
  });
}

/// A tensor of `bytes` in host memory; undefined if there is no room.
at::Tensor host_buffer(int64_t bytes) {
  memory::MemoryScope scope(memory::Class::Host);
  try {
    return at::empty({bytes / static_cast<int64_t>(sizeof(float))}, at::kFloat);
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace

void Saver::save_behind(const plan::Snapshot& snapshot) {
  if (snapshot.bytes == 0) return;
  if (snapshot.fits) snapshot_ = host_buffer(snapshot.bytes);
  const double lacking = snapshot_.defined() ? 0 : 1;
  if (comm::max_over_ranks(state_.collectives(), device_, {lacking})[0] > 0) {
    snapshot_.reset();
    if (state_.collectives().rank() == 0)
      events_.warn("the steps wait while a checkpoint is written: a copy of " +
                   plan::show_bytes(snapshot.bytes) + " per rank does not fit into host memory");
    return;
  }
  behind_ = std::make_unique<checkpoint::BackgroundSave>(
      files_, std::span(snapshot_.data_ptr<float>(), static_cast<size_t>(snapshot_.numel())),
      copy_in_parallel);
}

Status Saver::save(const Progress& progress, bool last) {
  DSJ_TRY_STATUS(finish());
  if (last || !behind_) return save_now(progress, last);
  behind_->begin(
      write_options(progress),
      state_.collectives().rank() == 0 ? publication(progress) : checkpoint::Publication{},
      [&](const checkpoint::EmitPiece& emit) { return state_.for_pieces(emit); });
  return {};
}

StepVotes Saver::votes() {
  if (!behind_) return {};
  const auto [written, failed, published] = behind_->votes();
  return {written, failed, published};
}

Status Saver::advance(const StepVotes& all) {
  return behind_ ? tell(behind_->advance({all[0], all[1], all[2]})) : Status{};
}

Status Saver::finish() {
  if (!behind_) return {};
  return tell(behind_->finish([&](const checkpoint::SaveVotes& mine) -> checkpoint::SaveVotes {
    const at::Tensor sums =
        at::tensor({mine.written, mine.failed, mine.published}, at::kDouble).to(device_);
    state_.collectives().all_reduce(sums, comm::Op::Sum, {comm::Traffic::Control, "save"})->wait();
    const at::Tensor host = sums.to(at::kCPU);
    const double* sum = host.const_data_ptr<double>();
    return {sum[0], sum[1], sum[2]};
  }));
}

Status Saver::tell(const checkpoint::BackgroundSave::Saved& saved) const {
  if (!saved) return std::unexpected(saved.error());
  if (!*saved || !(*saved)->published) return {};
  const auto& published = *(*saved)->published;
  tell({.step = (*saved)->step,
        .bytes = published.bytes,
        .seconds = (*saved)->seconds,
        .path = published.path,
        .stall_seconds = (*saved)->stall,
        .last = false},
       published.warnings);
  return {};
}

void Saver::tell(const report::Checkpoint& saved, const std::vector<std::string>& warnings) const {
  for (const auto& warning : warnings) events_.warn(warning);
  events_.emit(saved);
  log::info(text::format("saved step %ld: %.1f MB in %.2f s, the steps waited %.3f s", saved.step,
                         static_cast<double>(*saved.bytes) / 1e6, *saved.seconds,
                         *saved.stall_seconds));
}

checkpoint::WriteOptions Saver::write_options(const Progress& progress) const {
  return {.checkpoints_dir = checkpoints_,
          .step = progress.step,
          .attempt = in_.job.attempt,
          .rank = state_.collectives().rank(),
          .world = state_.collectives().world()};
}

checkpoint::Publication Saver::publication(const Progress& progress) const {
  return {.extents = state_.extents(),
          .run_state = run_state(progress),
          .save_total_limit = in_.job.training.save_total_limit};
}

Status Saver::save_now(const Progress& progress, bool last) {
  const auto start = std::chrono::steady_clock::now();
  const auto options = write_options(progress);
  const auto written = checkpoint::write_rank_from(
      files_, options, [&](const checkpoint::EmitPiece& emit) { return state_.for_pieces(emit); });
  DSJ_TRY_STATUS(agree(status_of(written)));
  Status published;
  if (options.rank == 0) {
    const auto done = checkpoint::publish(files_, options, publication(progress));
    if (done) {
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      tell({.step = progress.step,
            .bytes = done->bytes,
            .seconds = seconds.count(),
            .path = done->path,
            .stall_seconds = seconds.count(),
            .last = last},
           done->warnings);
    } else {
      published = std::unexpected(done.error());
    }
  }
  return agree(published);
}

Status Saver::export_model() {
  std::vector<weights::ExportTensor> tensors;
  for (const auto& flat : state_.plan().flats) {
    if (flat.frozen()) continue;
    for (const auto& slot : flat.slots()) tensors.push_back({slot.name, slot.shape});
  }
  std::optional<weights::AdapterConfig> adapter;
  if (in_.lora) {
    adapter = {.lora = *in_.lora,
               .base = in_.job.training.model_name_or_path,
               .fan_in_fan_out = layout::stored_in_out(in_.model)};
  }
  const std::string target = in_.job.output_dir + "/" + contract::kModelDir;
  std::optional<weights::ModelExport> writer;
  Status status;
  if (state_.collectives().rank() == 0) {
    auto begun = weights::ModelExport::begin(files_,
                                             {.source_dir = in_.job.training.model_name_or_path,
                                              .target_dir = target,
                                              .dtype = export_type(in_.config().precision),
                                              .adapter = adapter},
                                             tensors);
    if (begun)
      writer.emplace(std::move(*begun));
    else
      status = std::unexpected(begun.error());
  }
  DSJ_TRY_STATUS(agree(status));
  auto append = [&](const layout::Slot& slot, const at::Tensor& value) {
    if (!status) return;
    const at::Tensor wide = value.to(at::kFloat).contiguous();
    status = writer->append(slot.name,
                            {wide.const_data_ptr<float>(), static_cast<size_t>(wide.numel())});
  };
  state_.visit_weights(append, /*trained_only=*/true);
  if (writer && status) status = writer->publish();
  DSJ_TRY_STATUS(agree(status));
  if (writer) events_.emit(report::Exported{.path = target});
  return {};
}

}  // namespace dsj::train
