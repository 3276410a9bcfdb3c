#include "engine/train/step/run_state.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "engine/data/files/data_record.h"
#include "engine/kernels/kernels.h"
#include "engine/models/ops/gemm.h"
#include "engine/optim/lr_schedule.h"
#include "job/dsconfig/config/loss_normalization.h"
#include "job/dsconfig/keys/metric_curriculum.h"
#include "job/dsconfig/keys/resolved_json.h"

namespace dsj::train {

using nlohmann::json;

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

json begun(const JobFile& job) {
  const auto& from = job.training.resume_from_checkpoint;
  if (!from || *from == "true") return nullptr;
  return {{"run", job.run}, {"from", *from}};
}

bool saved_by(const json& begun, const json& run_state) {
  return !begun["run"].get_ref<const std::string&>().empty() &&
         run_state.value("begun", json()) == begun;
}

namespace {

/// The rule by which rows are dealt. 1 (older versions): an epoch's last batch is filled with the
/// next epoch's first rows. 2: engine/data/batches/sampler.h.
constexpr int kOrderRule = 2;

/// The rule of the run that saved `saved`; nullopt if it was not one of ours.
std::optional<int> order_rule(const json& saved) {
  if (!saved.contains("shuffle")) return std::nullopt;
  return saved.value("order_rule", saved.contains("loss_normalization") ? kOrderRule : 1);
}

/// Whether each epoch of `run` ends with a full batch, so that all rules deal alike.
bool fills_batches(const json& run) {
  const json data = run.value("data", json());
  const int64_t packed = run.value("packed_rows", int64_t{0});
  const int64_t rows = packed > 0 ? packed
                       : data.is_object()
                           ? data.value("rows", int64_t{0}) - data.value("split_rows", int64_t{0})
                           : 0;
  const int64_t batch = run.value("train_batch_size", int64_t{0});
  return rows > 0 && batch > 0 && rows % batch == 0;
}

}  // namespace

json run_state(const Inputs& in, zero::ModelState& state, const Stepper& stepper,
               const Progress& progress) {
  const auto& config = in.config();
  return {
      {"step", progress.step},
      {"loss_scaler", to_json(stepper.loss_scaler().state())},
      {"skipped", progress.skipped},
      {"updates", stepper.updates()},
      {"lr",
       optim::rates_at(config.scheduler, config.optimizer.lr, progress.step - progress.skipped)
           .lr},  // the next step's
      {"optimizer", dsconfig::name_of(config.optimizer)},
      {"train_batch_size", config.train_batch_size},
      {"loss_normalization", dsconfig::name_of(dsconfig::loss_normalization(in.job.training))},
      {"objective", dsconfig::name_of(in.objective.kind)},
      {"data", in.data_record},
      {"order_rule", kOrderRule},
      {"dealt_from", progress.dealt_from},
      {"evaluation_due", progress.evaluation_due},
      {"rows_per_dropped_batch", config.drop_last_micro_batches
                                     ? config.train_batch_size / config.gradient_accumulation_steps
                                     : 0},
      {"seed", in.data_seed()},
      {"shuffle", in.shuffle()},
      {"packed_rows", in.packs ? in.packs->count() : 0},
      {"rows_per_group_batch",  // the unit of group_by_length's order
       in.lengths ? config.micro_batch_size * config.gradient_accumulation_steps : 0},
      {"world_size", state.collectives().world()},
      {"stage", config.zero.stage},
      {"precision", static_cast<int>(config.precision)},
      {"product_dtype", dsconfig::name_of(dsconfig::product_type(config))},
      {"master_dtype", dsconfig::name_of(config.master_dtype)},
      {"state_dtype", dsconfig::name_of(config.state_dtype)},
      {"micro_batch_size", config.micro_batch_size},
      {"reduce_bucket_size", config.zero.reduce_bucket_size},
      {"threads", at::get_num_threads()},
      {"isa", kernels::table().isa},
      {"native_bf16", models::gemm::native(at::empty({0}, at::kBFloat16))},
      {"begun", begun(in.job)},
      {"best", to_json(progress.best)},
      {"data_efficiency", dsconfig::to_json(config.data_efficiency)},
      {"metrics", dsconfig::to_json(dsconfig::metric_curricula(in.job.ds_config))},
      {"lora", in.lora ? to_json(*in.lora) : json()},
      {"backend", std::string(state.collectives().backend())}};
}

namespace {

std::string joined(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& one : sentences) text += (text.empty() ? "" : "; ") + one;
  return text;
}

data::DataChange data_change(const json& saved, const json& now) {
  return data::data_change(saved.value("data", json()), now);
}

}  // namespace

Status check_data(const json& saved, const Inputs& in, const std::string& path) {
  const auto change = data_change(saved, in.data_record);
  if (change.breaks.empty()) return {};
  const std::string what =
      "the rows cannot continue in the checkpoint's order: " + joined(change.breaks);
  if (!in.job.training.ignore_data_skip.value_or(false))
    return bad_input(what, path,
                     "give the data that it was saved with; or name another output directory; or "
                     "set ignoreDataSkip (--ignore_data_skip True) to begin the order of the new "
                     "data with its first row");
  if (!dsconfig::metric_curricula(in.job.ds_config).empty())
    return bad_input(what, path,
                     "ignoreDataSkip is not built beside a curriculum by metrics: name another "
                     "output directory");
  return {};
}

int64_t dealt_from(const json& saved, const Inputs& in, int64_t step) {
  return data_change(saved, in.data_record).breaks.empty() ? saved.value("dealt_from", int64_t{0})
                                                           : step;
}

std::vector<std::string> differences(const json& saved, const json& now) {
  std::vector<std::string> warnings;
  const auto change = data_change(saved, now.value("data", json()));
  if (!change.told.empty())
    warnings.push_back("beside the run that saved the checkpoint: " + joined(change.told));
  if (!change.breaks.empty())
    warnings.push_back("the order of the rows begins anew at this step, as ignoreDataSkip says: " +
                       joined(change.breaks));
  if (const auto rule = order_rule(saved);
      rule && *rule != now.value("order_rule", *rule) && !fills_batches(now))
    warnings.push_back(
        "the checkpoint is of an older program, which filled an epoch's last batch with the next "
        "epoch's first rows: the order of the data changes");
  if (saved.contains("optimizer") && saved["optimizer"] != now["optimizer"])
    warnings.push_back("the optimizer was " + saved["optimizer"].get<std::string>() + " and is " +
                       now["optimizer"].get<std::string>() +
                       ": it continues from the states with the same names");
  const std::string before = saved.value("objective", "sft"), next = now.value("objective", "sft");
  if (before != next) warnings.push_back("the objective was " + before + " and is " + next);
  for (const char* key : {"train_batch_size", "seed", "shuffle", "packed_rows",
                          "rows_per_group_batch", "rows_per_dropped_batch", "metrics"}) {
    if (saved.contains(key) && saved[key] != now[key]) {
      warnings.push_back(std::string(key) + " was " + saved[key].dump() +
                         " when the checkpoint was saved and is " + now[key].dump() +
                         ": the order of the data changes");
    }
  }
  std::string changed;
  for (const char* key : {"world_size", "loss_normalization", "stage", "precision", "master_dtype",
                          "state_dtype", "micro_batch_size", "reduce_bucket_size", "threads", "isa",
                          "native_bf16", "backend", "data_efficiency", "product_dtype"}) {
    if (!saved.contains(key) || saved[key] == now[key]) continue;
    changed += (changed.empty() ? "" : ", ") + std::string(key) + " " + saved[key].dump() + " → " +
               now[key].dump();
  }
  if (!changed.empty())
    warnings.push_back("losses will not be bit-identical to an uninterrupted run: " + changed);
  return warnings;
}

}  // namespace dsj::train
