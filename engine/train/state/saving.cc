#include "engine/train/state/saving.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <chrono>
#include <set>

#include "common/format.h"
#include "common/log.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/writer.h"
#include "engine/kernels/copy.h"
#include "engine/train/state/frozen.h"
#include "engine/weights/kept_models.h"
#include "engine/weights/weight_source.h"
#include "job/contract.h"
#include "job/layout/reward_model.h"
#include "job/layout/row_pieces.h"

namespace dsj::train {
namespace {

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

}  // namespace

Saver::Saver(Files& files, const Inputs& inputs, zero::ModelState& state, Stepper& stepper,
             const Events& events, at::Device device)
    : files_(files),
      in_(inputs),
      state_(state),
      stepper_(stepper),
      events_(events),
      device_(device),
      checkpoints_(inputs.job.output_dir + "/" + contract::kCheckpointsDir) {}

namespace {

/// Uses all threads, which are idle at this time.
void copy_in_parallel(std::span<float> to, std::span<const float> from) {
  constexpr int64_t kGrain = 1 << 16;  // elements
  at::parallel_for(0, static_cast<int64_t>(from.size()), kGrain, [&](int64_t begin, int64_t end) {
    kernels::copy_past_caches(to.data() + begin, from.data() + begin, end - begin);
  });
}

void copy_alone(std::span<float> to, std::span<const float> from) {
  kernels::copy_past_caches(to.data(), from.data(), static_cast<int64_t>(from.size()));
}

/// A host tensor of `bytes`; undefined if memory is short.
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
      checkpoint::BackgroundSave::Copies{.waiting = copy_in_parallel, .beside = copy_alone});
}

Status Saver::save(const Progress& progress, bool last) {
  DSJ_TRY_STATUS(finish());
  const bool waits = last || !behind_;
  if (waits) {
    DSJ_TRY_STATUS(save_now(progress, last));
  } else {
    behind_->begin(
        write_options(progress),
        state_.collectives().rank() == 0 ? publication(progress) : checkpoint::Publication{},
        [&](const checkpoint::EmitPiece& emit) { return state_.for_pieces(emit); });
  }
  confirmed_.saved(progress.step);
  to_prune_ = {.checkpoints_dir = checkpoints_,
               .step = progress.step,
               .attempt = in_.job.attempt,
               .save_total_limit = in_.job.training.save_total_limit,
               .best_step = progress.best.checkpoint};
  return {};
}

StepVotes Saver::votes() {
  if (!behind_) return {};
  const auto [written, failed, published] = behind_->votes();
  return {written, failed, published};
}

void Saver::settle() {
  if (behind_) behind_->settle();
}

Status Saver::advance(const StepVotes& all) {
  return behind_ ? tell(behind_->advance({all[0], all[1], all[2]})) : Status{};
}

Status Saver::finish() {
  if (!behind_) return {};
  return tell(behind_->finish([&](const checkpoint::SaveVotes& mine) -> checkpoint::SaveVotes {
    const at::Tensor sums =
        at::tensor({mine.written, mine.failed, mine.published}, at::kDouble).to(device_);
    const auto work =
        state_.collectives().all_reduce(sums, comm::Op::Sum, {comm::Traffic::Control, "save"});
    const at::Tensor host = comm::on_host(*work, sums);
    const double* sum = host.const_data_ptr<double>();
    return {sum[0], sum[1], sum[2]};
  }));
}

Status Saver::tell(const checkpoint::BackgroundSave::Saved& saved) {
  if (!saved) return std::unexpected(saved.error());
  if (!*saved) return {};
  prune_confirmed();
  if (!(*saved)->published) return {};
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
  nlohmann::json run = run_state(in_, state_, stepper_, progress);
  run["frozen"] = frozen_of(in_, state_);
  return {.extents = state_.extents(),
          .run_state = std::move(run),
          .save_total_limit = in_.job.training.save_total_limit,
          .best_step = progress.best.checkpoint,
          .confirmed = confirmed_.step()};
}

void Saver::took(bool finite) {
  if (!confirmed_.took(finite)) return;
  if (behind_ && behind_->confirm()) to_prune_.reset();
  prune_confirmed();
}

void Saver::prune_confirmed() {
  const bool publishes = behind_ && !behind_->idle();
  if (!to_prune_ || publishes || confirmed_.step() != to_prune_->step) return;
  to_prune_->confirmed = confirmed_.step();
  if (state_.collectives().rank() == 0)
    for (const auto& warning : checkpoint::prune(files_, *to_prune_)) events_.warn(warning);
  to_prune_.reset();
}

Status Saver::save_now(const Progress& progress, bool last) {
  const auto start = std::chrono::steady_clock::now();
  const auto options = write_options(progress);
  const auto written = checkpoint::write_rank_from(
      files_, options, [&](const checkpoint::EmitPiece& emit) { return state_.for_pieces(emit); });
  DSJ_TRY_STATUS(agree(written));
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

Status Saver::take_back(int64_t step) {
  auto reader =
      checkpoint::Reader::open(files_, path_join(checkpoints_, checkpoint::step_name(step)));
  DSJ_TRY_STATUS(agree(reader));
  return state_.restore(*reader);
}

namespace {

/// What an export copies from the model directory: buffers, and if only the text part was trained,
/// the weights that no unit has.
struct RestOfModel {
  std::optional<weights::WeightSource> source;
  std::vector<weights::TensorInfo> tensors;

  static Result<RestOfModel> open(Files& files, const std::string& directory,
                                  const layout::ModelConfig& model,
                                  const std::vector<layout::UnitSpec>& units) {
    RestOfModel rest;
    std::set<std::string> buffers;
    for (const layout::UnitSpec& unit : units)
      for (const layout::Parameter& buffer : unit.buffers) buffers.insert(buffer.name);
    if (!model.is_text_part && buffers.empty()) return rest;
    DSJ_TRY(rest.source, weights::WeightSource::open(files, directory));
    // The old copy of a tied head would be read as a separate head.
    std::set<std::string> ours = {std::string(model.names.head) + ".weight"};
    for (const layout::UnitSpec& unit : units)
      for (const layout::Parameter& parameter : unit.parameters)
        if (const auto* found = rest.source->find(parameter.name)) ours.insert(found->name);
    for (const weights::TensorInfo& tensor : rest.source->tensors()) {
      const bool made_again = !weights::is_weight_dtype(tensor.dtype);  // recomputed on load
      const bool copied = model.is_text_part ? !made_again && !ours.contains(tensor.name)
                                             : buffers.contains(tensor.name);
      if (copied) rest.tensors.push_back(tensor);
    }
    return rest;
  }

  /// Copies the tensors of this rank's files unchanged.
  Status append_to(weights::ModelExport& model) const {
    constexpr int64_t kPiece = 1 << 20;  // elements
    for (const weights::TensorInfo& tensor : tensors) {
      if (!model.writes(tensor.name)) continue;
      std::vector<float> values;
      for (const auto& [first, count] : layout::row_pieces(tensor.elements, kPiece)) {
        values.resize(static_cast<size_t>(count));
        DSJ_TRY_STATUS(source->read(tensor.name, first, values));
        DSJ_TRY_STATUS(model.append(tensor.name, values));
      }
    }
    return {};
  }
};

}  // namespace

std::vector<weights::ExportTensor> Saver::exported_tensors(
    std::span<const weights::TensorInfo> rest) const {
  std::vector<weights::ExportTensor> tensors;
  for (const auto& flat : state_.plan().flats) {
    if (flat.frozen() && in_.lora) continue;  // the base is not exported
    for (const auto& slot : flat.slots()) tensors.push_back({slot.name, slot.shape});
  }
  for (const auto& tensor : rest) tensors.push_back({tensor.name, tensor.shape, tensor.dtype});
  if (const auto tied = tied_pair()) {
    const auto embedding =
        std::ranges::find(tensors, tied->embedding, &weights::ExportTensor::name);
    tensors.push_back({tied->head, embedding->shape});
  }
  return tensors;
}

std::optional<layout::TiedPair> Saver::tied_pair() const {
  return in_.lora ? layout::tied_pair(in_.model, *in_.lora) : std::nullopt;
}

weights::ExportOptions Saver::export_options(const std::string& target,
                                             int64_t file_bytes_max) const {
  weights::ExportOptions options{
      .source_dir = in_.job.training.model_name_or_path,
      .target_dir = target,
      .dtype = export_type(in_.config().precision),
      .shard_bytes_max = file_bytes_max,
      .share = {.rank = state_.collectives().rank(), .world = state_.collectives().world()}};
  if (in_.job.training.eos_token)
    options.eos = {*in_.job.training.eos_token, *in_.tokenizer->eos_id()};
  if (in_.model.scored && in_.tokenizer) {
    const auto pad = in_.tokenizer->pad_id() ? in_.tokenizer->pad_id() : in_.tokenizer->eos_id();
    options.reward = {layout::reward_class(in_.model.model_type), pad.value_or(0)};
  }
  const std::string wanted = in_.job.training.chat_template.value_or("auto");
  const bool own = wanted == "auto" || wanted == "model";
  if (!own && in_.dataset->chat_template().key() != 0)
    options.chat_template = in_.dataset->chat_template().source();
  if (in_.lora) {
    options.adapter = {.lora = *in_.lora,
                       .base = in_.job.training.model_name_or_path,
                       .scored = in_.model.scored,
                       .fan_in_fan_out = layout::stored_in_out(in_.model)};
  }
  return options;
}

void Saver::deal(weights::ModelExport& model) {
  if (!model.is_dealt()) return;
  const double blind = model.sees_staging() ? 0 : 1;
  if (comm::max_over_ranks(state_.collectives(), device_, {blind})[0] == 0) return;
  model.write_alone();
  if (state_.collectives().rank() == 0)
    events_.warn("rank 0 writes all files of the exported model: not every rank sees " +
                 in_.job.output_dir);
}

Status Saver::export_model(const CardFigures& figures, int64_t file_bytes_max) {
  const std::string target = path_join(in_.job.output_dir, contract::kModelDir);
  DSJ_TRY(const std::string path, export_to(target, figures, file_bytes_max));
  if (state_.collectives().rank() == 0) events_.emit(report::Exported{.path = path});
  return {};
}

Status Saver::save_model(const CardFigures& figures) {
  const std::string models = path_join(in_.job.output_dir, contract::kModelsDir);
  const bool leads = state_.collectives().rank() == 0;
  DSJ_TRY_STATUS(agree(leads ? files_.make_dirs(models) : Status{}));
  DSJ_TRY(const std::string path,
          export_to(path_join(models, weights::kept_model_name(figures.step)), figures,
                    weights::kShardBytesMax));
  if (!leads) return {};
  events_.emit(report::Note{.text = "the model of step " + std::to_string(figures.step) +
                                    " is saved in " + path});
  const int64_t limit = in_.job.training.save_total_limit.value_or(0);
  for (const auto& warning : weights::prune_models(files_, models, limit, figures.step))
    events_.warn(warning);
  return {};
}

Result<std::string> Saver::export_to(const std::string& target, const CardFigures& figures,
                                     int64_t file_bytes_max) {
  auto options = export_options(target, file_bytes_max);
  options.card = model_card(in_, figures, state_.collectives().world(), version());
  const auto rest = in_.lora
                        ? Result<RestOfModel>()  // the base has them
                        : RestOfModel::open(files_, options.source_dir, in_.model, state_.units());
  DSJ_TRY_STATUS(agree(rest));
  auto begun = weights::ModelExport::begin(files_, options, exported_tensors(rest->tensors));
  DSJ_TRY_STATUS(agree(begun));
  weights::ModelExport& model = *begun;
  deal(model);
  Status status;
  const auto append_as = [&](const std::string& name, const at::Tensor& value) {
    if (!status) return;
    const at::Tensor wide = value.to(at::kFloat).contiguous();
    status = model.append(name, {wide.const_data_ptr<float>(), static_cast<size_t>(wide.numel())});
  };
  const auto append = [&](const layout::Slot& slot, const at::Tensor& value) {
    append_as(slot.name, value);
  };
  std::vector<zero::Flat*> flats;
  for (int flat = 0; flat < static_cast<int>(state_.plan().flats.size()); ++flat)
    if (!in_.lora || !state_.flat(flat).frozen()) flats.push_back(&state_.flat(flat));
  const auto here = [&](const layout::Slot& slot) { return model.writes(slot.name); };
  zero::visit_weights(flats, here, append);
  if (const auto tied = tied_pair()) {
    const auto is_embedding = [&](const layout::Slot& slot) {
      return slot.name == tied->embedding;
    };
    std::erase_if(flats, [&](const zero::Flat* flat) {
      return std::ranges::none_of(flat->layout().slots(), is_embedding);
    });
    zero::visit_weights(
        flats, [&](const layout::Slot& slot) { return is_embedding(slot) && here(slot); },
        [&](const layout::Slot&, const at::Tensor& value) { append_as(tied->head, value); });
  }
  if (status) status = rest->append_to(model);
  if (status) status = model.finish();
  DSJ_TRY_STATUS(agree(status));
  if (options.share.rank == 0) {
    status = model.publish();
    for (const std::string& warning : model.warnings()) events_.warn(warning);
  }
  DSJ_TRY_STATUS(agree(status));
  return model.published_path();
}

}  // namespace dsj::train
