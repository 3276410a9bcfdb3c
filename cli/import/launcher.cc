#include "cli/import/launcher.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>

#include "cli/import/accelerate.h"
#include "cli/import/hostfile.h"
#include "cli/import/recipe.h"
#include "cli/import/swift.h"
#include "cli/import/trl.h"
#include "common/json.h"
#include "common/text.h"
#include "job/argument_table.h"
#include "job/spec/job.h"
#include "job/spec/yaml.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

constexpr char kConfigFile[] = "spec.deepspeed.configFrom.file";

std::optional<int> whole(const std::string& text) {
  const auto value = text::parse_int(text);
  if (!value || *value < 1 || *value > 65'536) return std::nullopt;
  return static_cast<int>(*value);
}

class LineImport {
 public:
  LineImport(Files& files, const LaunchLine& line, const std::string& origin)
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
    if (!command && !is_trl_) take_other_names();
    // The script's own --num_gpus or --nproc_per_node must not be taken for the launcher's.
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
    if (!settings_.is_null()) DSJ_TRY_STATUS(take_settings(spec));
    // A script under `deepspeed` may create its ds_config itself.
    const bool shards = taken.fsdp || launcher != Launcher::DeepSpeed;
    if (const bool open = !spec.contains("deepspeed") && !asks_for_config(); open && shards)
      take_sharding(imported_, taken.fsdp.value_or(jobspec::Sharding{}));
    else if (open)
      need(kConfigFile, "the line has no --deepspeed FILE");
    json training = spec.value("training", json::object());
    if (training.is_null()) training = json::object();
    DSJ_TRY_STATUS(take_trainer(training));
    spec["training"] = training;
    if (!training.contains("modelNameOrPath"))
      need("spec.training.modelNameOrPath", "the line has no --model_name_or_path");
    if (!training.contains("dataPath") && !command) need("spec.training.dataPath", why_no_data());
    for (const auto& [name, value] : line_.options)
      imported_.not_carried.push_back("the launcher's --" + name +
                                      (value.empty() ? "" : " " + value) +
                                      ": the agent does this itself");
    leave_devices_open(line_.visible_devices);
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
  bool asks_for_config() const {
    return std::ranges::any_of(imported_.missing,
                               [](const Missing& one) { return one.path == kConfigFile; });
  }
  /// The number of GPUs that CUDA_VISIBLE_DEVICES leaves; nullopt if the line does not say.
  std::optional<int> visible() const {
    const std::string& all = line_.visible_devices;
    if (all.empty() || all == "-1" || all.find('$') != std::string::npos) return std::nullopt;
    return static_cast<int>(std::ranges::count(all, ',')) + 1;
  }
  /// A rank has the GPU of its own number among those that its process sees.
  void leave_devices_open(const std::string& devices) {
    std::string in_order;
    for (int64_t i = 0; i <= std::ranges::count(devices, ','); ++i)
      in_order += (i == 0 ? "" : ",") + std::to_string(i);
    if (!devices.empty() && devices != in_order)
      imported_.left_open.push_back("GPUs " + devices + ": CUDA_VISIBLE_DEVICES=" + devices +
                                    " before `dsj run` gives them to the ranks, in this order");
  }
  /// One rank per GPU of the machine: their number, if the line says it.
  void one_per_device(const std::string& why) {
    if (const auto devices = visible())
      workers_["slotsPerWorker"] = *devices;
    else
      leave_open("slotsPerWorker", why);
  }
  /// Sets a number that only a run knows to 1, and asks the user for it.
  void leave_open(const std::string& field, const std::string& why) {
    workers_[field] = 1;
    imported_.left_open.push_back("spec.workers." + field + ": 1; " + why + ": write the number");
  }
  /// Scripts use various names for the model and the rows. Such a name is used if the usual one
  /// is absent.
  void take_other_names() {
    using Names = std::vector<std::string_view>;
    static const std::pair<std::string, Names> kOthers[] = {
        {"model_name_or_path",
         {"model_path", "model_id", "model_name", "model", "base_model", "model_dir", "pretrain",
          "pretrained_model", "pretrained_model_path", "pretrained_model_name_or_path",
          "llm_model_name_or_path"}},
        {"data_path",
         {"dataset_path", "train_data_path", "train_data", "train_dataset", "train_path",
          "train_data_file", "train_file_path", "dataset_file", "data_file", "data_files",
          "datafile_paths"}},
        {"eval_data_path",
         {"eval_dataset_path", "eval_data", "eval_file", "valid_file", "dev_file", "dev_data"}},
        {"output_dir", {"output_path", "save_path", "save_dir"}}};
    auto& words = line_.arguments;
    const auto position = [&](const auto& is_it) {
      return std::ranges::find_if(words, [&](const std::string& word) {
        return word.starts_with("--") && is_it(option_name(word));
      });
    };
    for (const auto& [usual, others] : kOthers) {
      const std::string field = camel_case(usual);
      const auto known = position([&](const std::string& name) {
        return name == usual || (usual == "data_path" && name.starts_with("dataset") &&
                                 jobspec::is_line_argument("--" + name));
      });
      if (known != words.end()) continue;
      const auto other = position([&](const std::string& name) {
        return std::ranges::find(others, name) != others.end() &&
               !jobspec::is_line_argument("--" + name);
      });
      if (other == words.end()) continue;
      const std::string name = other->substr(0, other->find('='));
      imported_.left_open.push_back("spec.training." + field + ": from " + name);
      *other = "--" + usual + other->substr(name.size());
      const auto value = other + 1;  // several files form one list
      while (field.ends_with("dataPath") || field.ends_with("DataPath")) {
        if (words.end() - value < 2 || value->starts_with("--") || value[1].starts_with("--"))
          break;
        *value += "," + value[1];
        words.erase(value + 1);
      }
    }
  }
  std::string why_no_data() const {
    for (const std::string& word : line_.arguments)
      if (option_name(word) == "dataset_name")
        return "--dataset_name is a data set of the hub, and no data set is downloaded";
    return "the line has no --data_path";
  }
  /// The trainer by the script's name, dpo.py or run_dpo.py, as TRL names its scripts.
  Result<std::optional<TrlTrainer>> trainer_of(const std::string& stem) const {
    DSJ_TRY(auto trainer, trl_trainer(stem));
    if (is_trl_ || trainer) return trainer;
    std::string pieces = stem;
    std::ranges::replace(pieces, '-', '_');
    std::istringstream in(pieces);
    for (std::string piece; !trainer && std::getline(in, piece, '_');) {
      DSJ_TRY(trainer, trl_trainer(piece));
    }
    return trainer;
  }
  Status take_trainer(json& training) {
    const std::string name = std::filesystem::path(line_.script).filename().string();
    if (!name.ends_with(".py")) return {};
    DSJ_TRY(const auto trainer, trainer_of(name.substr(0, name.size() - 3)));
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
  /// Converts ms-swift's arguments to the line's.
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
  /// Moves accelerate's options out of TRL's arguments, except names that the trainer uses, too.
  Status trl_options() {
    std::vector<std::string> rest;
    for (size_t i = 0; i < line_.arguments.size(); ++i) {
      const std::string& word = line_.arguments[i];
      const std::string name = word.starts_with("--") ? option_name(word) : "";
      const bool of_trainer =
          name == "gradient_accumulation_steps" || name == "debug" || name == "log_dir";
      const auto known = launcher_options(Launcher::Trl).find(name);
      const bool config = name == "accelerate_config";
      if (!config && (of_trainer || known == launcher_options(Launcher::Trl).end())) {
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
  /// Handles TRL's --config FILE.yaml and Trainer's only argument FILE.yaml or FILE.json:
  /// inserts the file's keys as arguments before the line's own.
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
  /// Removes an option from the line. Remaining options are reported as not carried over.
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
      leave_open("replicas", "--nnodes " + nodes + " is not a number");
    }
    const std::string ranks = option("nproc_per_node").value_or("1");
    if (const auto count = whole(ranks))
      workers_["slotsPerWorker"] = *count;
    else if (ranks == "gpu" || ranks == "auto")
      one_per_device("--nproc_per_node " + ranks + " is not a number");
    else
      leave_open("slotsPerWorker", "--nproc_per_node " + ranks + " is not a number");
    if (const auto restarts = option("max_restarts")) {
      const auto count = text::parse_int(*restarts);
      if (count && *count >= 0 && *count <= 65'536)
        restarts_ = *count;
      else
        imported_.not_carried.push_back("--max_restarts " + *restarts + ": no number");
    }
    for (const char* quiet : {"node_rank", "rdzv_backend", "rdzv_endpoint", "rdzv_id", "standalone",
                              "master_addr", "master_port", "use_env"})
      option(quiet);  // the agent does the rendezvous: nothing is lost
    return {};
  }

  /// accelerate's number of processes counts all machines.
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
    else if (processes)
      need("spec.workers.slotsPerWorker", std::to_string(*processes) +
                                              " processes are not a multiple of " +
                                              std::to_string(machines) + " machines");
    else
      one_per_device("without num_processes it is the machine's devices");
    if (const auto restarts = json_whole(settings_, "max_restarts");
        restarts && *restarts >= 0 && *restarts <= 65'536)
      restarts_ = restarts;
    return {};
  }

  /// Takes accelerate's settings for the ds_config, if the script's arguments name none, and
  /// for the precision. Megatron is refused: nothing here computes the same.
  Status take_settings(json& spec) {
    const std::string type = json_text(settings_, "distributed_type");
    if (!spec.contains("deepspeed") && (type == "MEGATRON_LM" || type == "TPU" || type == "XLA")) {
      need(kConfigFile,
           "the line trains with " + type + ", which is not DeepSpeed: name a ds_config");
    } else if (!spec.contains("deepspeed") && type == "FSDP") {
      DSJ_TRY(const auto sharding,
              jobspec::sharding_of_settings(json_child(settings_, "fsdp_config")));
      take_sharding(imported_, sharding);
    } else if (!spec.contains("deepspeed")) {
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
    return {};
  }

  Status deepspeed() {
    const std::string include = option("include").value_or("");
    const std::string exclude = option("exclude").value_or("");
    const auto nodes_text = option("num_nodes"), ranks_text = option("num_gpus");
    const int nodes = whole(nodes_text.value_or("")).value_or(0);  // 0 if not given
    const int ranks = whole(ranks_text.value_or("")).value_or(0);
    for (const char* quiet : {"master_addr", "master_port", "no_local_rank", "launcher"})
      option(quiet);
    std::vector<Host> hosts;
    if (const auto path = option("hostfile")) {
      DSJ_TRY(const std::string text, files_.read_all(*path, 1 << 20));
      DSJ_TRY(hosts, parse_hostfile(text, *path));
    } else if (!include.empty() && include.find('@') == std::string::npos && exclude.empty()) {
      DSJ_TRY(hosts, one_host(include));
      if (!hosts.empty()) line_.visible_devices = include.substr(include.find(':') + 1);
    }
    if (hosts.empty()) {  // this machine with all its devices, unless a number is given
      if (!exclude.empty())
        return bad_input("--exclude without a hostfile depends on the machine's devices",
                         imported_.origin, "give --num_gpus");
      if (ranks > 0)
        workers_["slotsPerWorker"] = ranks;
      else if (!ranks_text && include.empty() && nodes <= 1)
        one_per_device("without --num_gpus or a hostfile it is the machine's devices");
      else
        leave_open("slotsPerWorker",
                   ranks_text ? "--num_gpus " + *ranks_text + " is not a number"
                   : !include.empty()
                       ? "--include " + include + " names slots that only a run knows"
                       : "without --num_gpus or a hostfile it is the machine's devices");
      if (nodes_text && nodes == 0)
        leave_open("replicas", "--num_nodes " + *nodes_text + " is not a number");
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

  /// --include localhost:0,1 without a hostfile: uses the listed slots. No host if they are
  /// variables.
  static Result<std::vector<Host>> one_host(const std::string& include) {
    Host host{.name = include.substr(0, include.find(':'))};
    const size_t colon = include.find(':');
    if (colon == std::string::npos || colon + 1 == include.size() ||
        include.find('$') != std::string::npos)
      return std::vector<Host>();
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
  LaunchLine line_;
  Imported imported_;
  json workers_ = json::object();
  json settings_;      ///< accelerate's; null for other launchers
  json swift_config_;  ///< SwiftArguments::ds_config
  bool is_trl_ = false;
  std::optional<int64_t> restarts_;
};

}  // namespace

Result<Imported> import_line(Files& files, const std::vector<std::string>& words, Launcher launcher,
                             const std::string& origin,
                             std::map<std::string, std::string> environment) {
  DSJ_TRY(const LaunchLine line, take_line_apart(words, launcher, origin, std::move(environment)));
  return LineImport(files, line, origin).run(launcher);
}

Result<Imported> import_script(Files& files, const Script& script, Launcher launcher,
                               const std::string& origin) {
  const Command* chosen = nullptr;
  std::vector<std::string> others;
  // A line that always runs is preferred to one inside a condition, loop or function.
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
