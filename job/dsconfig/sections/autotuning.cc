#include "job/dsconfig/sections/autotuning.h"

#include <algorithm>

#include "common/text.h"
#include "job/dsconfig/config/batch.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;

constexpr char kSection[] = "autotuning";

/// Takes the value of a key that DeepSpeed's tuner reads as a list. Leaves its first element.
std::vector<int64_t> take_list(json& value, int64_t least, int64_t most, const std::string& path,
                               std::vector<Finding>& findings) {
  std::vector<int64_t> list;
  bool good = !value.empty();
  for (const json& item : value) {
    good = good && item.is_number_integer() && item.get<int64_t>() >= least &&
           item.get<int64_t>() <= most;
    if (good) list.push_back(item.get<int64_t>());
  }
  if (!good)
    findings.push_back({Finding::Severity::Error, path,
                        "found " + value.dump() + ", expected whole numbers from " +
                            std::to_string(least) + " to " + std::to_string(most),
                        "one number, or a list of those to try"});
  std::ranges::sort(list);
  list.erase(std::ranges::unique(list).begin(), list.end());
  value = list.empty() ? least : list.front();
  return list;
}

std::vector<int> stages_of(json& ds_config, std::vector<Finding>& findings) {
  const json::json_pointer path("/zero_optimization/stage");
  if (!ds_config.contains(path)) return {0};
  json& stage = ds_config[path];
  if (stage == "all") {
    stage = 0;
    return {0, 1, 2, 3};
  }
  if (stage.is_array()) {
    const auto list = take_list(stage, 0, 3, "zero_optimization.stage", findings);
    return {list.begin(), list.end()};
  }
  if (stage.is_number_integer() && stage >= 0 && stage <= 3) return {stage.get<int>()};
  return {0};  // check() reports the error
}

Autotuning settings_of(const Source& in) {
  const auto at = [](const char* key) { return std::string(kSection) + "." + key; };
  Autotuning read;
  read.fast = in.value<bool>(at("fast"));
  read.results_dir = in.value<std::string>(at("results_dir"));
  read.exps_dir = in.value<std::string>(at("exps_dir"));
  read.overwrite = in.value<bool>(at("overwrite"));
  read.start_profile_step = in.value<int64_t>(at("start_profile_step"));
  read.end_profile_step = in.value<int64_t>(at("end_profile_step"));
  read.metric = text::normalized(in.value<std::string>(at("metric")));
  if (read.metric.starts_with("flops")) read.metric = "flops";
  read.tuner_type = in.value<std::string>(at("tuner_type"));
  read.tuner_early_stopping = in.value<int64_t>(at("tuner_early_stopping"));
  read.tuner_num_trials = in.value<int64_t>(at("tuner_num_trials"));
  if (const json* most = in.literal(at("max_train_batch_size")))
    read.max_train_batch_size = most->get<int64_t>();
  read.min_train_batch_size = in.value<int64_t>(at("min_train_batch_size"));
  read.max_micro_batch = in.value<int64_t>(at("max_train_micro_batch_size_per_gpu"));
  read.min_micro_batch = in.value<int64_t>(at("min_train_micro_batch_size_per_gpu"));
  read.micro_batch_sizes = in.value<int64_t>(at("num_tuning_micro_batch_sizes"));
  return read;
}

void check_settings(const Autotuning& read, Report& out) {
  if (read.start_profile_step > read.end_profile_step)
    out.error("autotuning.start_profile_step", std::to_string(read.start_profile_step) +
                                                   " is after end_profile_step, " +
                                                   std::to_string(read.end_profile_step));
  if (read.min_micro_batch > read.max_micro_batch)
    out.error("autotuning.min_train_micro_batch_size_per_gpu",
              std::to_string(read.min_micro_batch) + " is above the largest, " +
                  std::to_string(read.max_micro_batch));
  if (read.max_train_batch_size && *read.max_train_batch_size < read.min_train_batch_size)
    out.error("autotuning.max_train_batch_size", std::to_string(*read.max_train_batch_size) +
                                                     " is below min_train_batch_size, " +
                                                     std::to_string(read.min_train_batch_size));
  for (const auto& [key, folder] : {std::pair{"autotuning.results_dir", &read.results_dir},
                                    std::pair{"autotuning.exps_dir", &read.exps_dir}})
    if (folder->empty())
      out.error(key, "found \"\", expected a directory", "DeepSpeed needs it, too");
  if (read.results_dir == read.exps_dir)
    out.error("autotuning.exps_dir", "it is the same directory as results_dir");
}

}  // namespace

TuneRequest tune_request(const json& ds_config) {
  TuneRequest request{.ds_config = ds_config};
  if (!request.ds_config.is_object()) return request;  // resolve() reports the error
  request.stages = stages_of(request.ds_config, request.findings);
  if (const auto micro = request.ds_config.find(kMicroBatchKey);
      micro != request.ds_config.end() && micro->is_array())
    request.micro_batches = take_list(*micro, 1, 1 << 20, kMicroBatchKey, request.findings);
  // Only the section's own keys: resolve() checks the others, as for a run.
  json section = json::object();
  if (const auto found = request.ds_config.find(kSection); found != request.ds_config.end())
    section[kSection] = *found;
  request.ds_config.erase(kSection);
  const Checked checked = check(section);
  const TrainingArgs args;
  const Facts facts;
  const Source in{checked, args, facts, true};
  Resolution said{.findings = checked.findings};
  Report out(in, said);
  request.asked = in.value<bool>(std::string(kSection) + ".enabled");
  if (request.asked && said.ok()) {
    request.settings = settings_of(in);
    check_settings(request.settings, out);
  }
  for (Finding& finding : said.findings) request.findings.push_back(std::move(finding));
  return request;
}

void refuse_autotuning(const Source& in, Report& out) {
  if (!in.value<bool>(std::string(kSection) + ".enabled")) return;
  out.unsupported(kSection, "this file asks for a search, not for a run",
                  "`dsj tune JOB.yaml` searches; to train, set \"enabled\" to false");
}

}  // namespace dsj::dsconfig
