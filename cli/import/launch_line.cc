#include "cli/import/launch_line.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "cli/import/swift.h"

namespace dsj::jobimport {
namespace {

/// Parses "NAME NAME= ...": options with "=" take a value.
LauncherOptions options_from(const std::string& names) {
  LauncherOptions options;
  std::istringstream in(names);
  for (std::string name; in >> name;) {
    const bool takes_value = name.ends_with('=');
    if (takes_value) name.pop_back();
    options[name] = takes_value;
  }
  return options;
}
/// Whether the word is "$NAME", "${NAME}", "${NAME[@]}" or "$(...)", unknown before a run.
bool is_unknown_variable(const std::string& word) {
  if (!word.starts_with("$") || word.size() < 2) return false;
  if (word[1] == '(') return word.ends_with(")");
  if (word[1] == '{') return word.find('}') == word.size() - 1;
  return std::ranges::all_of(word.substr(1),
                             [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

std::string base_name(const std::string& word) {
  return std::filesystem::path(word).filename().string();
}

/// The word after `trl` names the script; accelerate's options are among its arguments.
Result<LaunchLine> take_trl_apart(const std::vector<std::string>& words, size_t first,
                                  const std::string& origin) {
  if (first >= words.size() || words[first].starts_with("-"))
    return bad_input("the line ends before TRL's command", origin,
                     "trl sft --model_name_or_path ...");
  return LaunchLine{.script = "trl/scripts/" + words[first] + ".py",
                    .arguments = {words.begin() + static_cast<ptrdiff_t>(first) + 1, words.end()}};
}

/// Parses `swift sft`, with the number of ranks from the environment, as ms-swift does.
Result<LaunchLine> take_swift_apart(const std::vector<std::string>& words, size_t first,
                                    const std::map<std::string, std::string>& environment) {
  LaunchLine line{.script = "swift/cli/" + words[first] + ".py",
                  .arguments = {words.begin() + static_cast<ptrdiff_t>(first) + 1, words.end()}};
  for (const auto& [name, option] :
       {std::pair{"NPROC_PER_NODE", "nproc_per_node"}, std::pair{"NNODES", "nnodes"}})
    if (const auto found = environment.find(name); found != environment.end())
      line.options[option] = found->second;
  return line;
}
Result<LaunchLine> take_apart(const std::vector<std::string>& words, size_t first,
                              Launcher launcher, const std::string& origin) {
  const LauncherOptions& options = launcher_options(launcher);
  LaunchLine line;
  size_t i = first;
  for (; i < words.size(); ++i) {
    // A variable before the script holds options; before the script's arguments it is the
    // script.
    const bool more = i + 1 < words.size() && (!words[i + 1].starts_with("-") ||
                                               options.contains(option_name(words[i + 1])));
    if (more && is_unknown_variable(words[i])) {
      line.unknown.push_back(words[i]);
      continue;
    }
    if (!words[i].starts_with("-")) break;
    const std::string name = option_name(words[i]);
    const auto known = options.find(name);
    if (known == options.end())
      return bad_input("not an option of the launcher: " + words[i], origin,
                       "the script's own arguments come after its name");
    const size_t equals = words[i].find('=');
    if (equals != std::string::npos) {
      line.options[name] = words[i].substr(equals + 1);
    } else if (known->second) {
      if (i + 1 >= words.size()) return bad_input("a value is missing after " + words[i], origin);
      line.options[name] = words[++i];
    } else {
      line.options[name] = "";
    }
  }
  static const std::pair<const char*, const char*> kShort[] = {
      {"h", "hostfile"}, {"i", "include"}, {"e", "exclude"}, {"m", "module"}};
  for (const auto& [letter, name] : kShort) {
    if (auto option = line.options.extract(letter); !option.empty()) {
      option.key() = name;
      line.options.insert(std::move(option));
    }
  }
  if (i >= words.size())
    return bad_input("the line ends before the script's name", origin,
                     "a line continues after a backslash only");
  line.script = words[i];
  line.arguments.assign(words.begin() + static_cast<ptrdiff_t>(i) + 1, words.end());
  return line;
}

}  // namespace

const LauncherOptions& launcher_options(Launcher launcher) {
  static const LauncherOptions torchrun = options_from(
      "nproc_per_node= nnodes= node_rank= rdzv_backend= rdzv_endpoint= rdzv_id= rdzv_conf= "
      "standalone max_restarts= monitor_interval= start_method= role= m module no_python "
      "run_path log_dir= r= redirects= t= tee= master_addr= master_port= local_addr= "
      "local_ranks_filter= use_env logs_specs=");
  static const LauncherOptions deepspeed = options_from(
      "h= hostfile= i= include= e= exclude= num_nodes= num_gpus= min_elastic_nodes= "
      "max_elastic_nodes= master_port= master_addr= node_rank= launcher= launcher_args= m "
      "module no_python no_local_rank no_ssh_check force_multi save_pid "
      "enable_each_rank_log= autotuning= elastic_training bind_cores_to_rank "
      "bind_core_list= ssh_port= venv_script= no_ssh log_level=");
  static const LauncherOptions accelerate = options_from(
      "config_file= quiet q cpu multi_gpu mixed_precision= num_processes= num_machines= "
      "num_cpu_threads_per_process= enable_cpu_affinity dynamo_backend= dynamo_mode= "
      "dynamo_use_fullgraph dynamo_use_dynamic use_deepspeed use_fsdp use_megatron_lm "
      "gpu_ids= same_network machine_rank= main_process_ip= main_process_port= tee= "
      "log_dir= role= rdzv_backend= rdzv_conf= max_restarts= monitor_interval= m module "
      "no_python main_training_function= downcast_bf16 deepspeed_config_file= zero_stage= "
      "offload_optimizer_device= offload_param_device= offload_optimizer_nvme_path= "
      "offload_param_nvme_path= gradient_accumulation_steps= gradient_clipping= "
      "zero3_init_flag= zero3_save_16bit_model= deepspeed_hostfile= "
      "deepspeed_exclusion_filter= deepspeed_inclusion_filter= "
      "deepspeed_multinode_launcher= deepspeed_moe_layer_cls_names= debug "
      "fsdp_version= fsdp_offload_params= fsdp_min_num_params= fsdp_sharding_strategy= "
      "fsdp_reshard_after_forward= fsdp_auto_wrap_policy= fsdp_transformer_layer_cls_to_wrap= "
      "fsdp_backward_prefetch= fsdp_state_dict_type= fsdp_forward_prefetch= fsdp_use_orig_params= "
      "fsdp_cpu_ram_efficient_loading= fsdp_sync_module_states= fsdp_activation_checkpointing= "
      "use_parallelism_config= parallelism_config_dp_replicate_size= "
      "parallelism_config_dp_shard_size= parallelism_config_tp_size= parallelism_config_cp_size= "
      "parallelism_config_cp_backend= parallelism_config_cp_comm_strategy= "
      "parallelism_config_sp_size= parallelism_config_sp_backend= "
      "parallelism_config_sp_seq_length= parallelism_config_sp_seq_length_is_variable= "
      "parallelism_config_sp_attn_implementation=");
  if (launcher == Launcher::Accelerate || launcher == Launcher::Trl) return accelerate;
  return launcher == Launcher::Torchrun ? torchrun : deepspeed;
}

std::string option_name(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  // -H is the hostfile, -h would be help; all other one-letter options are lower case.
  if (name.size() == 1) return name == "H" ? "h" : name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

int find_launcher(const std::vector<std::string>& words, Launcher launcher) {
  // After srun or docker run the line follows their options, whose values can be any words.
  static constexpr std::string_view kWrappers[] = {
      "srun",   "docker",  "podman",  "singularity", "apptainer", "enroot",  "uv",
      "poetry", "numactl", "taskset", "conda",       "stdbuf",    "timeout", "ssh"};
  const bool wrapped =
      !words.empty() && std::ranges::find(kWrappers, base_name(words[0])) != std::end(kWrappers);
  const size_t last = wrapped ? 64 : 8;
  for (size_t i = 0; i < words.size() && i < last; ++i) {
    const std::string name = base_name(words[i]);
    const bool module = i > 0 && words[i - 1] == "-m";
    if (launcher == Launcher::Trl) {
      if (name == "trl") return static_cast<int>(i);
    } else if (launcher == Launcher::Swift) {
      if (name == "swift" && i + 1 < words.size() &&
          swift_command("swift/cli/" + words[i + 1] + ".py"))
        return static_cast<int>(i);
    } else if (launcher == Launcher::Accelerate) {
      if ((name == "accelerate" && i + 1 < words.size() && words[i + 1] == "launch"))
        return static_cast<int>(i + 1);
      if (name == "accelerate-launch" || (module && words[i] == "accelerate.commands.launch"))
        return static_cast<int>(i);
    } else if (launcher == Launcher::DeepSpeed) {
      if (name == "deepspeed" || name == "deepspeed.py" ||
          (module && (words[i] == "deepspeed.launcher.runner" || words[i] == "deepspeed")))
        return static_cast<int>(i);
    } else if (name == "torchrun" || (module && (words[i] == "torch.distributed.run" ||
                                                 words[i] == "torch.distributed.launch"))) {
      return static_cast<int>(i);
    }
    const bool python = name.starts_with("python") || words[i].starts_with("-") ||
                        words[i].find('=') != std::string::npos;
    if (!python && !wrapped) return -1;
  }
  return -1;
}

Result<LaunchLine> take_line_apart(const std::vector<std::string>& words, Launcher launcher,
                                   const std::string& origin,
                                   std::map<std::string, std::string> environment) {
  const int at = find_launcher(words, launcher);
  if (at < 0)
    return bad_input(
        "not a line of " + std::string(launcher == Launcher::Torchrun
                                           ? "torchrun (python -m torch.distributed.run)"
                                       : launcher == Launcher::DeepSpeed ? "deepspeed"
                                       : launcher == Launcher::Trl       ? "trl"
                                       : launcher == Launcher::Swift     ? "swift sft, pt or rlhf"
                                                                         : "accelerate launch"),
        origin);
  const auto first = static_cast<size_t>(at) + 1;
  for (size_t i = 0; i + 1 < first; ++i)
    if (const size_t equals = words[i].find('='); equals != std::string::npos)
      environment[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  auto line = launcher == Launcher::Trl     ? take_trl_apart(words, first, origin)
              : launcher == Launcher::Swift ? take_swift_apart(words, first, environment)
                                            : take_apart(words, first, launcher, origin);
  const auto visible = environment.find("CUDA_VISIBLE_DEVICES");
  if (line && visible != environment.end()) line->visible_devices = visible->second;
  return line;
}

}  // namespace dsj::jobimport
