#include "cli/import/accelerate.h"

#include "common/json.h"
#include "common/text.h"
#include "job/spec/yaml.h"

namespace dsj::jobimport {

using nlohmann::json;

namespace {

const std::string kParallelism = "parallelism_config_";
const std::string kFsdp = "fsdp_";
constexpr const char* kSizes[] = {"sp_size", "sp_backend",        "tp_size",
                                  "cp_size", "dp_replicate_size", "dp_shard_size"};

json typed(const json& value) {
  if (!value.is_string()) return value;
  const std::string text = value.get<std::string>();
  if (const auto whole = text::parse_int(text)) return *whole;
  if (const auto number = text::parse_double(text)) return *number;
  if (text == "true" || text == "True") return true;
  if (text == "false" || text == "False") return false;
  return value;
}

}  // namespace

Result<json> accelerate_settings(Files& files, std::map<std::string, std::string>& options) {
  json settings = json::object();
  if (const auto path = options.extract("config_file"); !path.empty()) {
    DSJ_TRY(const std::string text, files.read_all(path.mapped(), 1 << 20));
    DSJ_TRY(const auto document, jobspec::parse_yaml(text, path.mapped(), jobspec::Dialect::Omega));
    if (!document.value.is_object())
      return bad_input("expected keys and values", path.mapped(),
                       "is it accelerate's config file?");
    settings = document.value;
    if (const json inner = json_child(settings, "deepspeed_config"); inner.is_object()) {
      settings.erase("deepspeed_config");
      settings.update(inner);
    }
    // `accelerate config` prefixes the names with that of the section; the prefix is optional.
    if (const json inner = json_child(settings, "parallelism_config"); inner.is_object()) {
      settings.erase("parallelism_config");
      for (const auto& [name, value] : inner.items())
        settings[name.starts_with(kParallelism) ? name : kParallelism + name] = value;
    }
  }
  for (const char* name : kSizes)
    if (auto option = options.extract(kParallelism + name); !option.empty())
      settings[kParallelism + name] = option.mapped();
  while (true) {
    const auto at = options.lower_bound(kFsdp);
    if (at == options.end() || !at->first.starts_with(kFsdp)) break;
    settings["fsdp_config"][at->first] = at->second;
    options.erase(at);
  }
  for (const char* name :
       {"num_processes", "num_machines", "mixed_precision", "deepspeed_config_file", "zero_stage",
        "offload_optimizer_device", "offload_param_device", "offload_optimizer_nvme_path",
        "offload_param_nvme_path", "gradient_accumulation_steps", "gradient_clipping",
        "zero3_save_16bit_model", "max_restarts"})
    if (auto option = options.extract(name); !option.empty()) settings[name] = option.mapped();
  for (const auto& [option, type] : {std::pair{"use_deepspeed", "DEEPSPEED"},
                                     {"use_fsdp", "FSDP"},
                                     {"use_megatron_lm", "MEGATRON_LM"},
                                     {"multi_gpu", "MULTI_GPU"}})
    if (!options.extract(option).empty()) settings["distributed_type"] = type;
  for (auto& [name, value] : settings.items()) value = typed(value);
  return settings;
}

json accelerate_ds_config(const json& settings) {
  const auto said = [&](const std::string& name, json otherwise) {
    const json& value = json_child(settings, name.c_str());
    return value.is_null() ? otherwise : value;
  };
  json zero = {{"stage", said("zero_stage", 2)}};
  for (const std::string part : {"offload_optimizer", "offload_param"}) {
    const json device = said(part + "_device", "none");
    if (device == "none") continue;
    zero[part] = {{"device", device}};
    if (device == "nvme") zero[part]["nvme_path"] = said(part + "_nvme_path", json());
  }
  if (json_flag(settings, "zero3_save_16bit_model"))
    zero["stage3_gather_16bit_weights_on_model_save"] = true;
  json config = {{"train_batch_size", "auto"},
                 {"train_micro_batch_size_per_gpu", "auto"},
                 {"gradient_accumulation_steps", said("gradient_accumulation_steps", "auto")},
                 {"gradient_clipping", said("gradient_clipping", "auto")},
                 {"zero_optimization", zero},
                 {"zero_allow_untested_optimizer", true},
                 {"fp16", {{"enabled", "auto"}}},
                 {"bf16", {{"enabled", "auto"}}}};
  if (const int64_t ranks = sequence_ranks(settings); ranks > 1)
    config["sequence_parallel_size"] = ranks;
  return config;
}

int64_t sequence_ranks(const json& settings) {
  const std::string backend = json_text(settings, (kParallelism + "sp_backend").c_str());
  if (!backend.empty() && backend != "deepspeed") return 1;
  return json_whole(settings, (kParallelism + "sp_size").c_str()).value_or(1);
}

std::vector<std::string> parallelism_left_out(const json& settings) {
  std::vector<std::string> left;
  for (const auto& [name, what] : {std::pair{"tp_size", "tensor parallelism"},
                                   {"cp_size", "context parallelism (ring attention)"},
                                   {"sp_size", "sequence parallelism of another backend"}}) {
    const auto size = json_whole(settings, (kParallelism + name).c_str());
    const bool carried = std::string(name) == "sp_size" && sequence_ranks(settings) > 1;
    if (size.value_or(1) > 1 && !carried)
      left.push_back(kParallelism + name + " " + std::to_string(*size) + ": " + what +
                     " is not built");
  }
  return left;
}

}  // namespace dsj::jobimport
