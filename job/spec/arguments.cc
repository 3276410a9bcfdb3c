// Turns a torchrun line into a manifest, which is then read like any other.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>

#include "common/text.h"
#include "job/argument_table.h"
#include "job/spec/argument_names.h"
#include "job/spec/job.h"
#include "job/spec/lora_arguments.h"
#include "job/spec/ranks_here.h"
#include "job/spec/sharding.h"

namespace dsj::jobspec {

namespace {

using dsconfig::Finding;
using nlohmann::json;
using Severity = Finding::Severity;

/// Whether the argument may lack a value: `--bf16`.
bool is_switch(const std::string& name) {
  if (const auto training = training_names().find(name); training != training_names().end())
    return is_training_switch(training->second);
  if (is_lora_switch(name)) return true;
  if (const LoraArgument* lora = lora_argument(name); lora && lora->is_switch) return true;
  if (const BaseArgument* base = base_argument(name))
    return base->kind == BaseArgument::Kind::Switch || std::string_view(base->field) == kTwoLevels;
  const ArgumentRow* row = argument_row(name);
  if (row != nullptr && !row->field.empty()) return is_training_switch(std::string(row->field));
  return row != nullptr && (row->verdict != ArgumentVerdict::Taken || has_meanings(name));
}

/// Whether an import that dropped the argument's value would train another kind of adapter.
bool is_method_of_adapters(const std::string& name) {
  const LoraArgument* lora = lora_argument(name);
  if (lora == nullptr) return false;
  const std::string_view field = lora->field;
  return field == "adapterNameOrPath" || field == "targetParameters" || field == "useDora" ||
         field == "initLoraWeights" || field == "rankPattern" || field == "alphaPattern" ||
         field == "layersToTransform" || field == "loraplusLrRatio" || field == "ensureWeightTying";
}

/// The place of a machine among several (cli/run/run_nodes.h).
bool is_place(const std::string& name) {
  constexpr std::string_view kPlaces[] = {"node_rank", "master_addr", "master_port",
                                          "rdzv_endpoint", "rdzv_conf"};
  return std::ranges::find(kPlaces, name) != std::end(kPlaces);
}

/// Arguments with several words, up to the next "--", as in argparse.
bool is_list(const std::string& name) {
  constexpr std::string_view kLists[] = {"report_to", "include_for_metrics",  "label_names",
                                         "debug",     "optim_target_modules", "fsdp"};
  const LoraArgument* lora = lora_argument(name);
  return (lora != nullptr && lora->list) || std::ranges::find(kLists, name) != std::end(kLists);
}

struct Argument {
  std::string shown;  ///< "--learning-rate"
  std::string name;   ///< "learning_rate"
  std::optional<std::string> value;
};

/// "learning_rate" of "--learning-rate".
std::string plain_name(const std::string& shown) {
  std::string name;
  for (const char c : shown.substr(2))
    name += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

/// Why a word without leading dashes is not allowed in the line.
Error stray_word(const std::vector<std::string>& args, size_t at) {
  const std::string& word = args[at];
  const Error error{.kind = ErrorKind::BadInput, .where = word};
  const auto with = [&](const char* message, std::string hint) {
    Error filled = error;
    filled.message = message;
    filled.hint = std::move(hint);
    return filled;
  };
  if (word.ends_with(".py") || word == "-m")
    return with("a Python script is not run here", "leave it out: the engine trains by itself");
  if (is_launcher(word)) return with("the agent starts the ranks", "remove it: dsj replaces it");
  return with("expected an argument that begins with --",
              at > 0 ? "does it belong to " + args[at - 1] + "? quote it" : "");
}

/// `lenient`: errors become findings (job.h). Otherwise they go to `errors`.
std::vector<Argument> split(const std::vector<std::string>& args, bool lenient,
                            std::vector<Finding>& findings, std::vector<Error>& errors) {
  std::vector<Argument> list;
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (!word.starts_with("--")) {
      if (lenient) {
        findings.push_back({Severity::Unsupported, word, "a word that belongs to no argument"});
        continue;
      }
      errors.push_back(stray_word(args, i));
      if (word == "-m" && i + 1 < args.size()) ++i;  // the module's name
      continue;
    }
    Argument argument;
    const size_t equals = word.find('=');
    argument.shown = word.substr(0, equals);
    argument.name = plain_name(argument.shown);
    if (equals != std::string::npos)
      argument.value = word.substr(equals + 1);
    else if (i + 1 < args.size() && !args[i + 1].starts_with("--"))
      argument.value = args[++i];
    while (is_list(argument.name) && argument.value && i + 1 < args.size() &&
           !args[i + 1].starts_with("--"))
      *argument.value += "," + args[++i];
    const auto earlier = std::find_if(
        list.begin(), list.end(), [&](const Argument& one) { return one.name == argument.name; });
    if (earlier != list.end()) {
      findings.push_back({Severity::Warning, argument.shown, "given twice", "the last one counts"});
      list.erase(earlier);
    }
    list.push_back(std::move(argument));
  }
  return list;
}

class CommandLine {
 public:
  explicit CommandLine(bool lenient) : lenient_(lenient) {}

  Status take(const Argument& argument) {
    const bool needs_value = !is_switch(argument.name) && argument.name != "deepspeed";
    if (!argument.value && needs_value && is_known(argument.name))
      return bad_input("a value is missing", argument.shown);
    const std::string value = argument.value.value_or("true");
    if (const auto training = training_names().find(argument.name);
        training != training_names().end())
      return take_training(training->second, argument, value);
    if (argument.name == "deepspeed" || argument.name == "deepspeed_config")
      return take_config(argument, value);
    if (argument.name == "fsdp") return take_sharding(argument, value);
    if (argument.name == "nproc_per_node" || argument.name == "num_gpus")
      return take_count(argument, value, "slotsPerWorker", spec_["workers"], 1);
    if (argument.name == "nnodes") return take_nodes(argument, value);
    if (is_place(argument.name)) return {};  // about this machine, not the job
    if (argument.name == "max_restarts")
      return take_count(argument, value, "backoffLimit", spec_, 0);
    if (argument.name == "finetuning_type" && value == "lora")  // LLaMA-Factory's switch
      return take_lora_switch(argument, "true");
    if (is_lora_switch(argument.name)) return take_lora_switch(argument, value);
    if (const LoraArgument* lora = lora_argument(argument.name))
      return take_lora(*lora, argument, value);
    if (const BaseArgument* base = base_argument(argument.name))
      return take_base(*base, argument, value);
    if (const ArgumentRow* row = argument_row(argument.name))
      return take_row(*row, argument, value);
    return unknown(argument);
  }

  /// Call after the last argument: LoRA's settings count only if LoRA is on, and those of a base in
  /// 4 bits only with such a base.
  Status finish() {
    if (deepspeed_switch_ && !spec_.contains("deepspeed"))
      return bad_input("a value is missing", "--deepspeed", "write --deepspeed ds_config.json");
    if (!fsdp_.empty() && spec_.contains("deepspeed"))
      return bad_input("a line takes either --deepspeed or --fsdp", fsdp_, "leave one of them out");
    if (!lenient_ && !spec_.contains("deepspeed")) {
      spec_["deepspeed"] = {{"config", ds_config_of(sharding_)}};
      const std::string stage = "ZeRO stage " + std::to_string(sharding_.stage);
      if (fsdp_.empty())
        findings.push_back({Severity::Warning, "--deepspeed", "not given",
                            "trains with data parallelism, at " + stage});
      else
        findings.push_back({Severity::Warning, fsdp_, "is " + stage + " here"});
    }
    DSJ_TRY_STATUS(finish_base());
    if (use_lora_ == true) spec_["training"]["lora"] = lora_;
    if (lora_first_.empty() || use_lora_ == true) return {};
    if (!use_lora_) {
      return bad_input("LoRA is not turned on", lora_first_,
                       "add --use_lora True, or leave the lora arguments out");
    }
    findings.push_back({Severity::Warning, lora_first_, "no effect", "--use_lora is false"});
    return {};
  }

  json manifest() {
    return {{"apiVersion", kApiVersion},
            {"kind", kKind},
            {"metadata", {{"name", name()}}},
            {"spec", spec_}};
  }

  std::optional<Sharding> fsdp() const {
    return fsdp_.empty() ? std::nullopt : std::optional(sharding_);
  }

  std::vector<Finding> findings;
  std::map<std::string, std::string> written;  ///< Job::written

  static bool is_known(const std::string& name) {
    const auto all = names();
    return std::find(all.begin(), all.end(), name) != all.end();
  }

 private:
  static std::vector<std::string> names() {
    std::vector<std::string> all = {"deepspeed", "deepspeed_config", "nproc_per_node", "num_gpus",
                                    "max_restarts"};
    for (const auto& [snake, camel] : training_names()) all.push_back(snake);
    for (const ArgumentGroup& group : argument_groups())
      for (const ArgumentRow& row : group.rows) all.emplace_back(row.name);
    return all;
  }

  /// The name nearest to the argument's; if none, the only one with it as a prefix, as in argparse.
  static std::string nearest(const std::string& name) {
    const auto all = names();
    if (std::string near = text::closest(name, all); !near.empty() || name.size() < 4) return near;
    std::string only;
    for (const std::string& one : all) {
      if (!one.starts_with(name) || one == only) continue;
      if (!only.empty()) return {};
      only = one;
    }
    return only;
  }

  /// HfArgumentParser's --no_NAME of a switch whose default is true.
  static std::optional<Argument> negated(const Argument& argument) {
    if (!argument.name.starts_with("no_") || argument.value) return std::nullopt;
    const std::string name = argument.name.substr(3);
    if (!is_switch(name)) return std::nullopt;
    return Argument{argument.shown, name, "false"};
  }

  Status unknown(const Argument& argument) {
    if (const auto plain = negated(argument)) return take(*plain);
    const std::string near = nearest(argument.name);
    return bad_input(
        "not an argument of dsj run", argument.shown,
        near.empty() ? "docs/arguments.md lists them" : "did you mean \"--" + near + "\"?");
  }

  Status take_training(const std::string& camel, const Argument& argument,
                       const std::string& value) {
    json& training = spec_["training"];
    if (training.is_null()) training = json::object();
    const auto read = training_args_from_json({{camel, value}}, "");
    if (!read) return bad_input(read.error().message, argument.shown, read.error().hint);
    const json typed = to_json(*read).value(camel, json(value));  // a number, as the CRD requires
    if (training.contains(camel) && training[camel] != typed)
      return bad_input("given twice, under two names", argument.shown);
    training[camel] = typed;
    written["spec.training." + camel] = argument.shown;
    return {};
  }

  Status take_lora_switch(const Argument& argument, const std::string& value) {
    const auto on = text::parse_bool(value);
    if (!on) return bad_input("found \"" + value + "\", expected true or false", argument.shown);
    if (use_lora_ && use_lora_ != on) return bad_input("given twice, on and off", argument.shown);
    use_lora_ = on;
    written["spec.training.lora"] = argument.shown;
    return {};
  }

  Status take_lora(const LoraArgument& lora, const Argument& argument, const std::string& value) {
    json field = value;
    if (argument.name == lora.other && value == "all") {
      field = "all-linear";
    } else if (lora.list && value != "all-linear") {
      field = json::array();
      for (size_t begin = 0; begin <= value.size();) {
        const size_t end = std::min(value.find(',', begin), value.size());
        if (end > begin) field.push_back(value.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    const auto read = lora_args_from_json({{lora.field, field}}, "");
    if (!read) return bad_input(read.error().message, argument.shown, read.error().hint);
    const json typed = to_json(*read).value(lora.field, field);
    if (lora_.contains(lora.field) && lora_[lora.field] != typed)
      return bad_input("given twice, under two names", argument.shown);
    lora_[lora.field] = typed;
    written[std::string("spec.training.lora.") + lora.field] = argument.shown;
    if (lora_first_.empty()) lora_first_ = argument.shown;
    return {};
  }

  Status take_base(const BaseArgument& base, const Argument& argument, const std::string& value) {
    using Kind = BaseArgument::Kind;
    json field = value;
    if (base.kind == Kind::Bits) {
      const auto bits = text::parse_int(value);
      if (value == "none" || value == "None" || value == "null" || bits == 16 || bits == 32)
        return {};
      if (bits == 8)
        return bad_input("a base in 8 bits (LLM.int8()) is not built", argument.shown,
                         "write 4, or leave it out");
      if (bits != 4) return bad_input("found \"" + value + "\", expected 4", argument.shown);
      field = "true";
    }
    const auto read = lora_args_from_json({{base.field, field}}, "");
    if (!read) return bad_input(read.error().message, argument.shown, read.error().hint);
    if (base.kind != Kind::Setting) {
      if (!read->load_in_4bit) return {};
      in_4_bits_ = argument.shown;
      two_levels_ = two_levels_ || base.two_levels;
      written[std::string("spec.training.lora.") + kIn4Bits] = argument.shown;
      return {};
    }
    const json typed = std::string_view(base.field) == kTwoLevels
                           ? json(read->double_quant)
                           : to_json(*read).value(base.field, field);
    const auto [before, added] = base_.emplace(base.field, BaseSetting{argument.shown, typed});
    if (!added && before->second.value != typed)
      return bad_input("given twice, under two names", argument.shown);
    return {};
  }

  Status finish_base() {
    if (in_4_bits_.empty()) {
      for (const auto& [field, setting] : base_)
        findings.push_back({Severity::Warning, setting.shown, "no effect",
                            "it acts only with --load_in_4bit True"});
      return {};
    }
    if (use_lora_ != true)
      return bad_input("a base in 4 bits is trained with adapters only", in_4_bits_,
                       "add --use_peft True");
    lora_[kIn4Bits] = true;
    if (two_levels_) lora_[kTwoLevels] = true;
    for (const auto& [field, setting] : base_) {
      lora_[field] = setting.value;
      written["spec.training.lora." + field] = setting.shown;
    }
    return {};
  }

  Status take_config(const Argument& argument, const std::string& value) {
    if (!argument.value && argument.name == "deepspeed") {  // DeepSpeed's own examples: a switch
      deepspeed_switch_ = true;
      return {};
    }
    if (!argument.value) return bad_input("a value is missing", argument.shown);
    if (spec_.contains("deepspeed")) return bad_input("given twice", argument.shown);
    if (value.starts_with("{")) {  // Hugging Face's Trainer accepts a ds_config inline
      json config = json::parse(value, nullptr, false);
      if (config.is_discarded())
        return bad_input("the ds_config is not JSON", argument.shown, "or name its file");
      spec_["deepspeed"] = {{"config", std::move(config)}};
      return {};
    }
    spec_["deepspeed"] = {{"configFrom", {{"file", value}}}};
    written["spec.deepspeed.configFrom.file"] = argument.shown;
    return {};
  }

  Status take_sharding(const Argument& argument, const std::string& value) {
    DSJ_TRY(sharding_, sharding_of_words(value));
    if (sharding_.stage > 0) fsdp_ = argument.shown;
    return {};
  }

  Status take_count(const Argument& argument, const std::string& value, const char* field,
                    json& where, int least) {
    auto count = text::parse_int(value);
    if (std::string_view(field) == "slotsPerWorker" && !lenient_ && ranks_here(value))
      count = ranks_here(value);
    if (!count && value == "gpu")
      return bad_input("found \"gpu\": the NVIDIA driver lists no GPU of this machine",
                       argument.shown, "write cpu, or a number");
    if (!count || *count < least)
      return bad_input(
          "found \"" + value + "\", expected a whole number of at least " + std::to_string(least),
          argument.shown);
    if (where.contains(field)) return bad_input("given twice, under two names", argument.shown);
    where[field] = *count;
    written[std::string(&where == &spec_ ? "spec." : "spec.workers.") + field] = argument.shown;
    return {};
  }

  Status take_nodes(const Argument& argument, const std::string& value) {
    const size_t colon = value.find(':');
    if (colon != std::string::npos && value.substr(0, colon) != value.substr(colon + 1))
      return bad_input("\"" + value + "\": the number of nodes of a run does not change",
                       argument.shown,
                       "write one number; on a cluster a DeepSpeedJob has spec.elastic");
    return take_count(argument, value.substr(0, colon), "replicas", spec_["workers"], 1);
  }

  Status take_row(const ArgumentRow& row, const Argument& argument, const std::string& value) {
    if (has_meanings(row.name)) {
      const ArgumentMeaning* meaning = argument_meaning(row.name, value);
      if (meaning == nullptr)
        return bad_input("found \"" + value + "\", expected " + std::string(row.reason),
                         argument.shown);
      if (meaning->field.empty()) return {};
      return take_training(std::string(meaning->field), argument, std::string(meaning->becomes));
    }
    if (!row.member.empty())
      return asks_for_nothing(row, value)
                 ? Status()
                 : take_training(std::string(row.field), argument,
                                 json({{std::string(row.member), value}}).dump());
    if (!row.field.empty()) return take_training(std::string(row.field), argument, value);
    if (row.verdict == ArgumentVerdict::Taken) return unknown(argument);  // only in another form
    const bool neutral = asks_for_nothing(row, value);
    if (row.verdict == ArgumentVerdict::Refused && !neutral)
      return bad_input("\"" + value + "\": " + std::string(row.reason), argument.shown);
    findings.push_back({Severity::Warning, argument.shown, "no effect",
                        row.verdict == ArgumentVerdict::Refused ? "this happens anyway"
                                                                : std::string(row.reason)});
    return {};
  }

  /// The last name of the output directory, as a valid job name.
  std::string name() const {
    std::string directory = "run";
    if (spec_.contains("training") && spec_["training"].contains("outputDir")) {
      std::filesystem::path path = spec_["training"]["outputDir"].get<std::string>();
      if (!path.has_filename()) path = path.parent_path();
      directory = path.filename().string();
    }
    std::string name;
    for (char c : directory) {
      const bool plain = std::isalnum(static_cast<unsigned char>(c));
      name += plain ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '-';
    }
    while (!name.empty() && !std::isalpha(static_cast<unsigned char>(name[0]))) name.erase(0, 1);
    name = name.substr(0, 40);
    while (!name.empty() && name.back() == '-') name.pop_back();
    return name.empty() ? "run" : name;
  }

  const bool lenient_;
  json spec_ = json::object();
  json lora_ = json::object();
  std::string lora_first_;  ///< the first LoRA argument, for messages
  std::optional<bool> use_lora_;
  struct BaseSetting {
    std::string shown;
    json value;
  };
  std::map<std::string, BaseSetting> base_;  ///< for a base in 4 bits, by field
  std::string in_4_bits_;                    ///< the argument that selects one
  bool two_levels_ = false;                  ///< the default of its tool
  bool deepspeed_switch_ = false;            ///< --deepspeed without a file
  Sharding sharding_;                        ///< for a line without --deepspeed
  std::string fsdp_;                         ///< the argument that selects it
};

/// Joins all errors of a line into one.
Error joined(const std::vector<Error>& errors) {
  if (errors.size() == 1) return errors.front();
  std::string all = std::to_string(errors.size()) + " arguments are not accepted";
  for (const Error& error : errors) all += "\n  " + error.to_string();
  return {.kind = ErrorKind::BadInput, .message = std::move(all)};
}

}  // namespace

bool is_launcher(const std::string& word) {
  const std::string program = std::filesystem::path(word).filename().string();
  constexpr std::string_view kLaunchers[] = {"torchrun", "deepspeed", "accelerate",
                                             "python",   "python3",   "llamafactory-cli"};
  return std::ranges::find(kLaunchers, program) != std::end(kLaunchers);
}

bool is_line_argument(const std::string& word) {
  if (!word.starts_with("--")) return false;
  const std::string name = plain_name(word);
  return CommandLine::is_known(name) || is_lora_switch(name) || lora_argument(name) != nullptr;
}

Result<ArgumentsManifest> manifest_from_arguments(const std::vector<std::string>& args,
                                                  bool lenient) {
  CommandLine line(lenient);
  std::vector<Error> errors;
  const std::vector<Argument> list = split(args, lenient, line.findings, errors);
  const auto refuse = [&](const Error& error, const std::string& shown) {
    if (lenient)
      line.findings.push_back({Severity::Unsupported, shown, error.message, error.hint});
    else
      errors.push_back(error);
  };
  for (const Argument& argument : list) {
    const Status taken = line.take(argument);
    if (taken) continue;
    if (is_method(argument.name) || is_method_of_adapters(argument.name))
      errors.push_back(taken.error());
    else
      refuse(taken.error(), argument.shown + (argument.value ? " " + *argument.value : ""));
  }
  if (const Status whole = line.finish(); !whole) refuse(whole.error(), whole.error().where);
  json manifest = line.manifest();
  if (!errors.empty()) return std::unexpected(joined(errors));
  return ArgumentsManifest{std::move(manifest), std::move(line.findings), std::move(line.written),
                           line.fsdp()};
}

Result<Job> job_from_arguments(const std::vector<std::string>& args,
                               const std::vector<std::string>& overrides) {
  DSJ_TRY(ArgumentsManifest line, manifest_from_arguments(args, false));
  dsconfig::Document document{.source = kCommandLine};
  document.value = std::move(line.manifest);
  DSJ_TRY(Job job, read_manifest(document, ".", overrides));
  job.findings.insert(job.findings.begin(), line.findings.begin(), line.findings.end());
  job.written = std::move(line.written);
  return job;
}

}  // namespace dsj::jobspec
