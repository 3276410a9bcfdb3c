#include "engine/deepspeed/universal_export.h"

#include <algorithm>
#include <array>

#include "engine/deepspeed/pieces.h"
#include "engine/weights/formats/torch_writer.h"

namespace dsj::deepspeed {
namespace {

using namespace weights::pickled;

constexpr char kVersion[] = "0.19.8";  // the DeepSpeed version of this format

struct StateFile {
  const char* state;  ///< ours
  const char* file;   ///< DeepSpeed's
};
constexpr std::array<StateFile, 3> kStates{
    {{"master", "fp32.pt"}, {"exp_avg", "exp_avg.pt"}, {"exp_avg_sq", "exp_avg_sq.pt"}}};

/// The number of updates, for Adam's bias correction.
int64_t updates_of(const checkpoint::SavedRun& from) {
  return from.run_state().value("updates", from.step());
}

/// Whether the moments are missing because there was no update. Our own runs name their optimizer
/// and always have its states: if theirs lack the moments, the optimizer has none.
bool moments_are_zeros(const checkpoint::SavedRun& from) {
  return checkpoint::never_updated(from) && !from.run_state().contains("optimizer");
}

Status check(const checkpoint::SavedRun& from, const std::vector<Parameter>& parameters) {
  for (const Parameter& parameter : parameters) {
    for (const auto& [state, file] : kStates) {
      const auto elements = from.elements(state, parameter.name);
      if (elements == parameter.elements) continue;
      if (!elements && state != kStates[0].state && moments_are_zeros(from)) continue;
      const std::string what = "\"" + std::string(state) + "\" of \"" + parameter.name + "\"";
      if (!elements && state != kStates[0].state)
        return bad_input(what + " is not in it: the run's optimizer is " +
                             from.run_state().value("optimizer", std::string("another one")) +
                             ", a universal checkpoint has Adam's moments",
                         from.path(), "export the weights alone: --to fp32");
      return bad_input(what + " has " + std::to_string(elements.value_or(0)) +
                           " elements, the model " + std::to_string(parameter.elements),
                       from.path(), "name the model that it was made from");
    }
  }
  return {};
}

/// Writes zeros for a state without updates.
Status append_zeros(weights::TorchWriter& writer, int64_t elements) {
  const std::vector<float> zeros(size_t(std::min<int64_t>(elements, 1 << 20)));
  for (int64_t left = elements; left > 0; left -= static_cast<int64_t>(zeros.size()))
    DSJ_TRY_STATUS(writer.append(
        std::span(zeros).first(size_t(std::min(left, static_cast<int64_t>(zeros.size()))))));
  return {};
}

/// {param: TENSOR, cat_dim: 0}: all stages accept this; stage 3 would also accept the bare tensor.
Status write_state(Files& files, checkpoint::SavedRun& from, const Parameter& parameter,
                   const StateFile& state, const std::string& folder) {
  DSJ_TRY(auto writer, weights::TorchWriter::create(files, path_join(folder, state.file)));
  const Value tensor = writer.tensor(parameter.shape);
  DSJ_TRY_STATUS(writer.begin(dict(named({{"param", tensor}, {"cat_dim", integer(0)}}))));
  if (!from.elements(state.state, parameter.name)) {
    DSJ_TRY_STATUS(append_zeros(writer, parameter.elements));
    return writer.finish();
  }
  DSJ_TRY_STATUS(
      for_pieces(from, state.state, parameter.name, parameter.elements,
                 [&](int64_t, std::span<const float> values) { return writer.append(values); }));
  return writer.finish();
}

Status write_count(Files& files, const std::string& path, int64_t updates) {
  DSJ_TRY(auto writer, weights::TorchWriter::create(files, path));
  const Value tensor = writer.tensor({});
  DSJ_TRY_STATUS(writer.begin(tensor));
  const auto count = static_cast<float>(updates);
  DSJ_TRY_STATUS(writer.append({&count, 1}));
  return writer.finish();
}

/// A param group. Missing options keep ds_config's values. The learning rate is the next step's,
/// because DeepSpeed's schedules set theirs at the end of a step.
Value param_group(const nlohmann::json& run) {
  std::vector<std::pair<std::string, Value>> entries = {{"params", list({})}};
  if (run.contains("lr")) entries.emplace_back("lr", real(run["lr"].get<double>()));
  return dict(named(entries));
}

/// The optimizer's state besides tensors. A loader iterates over its own param groups and these
/// together, so there must not be fewer here. Stage 3 reads the nested dict.
Status write_optimizer(Files& files, const std::string& path, size_t groups, const Value& group,
                       int64_t updates) {
  DSJ_TRY(auto writer, weights::TorchWriter::create(files, path));
  const Value step = writer.tensor({});
  const Value nested = dict(named({{"state", dict({{integer(0), dict(named({{"step", step}}))}})},
                                   {"param_groups", list({group})}}));
  DSJ_TRY_STATUS(writer.begin(dict(named({{"param_groups", list(Items(groups, group))},
                                          {"optimizer_state_dict", nested},
                                          {"overflow", boolean(false)},
                                          {"ds_version", str(kVersion)}}))));
  const auto count = static_cast<float>(updates);
  DSJ_TRY_STATUS(writer.append({&count, 1}));
  return writer.finish();
}

/// The state of DeepSpeed's schedules, and of torch's LambdaLR, which transformers uses.
Value schedule(int64_t updates) {
  return dict(named({{"last_batch_iteration", integer(updates - 1)},
                     {"last_epoch", integer(updates)},
                     {"_step_count", integer(updates + 1)},
                     {"lr_lambdas", list({none()})}}));
}

/// `module`: values that are not in zero/. DeepSpeed ignores it in a universal checkpoint; we read
/// it.
Value model_states(const checkpoint::SavedRun& from, const std::vector<Parameter>& trained,
                   const std::vector<std::pair<std::string, Value>>& module) {
  const auto& run = from.run_state();
  std::vector<std::pair<std::string, Value>> shapes;
  for (const Parameter& parameter : trained)
    shapes.emplace_back(parameter.name, torch_size(parameter.shape));
  return dict(named({
      {"module", ordered_dict(named(module))},
      {"buffer_names", list({})},
      {"optimizer", none()},
      {"param_shapes", list({ordered_dict(named(shapes))})},
      {"frozen_param_shapes", ordered_dict({})},
      {"shared_params", dict({})},
      {"frozen_param_fragments", ordered_dict({})},
      {"lr_scheduler", schedule(updates_of(from))},
      {"data_sampler", none()},
      {"random_ltd", none()},
      {"skipped_steps", integer(run.value("skipped", int64_t{0}))},
      {"global_steps", integer(from.step())},
      {"global_samples", integer(from.step() * run.value("train_batch_size", int64_t{1}))},
      {"dp_world_size", integer(run.value("world_size", int64_t{1}))},
      {"mp_world_size", integer(1)},
      {"ds_config", dict({})},
      {"ds_version", str(kVersion)},
  }));
}

/// Includes the values of frozen parameters, if the checkpoint has them.
Status write_model(Files& files, const std::string& path, checkpoint::SavedRun& from,
                   const std::vector<Parameter>& trained, const std::vector<Parameter>& frozen) {
  DSJ_TRY(auto writer, weights::TorchWriter::create(files, path));
  std::vector<const Parameter*> kept;
  std::vector<std::pair<std::string, Value>> module;
  for (const Parameter& parameter : frozen) {
    if (from.elements(kStates[0].state, parameter.name) != parameter.elements) continue;
    kept.push_back(&parameter);
    module.emplace_back(parameter.name, writer.tensor(parameter.shape));
  }
  DSJ_TRY_STATUS(writer.begin(model_states(from, trained, module)));
  for (const Parameter* parameter : kept)
    DSJ_TRY_STATUS(
        for_pieces(from, kStates[0].state, parameter->name, parameter->elements,
                   [&](int64_t, std::span<const float> values) { return writer.append(values); }));
  return writer.finish();
}

}  // namespace

Result<Universal> export_universal(Files& files, checkpoint::SavedRun& from,
                                   const std::vector<Parameter>& all,
                                   const std::string& directory) {
  std::vector<Parameter> parameters, frozen;
  const auto names = from.run_state().value("frozen", nlohmann::json::array());
  for (const Parameter& parameter : all)
    (std::find(names.begin(), names.end(), parameter.name) == names.end() ? parameters : frozen)
        .push_back(parameter);
  DSJ_TRY_STATUS(check(from, parameters));
  const std::string tag = "global_step" + std::to_string(from.step()) + "_universal";
  const std::string folder = path_join(directory, tag), zero = path_join(folder, "zero");
  const int64_t updates = updates_of(from);
  const auto& run = from.run_state();
  DSJ_TRY_STATUS(files.make_dirs(zero));
  for (const Parameter& parameter : parameters) {
    const std::string own = path_join(zero, parameter.name);
    DSJ_TRY_STATUS(files.make_dir(own));
    for (const StateFile& state : kStates)
      DSJ_TRY_STATUS(write_state(files, from, parameter, state, own));
    DSJ_TRY_STATUS(write_count(files, path_join(own, "step.pt"), updates));
    DSJ_TRY_STATUS(files.sync_dir(own));
  }
  DSJ_TRY_STATUS(write_optimizer(files, path_join(zero, "optimizer_state.pt"), parameters.size(),
                                 param_group(run), updates));
  for (const char* name :
       {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt"})
    DSJ_TRY_STATUS(write_model(files, path_join(folder, name), from, parameters, frozen));
  DSJ_TRY_STATUS(files.sync_dir(zero));
  DSJ_TRY_STATUS(files.sync_dir(folder));
  // Written last, so that the tag that it names is complete.
  DSJ_TRY_STATUS(files.write_atomically(path_join(directory, "latest_universal"), tag));
  return Universal{
      .path = folder, .knows_learning_rate = run.contains("lr"), .frozen = frozen.size()};
}

}  // namespace dsj::deepspeed
