#include "engine/deepspeed/checkpoint.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/text.h"
#include "engine/deepspeed/placing.h"

namespace dsj::deepspeed {
namespace {

/// 16-bit values are converted through a buffer that stays in the cache.
constexpr size_t kStagedElements = 128 * 1024;
/// Options of a param group that affect an update.
constexpr const char* kOptions[] = {"lr",       "weight_decay", "betas[0]",
                                    "betas[1]", "eps",          "momentum"};

Status read_stretch(const ReadFile& file, const Stretch& stretch, std::span<float> out) {
  int64_t at = stretch.byte;
  if (stretch.dtype == weights::DType::F32) return file.read(at, std::as_writable_bytes(out));
  const auto convert =
      stretch.dtype == weights::DType::BF16 ? weights::bf16_to_float : weights::fp16_to_float;
  std::vector<uint16_t> staged(std::min(out.size(), kStagedElements));
  while (!out.empty()) {
    const auto part = std::span(staged).first(std::min(out.size(), staged.size()));
    DSJ_TRY_STATUS(file.read(at, std::as_writable_bytes(part)));
    convert(part, out.first(part.size()));
    at += int64_t(part.size_bytes());
    out = out.subspan(part.size());
  }
  return {};
}

}  // namespace

Result<Checkpoint> Checkpoint::open(Files& files, const std::string& path,
                                    const OpenOptions& options) {
  DSJ_TRY(const Folder folder, find_folder(files, path, options.universal));
  return open(files, folder);
}

Result<Checkpoint> Checkpoint::open(Files& files, const Folder& folder) {
  Checkpoint opened;
  opened.files_ = &files;
  opened.folder_ = folder;
  DSJ_TRY(const SavedFile model_file, SavedFile::open(files, folder.models.path(0)));
  DSJ_TRY(opened.model_, read_model_states(model_file));
  DSJ_TRY(opened.placed_, place(files, opened.folder_, model_file, opened.model_));
  opened.model_.frozen = opened.placed_.frozen;
  opened.parameters_ = opened.placed_.trained;
  opened.parameters_.insert(opened.parameters_.end(), opened.model_.frozen.begin(),
                            opened.model_.frozen.end());
  opened.derive_run_state();
  opened.note_options();
  return opened;
}

void Checkpoint::derive_run_state() {
  const OptimStates& optim = placed_.optim;
  int64_t skipped = std::clamp<int64_t>(model_.skipped, 0, model_.steps);
  // The schedule continues at the number of steps that were not skipped.
  if (model_.scheduled) {
    if (*model_.scheduled >= 0 && *model_.scheduled <= model_.steps) {
      skipped = model_.steps - *model_.scheduled;
    } else {
      notes_.push_back("the LR schedule was at " + std::to_string(*model_.scheduled) + " of " +
                       std::to_string(model_.steps) + " steps; here it continues from step " +
                       std::to_string(model_.steps - skipped));
    }
  }
  // An optimizer creates its count at its first update. If every step was skipped there was no
  // update, whatever the schedule says.
  const bool none_yet = model_.skipped >= model_.steps;
  const int64_t updates = optim.step.value_or(none_yet ? 0 : model_.steps - skipped);
  std::vector<std::string> frozen;
  for (const Parameter& parameter : model_.frozen) frozen.push_back(parameter.name);
  std::ranges::sort(frozen);
  run_state_ = {{"step", model_.steps},       {"skipped", skipped},         {"updates", updates},
                {"world_size", model_.world}, {"stage", optim.stage},       {"lora", nullptr},
                {"frozen", frozen},           {"deepspeed", model_.version}};
  if (model_.steps > 0 && model_.samples > 0 && model_.samples % model_.steps == 0)
    run_state_["train_batch_size"] = model_.samples / model_.steps;
  if (!optim.groups.empty() && optim.groups[0].contains("lr"))
    run_state_["lr"] = optim.groups[0].at("lr");
  if (optim.scaler && std::isfinite(optim.scaler->scale))
    run_state_["loss_scaler"] = {{"scale", optim.scaler->scale},
                                 {"hysteresis", optim.scaler->hysteresis},
                                 {"step", optim.scaler->step},
                                 {"last_overflow", optim.scaler->last_overflow}};
}

void Checkpoint::note_options() {
  const OptimStates& optim = placed_.optim;
  for (size_t g = 1; g < optim.groups.size(); ++g) {
    for (const char* name : kOptions) {
      const auto first = optim.groups[0].find(name), other = optim.groups[g].find(name);
      if (first == optim.groups[0].end() || other == optim.groups[g].end() ||
          first->second == other->second)
        continue;
      notes_.push_back(std::string(name) + " of param group " + std::to_string(g) + " is " +
                       text::number(other->second) + ", of group 0 " + text::number(first->second) +
                       "; the run's own settings apply here");
    }
  }
}

std::optional<int64_t> Checkpoint::elements(const std::string& state,
                                            const std::string& param) const {
  const auto found = placed_.tensors.find({state, param});
  return found == placed_.tensors.end() ? std::nullopt : std::optional(found->second.elements);
}

Status Checkpoint::read(const std::string& state, const std::string& param, int64_t offset,
                        std::span<float> out) {
  const auto whole = elements(state, param);
  if (!whole) return bad_input("the checkpoint has no " + state + " of " + param, path());
  if (offset < 0 || offset > *whole || int64_t(out.size()) > *whole - offset) {
    return bad_input(state + " of " + param + " has " + std::to_string(*whole) +
                         " elements, the model asks for [" + std::to_string(offset) + ", " +
                         std::to_string(uint64_t(offset) + out.size()) + ")",
                     path(), "the checkpoint is of another model");
  }
  Status done = read_elements(placed_.tensors.at({state, param}), offset, out);
  if (!done) done.error().message += " (read for " + state + " of " + param + ")";
  return done;
}

Status Checkpoint::read_elements(const Dealt& dealt, int64_t offset, std::span<float> out) {
  for (const Share& share : shares_of(dealt, offset, int64_t(out.size()))) {
    DSJ_TRY(const Contents* held, contents(share.file));
    const auto of_share = out.subspan(size_t(share.begin - offset), size_t(share.elements));
    for (const Stretch& stretch : cut(held->at(dealt.flat), share.at, share.elements)) {
      if (!weights::is_weight_dtype(stretch.dtype))
        return bad_input("the values are " + std::string(weights::dtype_name(stretch.dtype)) +
                             ": F32, BF16 and F16 are read",
                         placed_.files[share.file].path);
      DSJ_TRY(const ReadFile* file, data(share.file));
      DSJ_TRY_STATUS(read_stretch(
          *file, stretch,
          of_share.subspan(size_t(stretch.begin - share.at), size_t(stretch.elements))));
    }
  }
  return {};
}

Result<const Contents*> Checkpoint::contents(size_t file) {
  PartFile& part = placed_.files[file];
  if (!part.contents) {
    DSJ_TRY(SavedFile saved, SavedFile::open(*files_, part.path));
    DSJ_TRY(part.contents, read_contents(placed_, file, saved));
    keep_open(file, saved.release());
  }
  return &*part.contents;
}

Result<const ReadFile*> Checkpoint::data(size_t file) {
  const auto found = std::ranges::find(open_, file, &OpenFile::file);
  if (found != open_.end()) return found->data.get();
  DSJ_TRY(auto opened, files_->open_read(placed_.files[file].path));
  return keep_open(file, std::move(opened));
}

const ReadFile* Checkpoint::keep_open(size_t file, std::unique_ptr<ReadFile> data) {
  if (open_.size() == kFilesOpenMax) open_.erase(open_.begin());
  open_.push_back({file, std::move(data)});
  return open_.back().data.get();
}

Status Checkpoint::check_parts() {
  for (size_t file = 0; file < placed_.files.size(); ++file)
    if (const auto held = contents(file); !held) return std::unexpected(held.error());
  return {};
}

Status Checkpoint::verify() {
  DSJ_TRY_STATUS(check_parts());
  std::vector<std::string> all;
  for (size_t rank = 0; rank < folder_.models.count; ++rank)
    all.push_back(folder_.models.path(rank));
  for (const PartFile& part : placed_.files) all.push_back(part.path);
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (const std::string& path : all) DSJ_TRY_STATUS(verify_archive(*files_, path));
  return {};
}

}  // namespace dsj::deepspeed
