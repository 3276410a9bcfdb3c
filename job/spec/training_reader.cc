#include "job/spec/training_reader.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <variant>

#include "common/home_path.h"
#include "common/json.h"
#include "common/path_list.h"
#include "common/text.h"
#include "job/argument_table.h"
#include "job/spec/field_reader.h"
#include "job/training_schema.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;

class TrainingReader : private FieldReader {
 public:
  TrainingReader(const Origin& origin, Job& job)
      : FieldReader(job.findings), origin_(origin), job_(job) {}

  void read(const json& spec) {
    const std::string path = "spec.training";
    json good = json::object();
    if (const json& fields = json_child(spec, "training"); fields.is_object()) {
      for (const auto& [name, value] : fields.items()) {
        const auto one = training_args_from_json({{name, value}}, path);
        if (one && origin_.in_cluster() && is_text_of_a_number(name, value))
          report(Severity::Error, join(path, name),
                 "found the text " + shown(value) + ", expected a number, or true or false",
                 "an API server accepts no text here: remove the quotes");
        else if (one)
          good[name] = value;
        else if (!take_row(path, name, value, good))
          report(Severity::Error, one.error().where, one.error().message, one.error().hint);
      }
    }
    auto args = training_args_from_json(good, path);
    if (!args) {
      report(Severity::Error, args.error().where, args.error().message, args.error().hint);
      return;
    }
    job_.training = std::move(*args);
    TrainingArgs& training = job_.training;
    const bool native = !job_.runs_user_program();
    if (native && training.model_name_or_path.empty())
      report(Severity::Error, path + ".modelNameOrPath", "a field is missing",
             "name a Hugging Face model directory");
    if (native && training.data_path.empty())
      report(Severity::Error, path + ".dataPath", "a field is missing",
             training.dataset ? "name the directory of dataset_info.json (--dataset_dir)"
                              : "name a file of rows, or several");
    if (origin_.in_cluster())
      container_paths(path);
    else
      home_paths(path);
    training.model_name_or_path = model_path(training.model_name_or_path);
    if (training.lora && !training.lora->adapter.empty())
      training.lora->adapter = origin_.absolute(training.lora->adapter);
    if (native || !origin_.in_cluster()) {
      training.data_path = absolute_list(training.data_path);
      if (training.eval_data_path)
        training.eval_data_path = absolute_list(*training.eval_data_path);
    }
    training.output_dir = origin_.absolute(training.output_dir);
    resume(path + ".resumeFromCheckpoint");
    if (origin_.in_cluster() && training.overwrite_output_dir.value_or(false))
      report(Severity::Error, path + ".overwriteOutputDir", "has effect with dsj run only",
             "name another outputDir");
  }

 private:
  /// `dsj run` reads "1e-4" as a number, as on a command line; the resource's schema does not.
  static bool is_text_of_a_number(const std::string& name, const json& value) {
    if (!value.is_string()) return false;
    const auto field = std::ranges::find_if(training_fields(), [&](const TrainingField& one) {
      return name == one.name || (one.alias && name == one.alias);
    });
    return field != training_fields().end() &&
           (std::holds_alternative<std::optional<int64_t> TrainingArgs::*>(field->member) ||
            std::holds_alternative<std::optional<double> TrainingArgs::*>(field->member) ||
            std::holds_alternative<std::optional<bool> TrainingArgs::*>(field->member));
  }

  /// Handles a name that is no field but an argument of Hugging Face, by the table's verdict. False
  /// if it is neither, or has a value that the reader of fields refuses.
  bool take_row(const std::string& path, const std::string& name, const json& value, json& good) {
    const auto& fields = training_arg_names();
    const ArgumentRow* row = argument_row_of_field(name);
    if (row == nullptr || std::ranges::find(fields, name) != fields.end()) return false;
    const auto word = [](const json& any) {
      return any.is_string() ? any.get<std::string>() : any.dump();
    };
    const auto same = [&](const json& one, const json& other) {
      const auto yes = text::parse_bool(word(one));
      return word(one) == word(other) || (yes && yes == text::parse_bool(word(other)));
    };
    const std::string text = word(value), at = join(path, name);
    const auto becomes = [&](std::string_view field, const json& what) {
      if (good.contains(field) && !same(good[std::string(field)], what))
        report(Severity::Error, at, "\"" + std::string(field) + "\" is given, too",
               "keep one of the two");
      else
        good[std::string(field)] = what;
      return true;
    };
    if (has_meanings(row->name)) {
      const ArgumentMeaning* meaning = argument_meaning(row->name, text);
      if (meaning == nullptr) return false;
      return meaning->field.empty() || becomes(meaning->field, std::string(meaning->becomes));
    }
    if (!row->member.empty())
      return asks_for_nothing(*row, text) ||
             becomes(row->field, json({{std::string(row->member), value}}));
    if (!row->field.empty()) return becomes(row->field, value);
    if (row->verdict == ArgumentVerdict::Taken) return false;
    if (row->verdict == ArgumentVerdict::Refused && !asks_for_nothing(*row, text))
      report(Severity::Unsupported, at, "found " + shown(text) + ": " + std::string(row->reason));
    else
      report(origin_.in_cluster() ? Severity::Error : Severity::Warning, at,
             origin_.in_cluster() ? "is not a field of a DeepSpeedJob, and would have no effect"
                                  : "no effect",
             row->verdict == ArgumentVerdict::Refused ? "this happens anyway"
                                                      : std::string(row->reason));
    return true;
  }

  /// A model that does not exist and has no ./ may be a hub id.
  std::string model_path(const std::string& name) const {
    std::error_code ignored;
    if (origin_.in_cluster()) return name;
    const std::string path = origin_.absolute(name);
    const bool is_path =
        name.starts_with(".") || name.starts_with("/") || std::filesystem::exists(path, ignored);
    return is_path ? path : name;
  }

  /// Several paths separated by commas, each made absolute. An existing path may contain a comma.
  std::string absolute_list(const std::string& list) const {
    std::error_code ignored;
    std::string whole = origin_.absolute(list);
    if (origin_.in_cluster() || !list.contains(',') || std::filesystem::exists(whole, ignored))
      return whole;
    std::string absolute;
    for (const std::string& path : split_commas(list))
      absolute += (absolute.empty() ? "" : ",") + origin_.absolute(path);
    return absolute;
  }

  void home_paths(const std::string& path) {
    const TrainingArgs& training = job_.training;
    for (const auto& [name, value] :
         {std::pair<const char*, std::string>{"modelNameOrPath", training.model_name_or_path},
          {"dataPath", training.data_path},
          {"evalDataPath", training.eval_data_path.value_or("")},
          {"outputDir", training.output_dir},
          {"lora.adapterNameOrPath", training.lora ? training.lora->adapter : ""},
          {"resumeFromCheckpoint", training.resume_from_checkpoint.value_or("")}})
      if (const auto wrong = home_path(value))
        report(Severity::Error, join(path, name), wrong->message, wrong->hint);
  }

  /// A container lacks the manifest's directory, and hub ids are not looked up there.
  void container_paths(const std::string& path) {
    const TrainingArgs& training = job_.training;
    auto check = [&](const char* name, const std::string& value) {
      if (!value.empty() && !value.starts_with("/"))
        report(Severity::Error, join(path, name),
               "found " + shown(value) + ", expected an absolute path in the container",
               "mount a volume in spec.workers.template and name a path on it");
    };
    check("outputDir", training.output_dir);
    if (!job_.runs_user_program()) {  // a user's program may read them in any way
      check("modelNameOrPath", training.model_name_or_path);
      check("dataPath", training.data_path);
      check("evalDataPath", training.eval_data_path.value_or(""));
      check("lora.adapterNameOrPath", training.lora ? training.lora->adapter : "");
    }
    if (training.output_dir.empty())
      report(Severity::Error, path + ".outputDir", "a field is missing",
             "name a directory on a volume that outlives the pods");
  }

  void resume(const std::string& path) {
    auto& from = job_.training.resume_from_checkpoint;
    if (!from) return;
    const auto word = text::parse_bool(*from);
    if (word == true) {
      from.reset();
      report(Severity::Warning, path, "no effect: the newest checkpoint is always taken");
    } else if (word == false) {
      from.reset();
      report(Severity::Unsupported, path,
             "a run always continues from the checkpoints in outputDir",
             "name an empty outputDir to start over");
    } else {
      from = origin_.absolute(*from);
    }
  }

  const Origin& origin_;
  Job& job_;
};

}  // namespace

void read_training(const json& spec, const Origin& origin, Job& job) {
  TrainingReader(origin, job).read(spec);
}

}  // namespace dsj::jobspec
