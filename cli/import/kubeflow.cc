#include "cli/import/kubeflow.h"

#include <algorithm>
#include <filesystem>

#include "cli/import/kubeflow_object.h"
#include "cli/import/launcher.h"
#include "cli/import/shell.h"
#include "common/text.h"
#include "job/dsconfig/read/reader.h"
#include "job/spec/job.h"
#include "job/spec/user_program.h"
#include "job/training_args.h"

namespace dsj::jobimport {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr char kWorker[] = "worker";

/// The program's words, separated from the launcher before them.
struct Program {
  std::vector<std::string> launcher;  ///< mpirun -np 4, torchrun --nproc_per_node 8
  std::vector<std::string> words;     ///< python train.py --deepspeed ...
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text.size() > 120 ? text.substr(0, 117) + "..." : text;
}

bool is_script(const std::string& word) {
  return word.ends_with(".py") && !word.starts_with("-");
}

/// The commands of TEXT for "sh -c TEXT"; otherwise the words are one command.
Result<Script> commands_of(const std::vector<std::string>& words, const std::string& source) {
  if (words.size() >= 3) {
    const std::string shell = fs::path(words[0]).filename();
    const bool runs_text = words[1].starts_with("-") && words[1].ends_with("c");
    if ((shell == "sh" || shell == "bash") && runs_text) {
      std::map<std::string, std::string> variables;
      for (size_t i = 4; i < words.size(); ++i) variables[std::to_string(i - 3)] = words[i];
      return read_script(words[2], source, std::move(variables));
    }
  }
  return Script{.commands = {{.line = 0, .words = words}}, .notes = {}};
}

class Import {
 public:
  Import(Files& files, KubeflowObject object, const std::string& source,
         const KubeflowOptions& options)
      : files_(files), in_(std::move(object)), source_(source), options_(options) {}

  Result<Imported> run() {
    DSJ_TRY(const Script script, commands_of(in_.words, source_));
    choose(script);
    DSJ_TRY_STATUS(options_.keep_program ? own_program() : engine(script));
    metadata();
    workers();
    out_.manifest["spec"].update(in_.spec);
    out_.origin = source_;
    append(out_.left_open, in_.left_open);
    append(out_.not_carried, in_.not_carried);
    return std::move(out_);
  }

 private:
  static void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
    to.insert(to.end(), more.begin(), more.end());
  }
  json& spec() { return out_.manifest["spec"]; }
  json& container() { return in_.pod_template["spec"]["containers"][in_.container]; }

  /// Chooses the first command that runs a Python script, and reports the others.
  void choose(const Script& script) {
    append(in_.left_open, script.notes);
    for (const Command& command : script.commands) {
      const auto file = std::ranges::find_if(command.words, is_script);
      if (file == command.words.end() || !program_.words.empty()) {
        if (!command.words.empty() && command.words[0] != "exec" && script.commands.size() > 1)
          in_.not_carried.push_back("the command's \"" + joined(command.words) +
                                    "\": only the training is run");
        continue;
      }
      chosen_ = command.words;
      auto start = file;
      while (start != command.words.begin()) {  // keep python and its switches with the script
        const std::string& word = *(start - 1);
        if (!word.starts_with("-") && !fs::path(word).filename().string().starts_with("python"))
          break;
        const bool is_python = !word.starts_with("-");
        --start;
        if (is_python) break;
      }
      const bool python =
          start != file && fs::path(*start).filename().string().starts_with("python");
      if (!python) start = file;
      program_.launcher.assign(command.words.begin(), start);
      program_.words.assign(start, command.words.end());
      if (!python) program_.words.insert(program_.words.begin(), {"python", "-u"});
    }
  }

  // ---- this engine replaces the program

  Status engine(const Script&) {
    const auto script = std::ranges::find_if(program_.words, is_script);
    if (script == program_.words.end())
      return bad_input("no command of the container runs a Python script: " + joined(in_.words),
                       source_, "--launcher Command keeps the program as it is");
    std::vector<std::string> line = {"torchrun"};
    line.insert(line.end(), script, program_.words.end());
    Launcher launcher = Launcher::Torchrun;
    for (const Launcher one : {Launcher::Torchrun, Launcher::DeepSpeed}) {
      if (find_launcher(chosen_, one) < 0) continue;
      line = chosen_;
      launcher = one;
    }
    if (line[0] == "torchrun" && line.size() > 1 && line[1] == *script &&
        !program_.launcher.empty())
      in_.not_carried.push_back("\"" + joined(program_.launcher) +
                                "\": the agents start the ranks");
    forget_device_counts(line);
    DSJ_TRY(out_, import_line(files_, line, launcher, source_));
    take_slots_of_line();
    std::erase_if(out_.missing, [](const Missing& one) {
      return one.path.starts_with("spec.workers.") || one.path == "spec.deepspeed.configFrom.file";
    });
    numbers();
    DSJ_TRY_STATUS(ds_config());
    container_paths();
    for (const char* gone : {"image", "command", "args", "workingDir"}) {
      if (!container().contains(gone)) continue;
      if (std::string(gone) == "image")
        in_.not_carried.push_back("image " + container()[gone].dump() +
                                  ": workers run the operator's worker image");
      container().erase(gone);
    }
    return {};
  }

  /// Converts the line's texts to the numbers and booleans of the resource's schema.
  void numbers() {
    json& training = spec()["training"];
    const json words = std::exchange(training, json::object());
    for (const auto& [name, value] : words.items()) {
      const auto read = training_args_from_json({{name, value}}, "");
      training.update(read ? to_json(*read) : json{{name, value}});
    }
  }

  /// Removes options with the operators' own variables, whose values are in the object.
  static void forget_device_counts(std::vector<std::string>& line) {
    std::erase_if(line, [](const std::string& word) {
      return word.starts_with("--n") && word.contains("=$") &&
             (word.contains("nproc") || word.contains("nnodes"));
    });
  }

  void take_slots_of_line() {
    const json workers = spec().value("workers", json::object());
    const int64_t said = workers.value("slotsPerWorker", int64_t{1});
    if (said > 1) in_.slots = said;  // the line takes precedence
  }

  Status ds_config() {
    json& deepspeed = spec()["deepspeed"];
    std::string path = deepspeed.value("configFrom", json::object()).value("file", "");
    if (!options_.ds_config.empty()) return inline_config(options_.ds_config);
    if (deepspeed.contains("config")) return {};  // the line contains it
    if (path.empty()) {
      spec().erase("deepspeed");
      out_.missing.push_back({"spec.deepspeed.config",
                              "the command has no --deepspeed FILE; give "
                              "--ds-config FILE"});
      return {};
    }
    if (auto map = mounted_config_map(path); !map.is_null()) {
      deepspeed = {{"configFrom", {{"configMapKeyRef", map}}}};
      return {};
    }
    DSJ_TRY(const bool here, files_.exists(path));
    if (here) return inline_config(path);
    spec().erase("deepspeed");
    out_.missing.push_back({"spec.deepspeed.config",
                            "it lies in the container, at " + path + "; give --ds-config FILE"});
    return {};
  }

  Status inline_config(const std::string& path) {
    DSJ_TRY(const std::string text, files_.read_all(path, 1 << 20));
    DSJ_TRY(const auto document, dsconfig::parse_text(text, path));
    spec()["deepspeed"] = {{"config", document.value}};
    return {};
  }

  /// {name, key} if `path` is in a ConfigMap that the template mounts, else null.
  json mounted_config_map(const std::string& path) {
    const json mounts = container().value("volumeMounts", json::array());
    const json volumes = in_.pod_template["spec"].value("volumes", json::array());
    for (const json& mount : mounts) {
      const std::string at = mount.value("mountPath", "");
      const bool file = mount.contains("subPath") && at == path;
      if (at.empty() || (!file && !path.starts_with(at + "/"))) continue;
      const std::string inside =
          file ? mount["subPath"].get<std::string>() : path.substr(at.size() + 1);
      for (const json& volume : volumes) {
        if (volume.value("name", "") != mount.value("name", "") || !volume.contains("configMap"))
          continue;
        std::string key = inside;
        for (const json& item : volume["configMap"].value("items", json::array()))
          if (item.value("path", "") == inside) key = item.value("key", key);
        return {{"name", volume["configMap"].value("name", "")}, {"key", key}};
      }
    }
    return nullptr;
  }

  /// Makes relative paths absolute, from the container's working directory.
  void container_paths() {
    const std::string base = container().value("workingDir", "");
    json& training = spec()["training"];
    for (const char* name : {"modelNameOrPath", "dataPath", "outputDir", "evalDataPath"}) {
      if (!training.contains(name) || !training[name].is_string()) continue;
      const std::string path = training[name];
      if (path.starts_with("/") || path.contains('$')) continue;
      const bool hub = std::string(name) == "modelNameOrPath" && !path.starts_with(".");
      if (base.starts_with("/") && !hub)
        training[name] = (fs::path(base) / path).lexically_normal().string();
      else
        out_.left_open.push_back(std::string("spec.training.") + name + ": " + path +
                                 " is not an absolute path in the container, as a cluster needs" +
                                 (hub ? "; hub names are not downloaded" : ""));
    }
    if (!training.contains("outputDir"))
      out_.missing.push_back(
          {"spec.training.outputDir", "the command has no --output_dir; it must outlive the pods"});
  }

  // ---- the program is kept

  Status own_program() {
    spec()["launcher"] = "Command";
    out_.manifest["apiVersion"] = jobspec::kApiVersion;
    out_.manifest["kind"] = jobspec::kKind;
    if (program_.words.empty()) {
      in_.left_open.push_back("the command \"" + joined(in_.words) +
                              "\" is started once per rank: take off what starts ranks itself");
    } else {
      const auto script = std::ranges::find_if(program_.words, is_script);
      container()["command"] = std::vector<std::string>(program_.words.begin(), script + 1);
      container()["args"] = std::vector<std::string>(script + 1, program_.words.end());
      if (container()["args"].empty()) container().erase("args");
      if (!program_.launcher.empty())
        in_.not_carried.push_back("\"" + joined(program_.launcher) +
                                  "\": the agents start the ranks");
      slots_of_launcher();
    }
    if (!container().contains("image"))
      out_.left_open.push_back("the container has no image: launcher Command needs one");
    spec()["training"] = json::object();
    if (const std::string out = argument("--output_dir"); out.starts_with("/"))
      spec()["training"]["outputDir"] = out;
    else
      out_.missing.push_back({"spec.training.outputDir",
                              "where agents keep logs and the attempt's number, on a volume"});
    if (options_.ds_config.empty()) return {};
    return inline_config(options_.ds_config);
  }

  void slots_of_launcher() {
    for (size_t i = 0; i < program_.launcher.size(); ++i) {
      const std::string& word = program_.launcher[i];
      for (const char* name : {"--nproc_per_node", "--nproc-per-node", "--num_gpus"}) {
        std::string value;
        if (word.starts_with(std::string(name) + "=")) value = word.substr(word.find('=') + 1);
        if (word == name && i + 1 < program_.launcher.size()) value = program_.launcher[i + 1];
        if (const auto slots = text::parse_int(value); slots && *slots > 0) in_.slots = *slots;
      }
    }
  }

  std::string argument(const std::string& name) const {
    for (size_t i = 0; i < program_.words.size(); ++i) {
      if (program_.words[i] == name && i + 1 < program_.words.size()) return program_.words[i + 1];
      if (program_.words[i].starts_with(name + "="))
        return program_.words[i].substr(name.size() + 1);
    }
    return "";
  }

  // ---- both

  void metadata() {
    json& metadata = out_.manifest["metadata"];
    metadata = in_.metadata.is_object() ? in_.metadata : json::object();
    metadata["name"] = job_name(in_.name);
    if (metadata["name"] != in_.name)
      out_.left_open.push_back("metadata.name: " + in_.name + " became " +
                               metadata["name"].get<std::string>());
  }

  void workers() {
    pod_template();
    const int64_t gpus = jobspec::worker_gpus(in_.pod_template).seen();
    json workers = {{"replicas", in_.replicas.value_or(1)},
                    {"slotsPerWorker", in_.slots.value_or(std::max<int64_t>(gpus, 1))},
                    {"template", in_.pod_template}};
    spec()["workers"] = std::move(workers);
  }

  void pod_template() {
    json& pod = in_.pod_template["spec"];
    for (const char* own : {"hostname", "subdomain", "nodeName", "restartPolicy"}) {
      if (pod.erase(own) > 0 && std::string(own) != "restartPolicy")
        out_.not_carried.push_back(std::string("the template's ") + own + ": the operator sets it");
    }
    container()["name"] = kWorker;
    if (!container().contains("env")) return;
    json kept = json::array();
    for (const json& variable : container()["env"]) {
      const std::string name = variable.value("name", "");
      const bool ours = name.starts_with("DSJ_") || name.starts_with("PET_") || name == "RANK" ||
                        name == "WORLD_SIZE" || name == "LOCAL_RANK" || name == "MASTER_ADDR" ||
                        name == "MASTER_PORT";
      if (ours)
        out_.not_carried.push_back("variable " + name + ": the agents set it");
      else
        kept.push_back(variable);
    }
    container()["env"] = kept;
    if (kept.empty()) container().erase("env");
  }

  Files& files_;
  KubeflowObject in_;
  const std::string& source_;
  const KubeflowOptions& options_;
  Program program_;
  std::vector<std::string> chosen_;  ///< the whole command of the program
  Imported out_;
};

}  // namespace

Result<Imported> import_kubeflow(Files& files, KubeflowKind kind, const json& object,
                                 const std::string& source, const KubeflowOptions& options) {
  DSJ_TRY(KubeflowObject read, read_kubeflow(kind, object, source));
  return Import(files, std::move(read), source, options).run();
}

}  // namespace dsj::jobimport
