#include "engine/train/step/references.h"

#include "common/log.h"
#include "engine/comm/agree.h"
#include "engine/train/step/run_state.h"
#include "engine/weights/continued_adapter.h"
#include "engine/weights/export_record.h"

namespace dsj::train {
namespace {

using nlohmann::json;

constexpr int64_t kFileBytesMax = int64_t{8} << 30;

std::string reference_path(const Inputs& in) {
  return path_join(in.job.output_dir, dsconfig::kReferenceFile);
}

/// The model's configuration and weight files that exist, each with its fingerprint.
json model_key(Files& files, const std::string& directory) {
  json marks = json::object();
  const auto entries = files.list_dir(directory);
  if (!entries) return marks;
  for (const DirEntry& entry : *entries) {
    const std::string& name = entry.name;
    if (name != "config.json" && !name.ends_with(".safetensors") && !name.ends_with(".bin"))
      continue;
    const std::string path = path_join(directory, name);
    if (files.kind(path).value_or(EntryKind::Absent) != EntryKind::File) continue;
    if (const auto mark = weights::mark_of(files, path)) marks[name] = {mark->bytes, mark->ends};
  }
  return marks;
}

/// Fingerprints of the files that the run begins with: the model's, and those of its first adapter.
json start_key(Files& files, const TrainingArgs& training) {
  json marks = model_key(files, training.model_name_or_path);
  if (!training.lora || training.lora->adapter.empty()) return marks;
  const json adapter = model_key(files, training.lora->adapter);
  for (const auto& [name, mark] : adapter.items()) marks["adapter/" + name] = mark;
  return marks;
}

/// Whether no file of the model has changed since. Removed weights are fine: nothing needs them.
bool is_same_model(const json& saved, const json& now) {
  if (!saved.is_object()) return false;
  for (const auto& [name, mark] : now.items())
    if (saved.value(name, json()) != mark) return false;
  return true;
}

/// What the numbers depend on besides the model. On rank 0, which alone knows the data.
json reference_key(const Inputs& in) {
  return {{"data", in.data_record},
          {"max_prompt_length", in.objective.max_prompt_length},
          {"rotated_rows",
           in.objective.estimates_kl()
               ? dsconfig::rotated_rows(in.config().micro_batch_size, in.config().train_batch_size)
               : 0},
          {"truncation_side", in.job.training.truncation_side.value_or("right")},
          {"products", in.config().precision == dsconfig::Precision::Fp32 ? "fp32" : "16 bits"}};
}

std::optional<ReferenceLogps> logps_of(const json& saved, const char* name, int64_t rows) {
  const auto found = saved.find(name);
  if (found == saved.end() || !found->is_array() || std::ssize(*found) != rows) return std::nullopt;
  ReferenceLogps logps;
  for (const json& pair : *found) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number() || !pair[1].is_number())
      return std::nullopt;
    logps.push_back({pair[0].get<double>(), pair[1].get<double>()});
  }
  return logps;
}

int64_t eval_rows_of(const Inputs& in) {
  return in.eval_dataset ? in.eval_dataset->rows() : 0;
}

/// nullopt if there is no such file, or if it is damaged or of other rows or another model.
std::optional<References> read_references(Files& files, const Inputs& in) {
  const std::string path = reference_path(in);
  if (!files.exists(path).value_or(false)) return std::nullopt;
  const auto text = files.read_all(path, kFileBytesMax);
  if (!text) return std::nullopt;
  const json saved = json::parse(*text, nullptr, false);
  if (!saved.is_object() || saved.value("key", json()) != reference_key(in) ||
      !is_same_model(saved.value("model", json()), start_key(files, in.job.training)))
    return std::nullopt;
  auto train = logps_of(saved, "train", in.dataset->rows());
  auto eval = logps_of(saved, "eval", eval_rows_of(in));
  if (!train || !eval) return std::nullopt;
  return References{std::move(*train), std::move(*eval)};
}

Status write_references(Files& files, const Inputs& in, const References& references) {
  const json saved = {{"key", reference_key(in)},
                      {"model", start_key(files, in.job.training)},
                      {"train", references.train},
                      {"eval", references.eval}};
  return files.write_atomically(reference_path(in), saved.dump() + "\n");
}

}  // namespace

Result<std::optional<References>> find_references(Files& files, const Inputs& in,
                                                  zero::ModelState& state, Stepper& stepper,
                                                  const Events& events, at::Device device,
                                                  const std::function<bool()>& stop) {
  comm::Collectives& collectives = state.collectives();
  const bool first = collectives.rank() == 0;
  const auto tell = [&](const std::string& text) {
    if (!first) return;
    log::info(text);
    events.emit(report::Note{.text = text});
  };
  std::optional<References> known = first ? read_references(files, in) : std::nullopt;
  if (comm::max_over_ranks(collectives, device, {known ? 1.0 : 0.0})[0] > 0) {
    References shared;
    if (known) shared = std::move(*known);
    shared.train.resize(static_cast<size_t>(in.dataset->rows()));
    shared.eval.resize(static_cast<size_t>(eval_rows_of(in)));
    sum_over_ranks(collectives, device, shared.train);  // the other ranks pass zeros
    sum_over_ranks(collectives, device, shared.eval);
    tell("the reference's log-probabilities are read from " + reference_path(in));
    return shared;
  }
  const auto source = weights::WeightSource::open(files, in.job.training.model_name_or_path);
  DSJ_TRY_STATUS(comm::agree(collectives, device, source));
  const auto adapter = weights::open_continued(files, in.job.training.lora);
  DSJ_TRY_STATUS(comm::agree(collectives, device, adapter));
  DSJ_TRY_STATUS(state.load(*source, {.seed = static_cast<uint64_t>(in.seed()),
                                      .saved = *adapter ? &**adapter : nullptr}));
  tell("computing the reference's log-probabilities of " + std::to_string(in.dataset->rows()) +
       " rows" +
       (in.eval_dataset ? " and of " + std::to_string(eval_rows_of(in)) + " evaluation rows" : ""));
  const int64_t size = in.config().micro_batch_size;
  References references;
  DSJ_TRY(auto train, reference_logps(stepper, collectives, *in.dataset, size, device, stop));
  if (!train) return std::nullopt;
  references.train = std::move(*train);
  if (in.eval_dataset) {
    DSJ_TRY(auto eval, reference_logps(stepper, collectives, *in.eval_dataset, size, device, stop));
    if (!eval) return std::nullopt;
    references.eval = std::move(*eval);
  }
  DSJ_TRY_STATUS(
      comm::agree(collectives, device, first ? write_references(files, in, references) : Status{}));
  tell("the reference's log-probabilities are in " + reference_path(in));
  return references;
}

}  // namespace dsj::train
