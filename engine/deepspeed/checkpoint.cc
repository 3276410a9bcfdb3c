#include "engine/deepspeed/checkpoint.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"
#include "common/text.h"
#include "engine/deepspeed/placing.h"

namespace dsj::deepspeed {
namespace {

/// 16-bit values pass through a buffer that stays in the cache.
constexpr size_t kStagedElements = 128 * 1024;
/// Options of a param group that decide an update.
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
  Checkpoint opened;
  opened.files_ = &files;
  DSJ_TRY(opened.folder_, find_folder(files, path, options.universal));
  DSJ_TRY(const SavedFile model_file, SavedFile::open(files, opened.folder_.model_files.front()));
  DSJ_TRY(opened.model_, read_model_states(model_file));
  DSJ_TRY(Placed placed, place(files, opened.folder_, model_file, opened.model_));
  opened.optim_ = std::move(placed.optim);
  opened.parameters_ = std::move(placed.trained);
  opened.model_.frozen = std::move(placed.frozen);
  opened.parameters_.insert(opened.parameters_.end(), opened.model_.frozen.begin(),
                            opened.model_.frozen.end());
  opened.ranges_ = std::move(placed.ranges);
  opened.paths_ = std::move(placed.paths);
  opened.derive_run_state();
  opened.note_options();
  return opened;
}

void Checkpoint::derive_run_state() {
  int64_t skipped = std::clamp<int64_t>(model_.skipped, 0, model_.steps);
  // The schedule goes on where it stood: here its place is the number of steps that were not skipped.
  if (model_.scheduled) {
    if (*model_.scheduled >= 0 && *model_.scheduled <= model_.steps) {
      skipped = model_.steps - *model_.scheduled;
    } else {
      notes_.push_back("the LR schedule stood at " + std::to_string(*model_.scheduled) + " of " +
                       std::to_string(model_.steps) + " steps; here it goes on from step " +
                       std::to_string(model_.steps - skipped));
    }
  }
  // An optimizer makes its count at its first update. Where every step was skipped there was none, whatever the
  // schedule says.
  const bool none_yet = model_.skipped >= model_.steps;
  const int64_t updates = optim_.step.value_or(none_yet ? 0 : model_.steps - skipped);
  std::vector<std::string> frozen;
  for (const Parameter& parameter : model_.frozen) frozen.push_back(parameter.name);
  std::ranges::sort(frozen);
  run_state_ = {{"step", model_.steps},       {"skipped", skipped},         {"updates", updates},
                {"world_size", model_.world}, {"stage", optim_.stage},      {"lora", nullptr},
                {"frozen", frozen},           {"deepspeed", model_.version}};
  if (model_.steps > 0 && model_.samples > 0 && model_.samples % model_.steps == 0)
    run_state_["train_batch_size"] = model_.samples / model_.steps;
  if (!optim_.groups.empty() && optim_.groups[0].contains("lr"))
    run_state_["lr"] = optim_.groups[0].at("lr");
  if (optim_.scaler && std::isfinite(optim_.scaler->scale))
    run_state_["loss_scaler"] = {{"scale", optim_.scaler->scale},
                                 {"hysteresis", optim_.scaler->hysteresis},
                                 {"step", optim_.scaler->step},
                                 {"last_overflow", optim_.scaler->last_overflow}};
}

void Checkpoint::note_options() {
  for (size_t g = 1; g < optim_.groups.size(); ++g) {
    for (const char* name : kOptions) {
      const auto first = optim_.groups[0].find(name), other = optim_.groups[g].find(name);
      if (first == optim_.groups[0].end() || other == optim_.groups[g].end() ||
          first->second == other->second)
        continue;
      notes_.push_back(std::string(name) + " of param group " + std::to_string(g) + " is " +
                       text::number(other->second) + ", of group 0 " + text::number(first->second) +
                       "; here the ds_config's holds for all parameters");
    }
  }
}

std::optional<int64_t> Checkpoint::elements(const std::string& state,
                                            const std::string& param) const {
  return ranges_.elements({state, param});
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
  for (const Stretch& stretch : ranges_.find({state, param}, offset, int64_t(out.size()))) {
    if (!weights::is_weight_dtype(stretch.dtype))
      return bad_input(state + " of " + param + " is " +
                           std::string(weights::dtype_name(stretch.dtype)) +
                           ", F32, BF16 and F16 are read",
                       paths_[stretch.file]);
    if (open_ != stretch.file) {
      DSJ_TRY(file_, files_->open_read(paths_[stretch.file]));
      open_ = stretch.file;
    }
    const auto target = out.subspan(size_t(stretch.begin - offset), size_t(stretch.elements));
    DSJ_TRY_STATUS(read_stretch(*file_, stretch, target));
  }
  return {};
}

Status Checkpoint::verify() {
  std::vector<std::string> all = paths_;
  all.insert(all.end(), folder_.model_files.begin(), folder_.model_files.end());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (const std::string& path : all) DSJ_TRY_STATUS(verify_archive(*files_, path));
  return {};
}

}  // namespace dsj::deepspeed
