#include "job/import/launcher.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "common/json.h"
#include "common/text.h"
#include "job/import/accelerate.h"
#include "job/import/hostfile.h"
#include "job/import/recipe.h"
#include "job/import/swift.h"
#include "job/import/trl.h"
#include "job/spec/job.h"
#include "job/spec/yaml.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

/// Launcher options by name, dashes as underscores; true: a value follows.
using Options = std::map<std::string, bool>;

/// "NAME NAME= ...": a value follows those with "=".
Options options_from(const std::string& names) {
  Options options;
  std::istringstream in(names);
  for (std::string name; in >> name;) {
    const bool takes_value = name.ends_with('=');
    if (takes_value) name.pop_back();
    options[name] = takes_value;
  }
  return options;
}

const Options& options_of(Launcher launcher) {
  static const Options torchrun = options_from(
      "nproc_per_node= nnodes= node_rank= rdzv_backend= rdzv_endpoint= rdzv_id= rdzv_conf= "
      "standalone max_restarts= monitor_interval= start_method= role= m module no_python "
      "run_path log_dir= r= redirects= t= tee= master_addr= master_port= local_addr= "
      "local_ranks_filter= use_env logs_specs=");
  static const Options deepspeed = options_from(
      "h= hostfile= i= include= e= exclude= num_nodes= num_gpus= min_elastic_nodes= "
      "max_elastic_nodes= master_port= master_addr= node_rank= launcher= launcher_args= m "
      "module no_python no_local_rank no_ssh_check force_multi save_pid "
      "enable_each_rank_log= autotuning= elastic_training bind_cores_to_rank "
      "bind_core_list= ssh_port= venv_script= no_ssh log_level=");
  static const Options accelerate = options_from(
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
      "use_parallelism_config= parallelism_config_dp_replicate_size= "
      "parallelism_config_dp_shard_size= parallelism_config_tp_size= parallelism_config_cp_size= "
      "parallelism_config_cp_backend= parallelism_config_cp_comm_strategy= "
      "parallelism_config_sp_size= parallelism_config_sp_backend= "
      "parallelism_config_sp_seq_length= parallelism_config_sp_seq_length_is_variable= "
      "parallelism_config_sp_attn_implementation=");
  if (launcher == Launcher::Accelerate || launcher == Launcher::Trl) return accelerate;
  return launcher == Launcher::Torchrun ? torchrun : deepspeed;
}

/// A line taken apart.
struct Line {
  std::map<std::string, std::string> options;  ///< of the launcher; switches are ""
  std::string script;
  std::vector<std::string> arguments;  ///< of the script
  std::vector<std::string> unknown;    ///< variables in the place of options
};

/// "$NAME", "${NAME}", "${NAME[@]}" or "$(...)" as a whole word: what it holds is known to a run only.
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

/// The word behind `trl` names the script, and accelerate's options stand among its arguments.
Result<Line> take_trl_apart(const std::vector<std::string>& words, size_t first,
                            const std::string& origin) {
  if (first >= words.size() || words[first].starts_with("-"))
    return bad_input("the line ends before TRL's command", origin,
                     "trl sft --model_name_or_path ...");
  return Line{.script = "trl/scripts/" + words[first] + ".py",
              .arguments = {words.begin() + static_cast<ptrdiff_t>(first) + 1, words.end()}};
}

/// `swift sft`, with the ranks that ms-swift's own launch reads from the environment.
Result<Line> take_swift_apart(const std::vector<std::string>& words, size_t first,
                              const std::map<std::string, std::string>& environment) {
  Line line{.script = "swift/cli/" + words[first] + ".py",
            .arguments = {words.begin() + static_cast<ptrdiff_t>(first) + 1, words.end()}};
  for (const auto& [name, option] :
       {std::pair{"NPROC_PER_NODE", "nproc_per_node"}, std::pair{"NNODES", "nnodes"}})
    if (const auto found = environment.find(name); found != environment.end())
      line.options[option] = found->second;
  return line;
}

std::string option_name(const std::string& word) {
  std::string name = word.substr(0, word.find('='));
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  // -H is a hostfile's, -h would be help: both launchers' other letters are lower case.
  if (name.size() == 1) return name == "H" ? "h" : name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Result<Line> take_apart(const std::vector<std::string>& words, size_t first, Launcher launcher,
                        const std::string& origin) {
  const Options& options = options_of(launcher);
  Line line;
  size_t i = first;
  for (; i < words.size(); ++i) {
    // A variable in front of the script holds options; in front of the script's arguments it is the
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

std::optional<int> whole(const std::string& text) {
  const auto value = text::parse_int(text);
  if (!value || *value < 1 || *value > 65'536) return std::nullopt;
  return static_cast<int>(*value);
}

class LineImport {
 public:
  LineImport(Files& files, const Line& line, const std::string& origin)
      : files_(files), line_(line) {
    imported_.origin = origin;
  }

  Result<Imported> run(Launcher launcher) {
    is_trl_ = launcher == Launcher::Trl;
    const bool torchrun_options = launcher == Launcher::Torchrun || launcher == Launcher::Swift;
    DSJ_TRY_STATUS(torchrun_options                  ? torchrun()
                   : launcher == Launcher::DeepSpeed ? deepspeed()
                                                     : Status{});
    const auto command = swift_command(line_.script);
    if (!command) DSJ_TRY_STATUS(arguments_of_file());
    if (launcher == Launcher::Trl) DSJ_TRY_STATUS(trl_options());
    if (launcher == Launcher::Accelerate || launcher == Launcher::Trl) DSJ_TRY_STATUS(accelerate());
    if (command) DSJ_TRY_STATUS(swift(*command));
    // The script's own --num_gpus or --nproc_per_node would be taken for the launcher's.
    DSJ_TRY(auto taken, jobspec::manifest_from_arguments(line_.arguments, true));
    imported_.manifest = std::move(taken.manifest);
    for (const auto& finding : taken.findings)
      imported_.not_carried.push_back(sentence_of(finding));
    json& spec = imported_.manifest["spec"];
    if (spec.contains("workers"))
      imported_.not_carried.push_back("the script's own number of ranks: the launcher's counts");
    spec["workers"] = workers_;
    if (restarts_) spec["backoffLimit"] = *restarts_;
    if (!spec.contains("deepspeed") && !swift_config_.is_null())
      spec["deepspeed"] = {{"config", swift_config_}};
    if (!settings_.is_null()) take_settings(spec);
    json training = spec.value("training", json::object());
    if (training.is_null()) training = json::object();
    DSJ_TRY_STATUS(take_trainer(training));
    spec["training"] = training;
    if (!training.contains("modelNameOrPath"))
      need("spec.training.modelNameOrPath", "the line has no --model_name_or_path");
    if (!training.contains("dataPath") && !command) need("spec.training.dataPath", why_no_data());
    if (!spec.contains("deepspeed"))
      need("spec.deepspeed.configFrom.file", "the line has no --deepspeed FILE");
    for (const auto& [name, value] : line_.options)
      imported_.not_carried.push_back("the launcher's --" + name +
                                      (value.empty() ? "" : " " + value) +
                                      ": the agent does this itself");
    for (const std::string& variable : line_.unknown)
      imported_.left_open.push_back("the launcher's " + variable +
                                    ": its options are not known here");
    imported_.not_carried.push_back(line_.script + ": the engine trains by itself");
    for (const char* field : {"modelNameOrPath", "dataPath", "outputDir"})
      if (const std::string text = training.value(field, std::string());
          text.find('$') != std::string::npos)
        imported_.left_open.push_back(std::string("spec.training.") + field + ": " + text);
    return std::move(imported_);
  }

 private:
  void need(const std::string& path, const std::string& why) {
    imported_.missing.push_back({path, why});
  }
  std::string why_no_data() const {
    for (const std::string& word : line_.arguments)
      if (option_name(word) == "dataset_name")
        return "--dataset_name is a data set of the hub, and no data set is downloaded";
    return "the line has no --data_path";
  }
  /// What the script's name says: TRL's scripts are called as their trainers.
  Status take_trainer(json& training) {
    const std::string name = base_name(line_.script);
    if (!name.ends_with(".py")) return {};
    DSJ_TRY(const auto trainer, trl_trainer(name.substr(0, name.size() - 3)));
    if (!trainer && is_trl_)
      return bad_input("not a training command of TRL", name.substr(0, name.size() - 3),
                       "sft, dpo, kto, orpo or reward");
    if (!trainer) return {};
    if (!trainer->objective.empty() && !training.contains("objective")) {
      training["objective"] = trainer->objective;
      if (!is_trl_)
        imported_.left_open.push_back("spec.training.objective: " + trainer->objective +
                                      ", from the script's name " + name);
    }
    if (!is_trl_ && !is_script_of_trl(line_.script)) return {};
    if (const std::string filled = fill_trl_defaults(*trainer, training); !filled.empty())
      imported_.left_open.push_back("TRL's defaults: " + filled);
    return {};
  }
  /// ms-swift's arguments become the line's.
  Status swift(const std::string& command) {
    const int64_t ranks = workers_.value("replicas", 1) * workers_.value("slotsPerWorker", 1);
    DSJ_TRY(SwiftArguments taken, swift_arguments(files_, command, line_.arguments, ranks));
    line_.arguments = std::move(taken.line);
    swift_config_ = std::move(taken.ds_config);
    std::ranges::move(taken.missing, std::back_inserter(imported_.missing));
    std::ranges::move(taken.left_open, std::back_inserter(imported_.left_open));
    std::ranges::move(taken.not_carried, std::back_inserter(imported_.not_carried));
    return {};
  }
  /// Moves accelerate's options out of TRL's arguments. What the trainer has under the same name is its.
  Status trl_options() {
    std::vector<std::string> rest;
    for (size_t i = 0; i < line_.arguments.size(); ++i) {
      const std::string& word = line_.arguments[i];
      const std::string name = word.starts_with("--") ? option_name(word) : "";
      const bool of_trainer =
          name == "gradient_accumulation_steps" || name == "debug" || name == "log_dir";
      const auto known = options_of(Launcher::Trl).find(name);
      const bool config = name == "accelerate_config";
      if (!config && (of_trainer || known == options_of(Launcher::Trl).end())) {
        rest.push_back(word);
        continue;
      }
      const size_t equals = word.find('=');
      std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
      if (equals == std::string::npos && (config || known->second)) {
        if (i + 1 >= line_.arguments.size())
          return bad_input("a value is missing after " + word, imported_.origin);
        value = line_.arguments[++i];
      }
      line_.options[name] = value;
    }
    line_.arguments = std::move(rest);
    const auto config = option("accelerate_config");
    if (!config) return {};
    DSJ_TRY(const bool is_file, files_.exists(*config));
    if (is_file) {
      line_.options["config_file"] = *config;
    } else {
      DSJ_TRY(settings_, trl_accelerate_config(*config));
    }
    return {};
  }
  /// TRL's --config FILE.yaml, and Trainer's only argument FILE.yaml or FILE.json: its keys become
  /// arguments in front of the line's own.
  Status arguments_of_file() {
    auto& words = line_.arguments;
    const auto is_file = [](const std::string& word) {
      return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
    };
    size_t at = 0, count = 0;
    std::string path;
    if (words.size() == 1 && is_file(words[0]) && !words[0].starts_with("-")) {
      path = words[0];
      count = 1;
    }
    for (size_t i = 0; i < words.size() && path.empty(); ++i) {
      const bool joined = words[i].starts_with("--config=");
      if (!joined && (words[i] != "--config" || i + 1 >= words.size())) continue;
      path = joined ? words[i].substr(9) : words[i + 1];
      at = i;
      count = joined ? 1 : 2;
    }
    if (!is_file(path)) return {};
    DSJ_TRY(const std::string text, files_.read_all(path, 1 << 20));
    DSJ_TRY(const auto document, jobspec::parse_yaml(text, path, jobspec::Dialect::Omega));
    if (!document.value.is_object()) return bad_input("expected arguments and values", path);
    if (const auto kind = recipe_kind(document.value); kind && path == line_.arguments[0])
      return bad_input("is a file of " + *kind, path,
                       "dsj import " + *kind + " " + path + " reads it");
    words.erase(words.begin() + static_cast<ptrdiff_t>(at),
                words.begin() + static_cast<ptrdiff_t>(at + count));
    std::vector<std::string> named;
    for (const auto& [key, value] : document.value.items())
      if (!value.is_null()) named.push_back("--" + key + "=" + argument_word(value));
    words.insert(words.begin(), named.begin(), named.end());
    return {};
  }
  /// Takes an option out of the line; what stays is reported as not carried over.
  std::optional<std::string> option(const std::string& name) {
    auto node = line_.options.extract(name);
    if (node.empty()) return std::nullopt;
    return node.mapped();
  }

  Status torchrun() {
    const std::string nodes = option("nnodes").value_or("1");
    const size_t colon = nodes.find(':');
    const auto least = whole(nodes.substr(0, colon));
    const auto most = colon == std::string::npos ? least : whole(nodes.substr(colon + 1));
    if (least && most) {
      workers_["replicas"] = *most;
      if (*least != *most) {
        workers_["minReplicas"] = *least;
        workers_["maxReplicas"] = *most;
      }
    } else {
      need("spec.workers.replicas", "--nnodes " + nodes + " is not a number");
    }
    const std::string ranks = option("nproc_per_node").value_or("1");
    if (const auto count = whole(ranks))
      workers_["slotsPerWorker"] = *count;
    else
      need("spec.workers.slotsPerWorker", "--nproc_per_node " + ranks + " is not a number");
    if (const auto restarts = option("max_restarts")) {
      const auto count = text::parse_int(*restarts);
      if (count && *count >= 0 && *count <= 65'536)
        restarts_ = *count;
      else
        imported_.not_carried.push_back("--max_restarts " + *restarts + ": no number");
    }
    for (const char* quiet : {"node_rank", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "standalone",
                              "master_addr", "master_port", "use_env"})
      option(quiet);  // the agent hosts the rendezvous: nothing is lost
    return {};
  }

  /// accelerate's number of processes is that of all machines.
  Status accelerate() {
    DSJ_TRY(const json said, accelerate_settings(files_, line_.options));
    if (settings_.is_null()) settings_ = json::object();
    settings_.update(said);
    for (const char* quiet :
         {"quiet", "q", "machine_rank", "main_process_ip", "main_process_port", "rdzv_backend",
          "same_network", "zero3_init_flag", "num_cpu_threads_per_process",
          "use_parallelism_config", "parallelism_config_cp_backend",
          "parallelism_config_cp_comm_strategy", "parallelism_config_sp_seq_length",
          "parallelism_config_sp_seq_length_is_variable",
          "parallelism_config_sp_attn_implementation"})
      option(quiet);
    const auto count = [&](const char* name) -> std::optional<int64_t> {
      const auto value = json_whole(settings_, name);
      return value && *value >= 1 && *value <= 65'536 ? value : std::nullopt;
    };
    const int64_t machines = count("num_machines").value_or(1);
    workers_["replicas"] = machines;
    const auto processes = count("num_processes");
    if (processes && *processes % machines == 0)
      workers_["slotsPerWorker"] = *processes / machines;
    else
      need("spec.workers.slotsPerWorker",
           processes ? std::to_string(*processes) + " processes are not a multiple of " +
                           std::to_string(machines) + " machines"
                     : "without num_processes it is the machine's devices");
    if (const auto restarts = json_whole(settings_, "max_restarts");
        restarts && *restarts >= 0 && *restarts <= 65'536)
      restarts_ = restarts;
    return {};
  }

  /// What accelerate's settings say of the ds_config, if the script's arguments name none, and of the
  /// precision. FSDP and Megatron have no counterpart that computes the same.
  void take_settings(json& spec) {
    const std::string type = json_text(settings_, "distributed_type");
    if (type == "FSDP" || type == "MEGATRON_LM" || type == "TPU" || type == "XLA") {
      if (!spec.contains("deepspeed"))
        need("spec.deepspeed.configFrom.file",
             "the line trains with " + type + ", which is not DeepSpeed: name a ds_config");
      return;
    }
    if (!spec.contains("deepspeed")) {
      if (const std::string file = json_text(settings_, "deepspeed_config_file"); !file.empty()) {
        spec["deepspeed"] = {{"configFrom", {{"file", file}}}};
        if (const int64_t ranks = sequence_ranks(settings_); ranks > 1)
          imported_.not_carried.push_back("parallelism_config_sp_size " + std::to_string(ranks) +
                                          ": write sequence_parallel_size into " + file);
      } else {
        json settings = settings_;
        if (type != "DEEPSPEED") settings["zero_stage"] = 0;
        spec["deepspeed"] = {{"config", accelerate_ds_config(settings)}};
        if (type != "DEEPSPEED")
          imported_.left_open.push_back(
              "spec.deepspeed.config: the line does not use DeepSpeed; ZeRO stage 0 is data "
              "parallelism");
      }
    }
    for (std::string& left : parallelism_left_out(settings_))
      imported_.not_carried.push_back(std::move(left));
    const std::string precision = json_text(settings_, "mixed_precision");
    json& training = spec["training"];
    if ((precision == "bf16" || precision == "fp16") && !training.contains("bf16") &&
        !training.contains("fp16"))
      training[precision] = true;
    else if (precision == "fp8")
      imported_.not_carried.push_back("mixed_precision fp8: not built");
  }

  Status deepspeed() {
    const std::string include = option("include").value_or("");
    const std::string exclude = option("exclude").value_or("");
    const auto nodes_text = option("num_nodes"), ranks_text = option("num_gpus");
    const int nodes = whole(nodes_text.value_or("")).value_or(0);  // 0: not said
    const int ranks = whole(ranks_text.value_or("")).value_or(0);
    for (const char* quiet : {"master_addr", "master_port", "no_local_rank", "launcher"})
      option(quiet);
    std::vector<Host> hosts;
    if (const auto path = option("hostfile")) {
      DSJ_TRY(const std::string text, files_.read_all(*path, 1 << 20));
      DSJ_TRY(hosts, parse_hostfile(text, *path));
    } else if (!include.empty() && include.find('@') == std::string::npos && exclude.empty()) {
      DSJ_TRY(hosts, one_host(include));
    }
    if (hosts.empty()) {  // this machine: as many as it has, unless it is said
      if (!exclude.empty())
        return bad_input("--exclude without a hostfile depends on the machine's devices",
                         imported_.origin, "give --num_gpus");
      if (ranks > 0)
        workers_["slotsPerWorker"] = ranks;
      else
        need("spec.workers.slotsPerWorker",
             ranks_text ? "--num_gpus " + *ranks_text + " is not a number"
                        : "without --num_gpus or a hostfile it is the machine's devices");
      if (nodes_text && nodes == 0)
        need("spec.workers.replicas", "--num_nodes " + *nodes_text + " is not a number");
      else
        workers_["replicas"] = std::max(nodes, 1);
      return {};
    }
    DSJ_TRY(hosts, filter(hosts, include, exclude));
    if (nodes > 0 && static_cast<size_t>(nodes) < hosts.size())
      hosts.resize(static_cast<size_t>(nodes));
    for (Host& host : hosts)
      if (ranks > 0 && static_cast<size_t>(ranks) < host.slots.size())
        host.slots.resize(static_cast<size_t>(ranks));
    const auto workers = workers_of(hosts, imported_.origin);
    workers_["replicas"] = hosts.size();
    if (workers)
      workers_["slotsPerWorker"] = workers->slots;
    else
      need("spec.workers.slotsPerWorker", workers.error().to_string());
    return {};
  }

  /// --include localhost:0,1 without a hostfile: the slots named, no others are known.
  static Result<std::vector<Host>> one_host(const std::string& include) {
    Host host{.name = include.substr(0, include.find(':'))};
    const size_t colon = include.find(':');
    if (colon == std::string::npos) return std::vector<Host>();
    for (size_t at = colon + 1; at <= include.size();) {
      const size_t comma = std::min(include.find(',', at), include.size());
      const auto slot = text::parse_int(include.substr(at, comma - at));
      if (!slot || *slot < 0 || *slot > 65'536)
        return bad_input("expected HOST:SLOT,SLOT, found \"" + include + "\"", "--include");
      host.slots.push_back(static_cast<int>(*slot));
      at = comma + 1;
    }
    return std::vector<Host>{host};
  }

  Files& files_;
  Line line_;
  Imported imported_;
  json workers_ = json::object();
  json settings_;      ///< of accelerate; null: another launcher
  json swift_config_;  ///< SwiftArguments::ds_config
  bool is_trl_ = false;
  std::optional<int64_t> restarts_;
};

}  // namespace

int find_launcher(const std::vector<std::string>& words, Launcher launcher) {
  // Behind srun or docker run the line follows their own options, whose values are any words.
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

Result<Imported> import_line(Files& files, const std::vector<std::string>& words, Launcher launcher,
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
  DSJ_TRY(const Line line, launcher == Launcher::Trl ? take_trl_apart(words, first, origin)
                           : launcher == Launcher::Swift
                               ? take_swift_apart(words, first, environment)
                               : take_apart(words, first, launcher, origin));
  return LineImport(files, line, origin).run(launcher);
}

Result<Imported> import_script(Files& files, const Script& script, Launcher launcher,
                               const std::string& origin) {
  const Command* chosen = nullptr;
  std::vector<std::string> others;
  // A line that always runs comes before one that a condition, loop or function decides about.
  for (const auto* commands : {&script.commands, &script.conditional}) {
    for (const Command& command : *commands) {
      if (find_launcher(command.words, launcher) < 0) continue;
      if (chosen == nullptr)
        chosen = &command;
      else
        others.push_back("line " + std::to_string(command.line) + ": another launch");
    }
  }
  if (chosen == nullptr) {
    std::string notes;
    for (const std::string& note : script.notes) notes += (notes.empty() ? "" : "; ") + note;
    const std::string hint = "is it this launcher's script? The line itself can be given behind --";
    return bad_input("no line of the launcher is found", origin,
                     notes.empty() ? hint : notes + "; " + hint);
  }
  DSJ_TRY(Imported imported,
          import_line(files, chosen->words, launcher, origin + ":" + std::to_string(chosen->line),
                      chosen->environment));
  imported.not_carried.insert(imported.not_carried.end(), others.begin(), others.end());
  imported.left_open.insert(imported.left_open.end(), script.notes.begin(), script.notes.end());
  if (std::ranges::any_of(script.conditional, [&](const Command& one) { return &one == chosen; }))
    imported.left_open.push_back("line " + std::to_string(chosen->line) +
                                 ": a condition, loop or function decides whether this line runs");
  return imported;
}

Result<Imported> import_hostfile(const std::string& text, const std::string& source) {
  DSJ_TRY(const std::vector<Host> hosts, parse_hostfile(text, source));
  Imported imported{.origin = source + " (hostfile)"};
  const auto workers = workers_of(hosts, source);
  json fields = {{"replicas", hosts.size()}};
  if (workers)
    fields["slotsPerWorker"] = workers->slots;
  else
    imported.missing.push_back({"spec.workers.slotsPerWorker", workers.error().to_string()});
  imported.manifest = {{"apiVersion", jobspec::kApiVersion},
                       {"kind", jobspec::kKind},
                       {"metadata", {{"name", "imported"}}},
                       {"spec",
                        {{"deepspeed", {{"config", {{"train_micro_batch_size_per_gpu", "auto"}}}}},
                         {"training",
                          {{"modelNameOrPath", "./name-your-model"},
                           {"dataPath", "./name-your-data.jsonl"},
                           {"outputDir", "./output"}}},
                         {"workers", fields}}}};
  imported.left_open = {"a hostfile names hosts and slots only: model, data, ds_config are yours",
                        "the hosts' names: a job's workers are numbered"};
  return imported;
}

}  // namespace dsj::jobimport
