#include "cli/check/surroundings.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/check/hub_cache.h"
#include "cli/check/measured_rows.h"
#include "cli/check/trainer_checkpoints.h"
#include "common/files/posix_files.h"
#include "engine/checkpoint/reader.h"
#include "engine/data/files/row_sources.h"
#include "engine/deepspeed/folder.h"
#include "engine/weights/continued_adapter.h"
#include "engine/weights/tensor_check.h"
#include "job/contract.h"
#include "job/layout/trained_model.h"
#include "job/layout/trained_part.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using dsconfig::Finding;
using Severity = Finding::Severity;

constexpr char kOpen[] = "checks that depend on it are skipped";

/// Whether a run in this output directory would start from its checkpoints instead of the
/// model's weights.
bool has_checkpoints(const std::string& output_dir) {
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator(output_dir + "/" + contract::kCheckpointsDir, ignored))
    if (entry.path().filename().string().starts_with("step-")) return true;
  return false;
}

/// Checks that every file of a job's rows can be read here.
Status check_readable(Files& files, const std::string& data_path, const std::string& dataset) {
  DSJ_TRY(const auto paths, data::row_files(files, data_path, dataset));
  std::error_code ignored;
  for (const std::string& path : paths) {
    if (fs::is_fifo(path, ignored))
      return bad_input("the data is a pipe, and rows are read several times", path,
                       "write what it gives to a file first");
    if (!fs::is_regular_file(path, ignored)) return bad_input("there is no such data file", path);
    if (access(path.c_str(), R_OK) != 0)
      return bad_input(std::string("cannot read the data: ") + std::strerror(errno), path);
  }
  return {};
}

class Look {
 public:
  Look(const jobspec::Job& job, FilesAre files) : job_(job), files_are_(files) {
    around_.facts.world_size = job.world_size();
  }

  Surroundings take() {
    model();
    resume();
    rows();
    dsconfig::locate(around_.findings, job_.positions);
    return std::move(around_);
  }

 private:
  void add(Severity severity, const std::string& path, std::string message, std::string hint = {}) {
    around_.findings.push_back({severity, path, std::move(message), std::move(hint)});
  }
  /// Adds an error of a training argument, which names its field.
  void argument(const Error& error) {
    add(Severity::Error, "spec.training." + error.where, error.message, error.hint);
  }
  /// Adds a finding about a file that the run cannot use.
  void problem(const std::string& field, const Error& error) {
    if (files_are_ == FilesAre::InContainers) return;
    const bool here = files_are_ == FilesAre::Here;
    Error shown = error;
    shown.hint.clear();
    add(here ? Severity::Error : Severity::Warning, "spec.training." + field, shown.to_string(),
        here || !error.hint.empty() ? error.hint : kOpen);
  }

  void model() {
    const std::string& name = job_.training.model_name_or_path;
    if (name.empty())
      return problem("modelNameOrPath", {ErrorKind::BadInput, "is missing", "", ""});
    const auto directory = find_model(name, hub_cache_directory());
    if (!directory) return problem("modelNameOrPath", directory.error());
    auto model = layout::read_trained_model(*directory, job_.training.objective == "reward");
    if (!model)  // an error even if files are elsewhere: this file was found
      return add(Severity::Error, "spec.training.modelNameOrPath", model.error().to_string());
    if (const Status set = layout::set_balance(job_.training, *model); !set)
      return argument(set.error());
    around_.facts.hidden_size = model->hidden_size;
    around_.facts.layers = model->num_layers;
    around_.facts.positions = model->longest_sequence();
    around_.facts.positions_learned = model->learned_positions;
    if (job_.training.lora) {
      adapters(*model);
    } else {
      trained_part(*model);
    }
    around_.model_directory = *directory;
    around_.model = std::move(*model);
    weights();
  }

  /// If the adapter to begin with is not on this machine, the plan assumes PEFT's defaults for what
  /// it would decide.
  void adapters(const layout::ModelConfig& model) {
    const LoraArgs& asked = *job_.training.lora;
    std::error_code ignored;
    if (!asked.adapter.empty() && !fs::is_directory(asked.adapter, ignored)) {
      problem("lora.adapterNameOrPath",
              {ErrorKind::BadInput, "there is no such directory", asked.adapter,
               "name a directory with adapter_config.json and adapter_model.safetensors"});
      if (auto assumed = layout::resolve_lora(model, asked)) around_.lora = std::move(*assumed);
      return;
    }
    auto lora = weights::resolve_adapter(files_, model, asked);
    if (!lora) return argument(lora.error());
    around_.lora = std::move(*lora);
  }

  void trained_part(const layout::ModelConfig& model) {
    const auto frozen = layout::frozen_parameters(model, job_.training);
    if (!frozen) return argument(frozen.error());
    if (frozen->empty()) return;
    if (auto part = layout::all_but(model, *frozen)) around_.lora = std::move(*part);
  }

  void weights() {
    const bool anew = job_.training.overwrite_output_dir.value_or(false);
    const bool resumes = (!anew && has_checkpoints(job_.training.output_dir)) ||
                         job_.training.resume_from_checkpoint.value_or("false") != "false";
    if (resumes && !job_.training.lora) return;
    const auto source = weights::WeightSource::open(files_, around_.model_directory);
    if (!source) return problem("modelNameOrPath", source.error());
    const auto whole = weights::check_tensors(*source, layout::units_of(*around_.model));
    if (!whole) return problem("modelNameOrPath", whole.error());
    if (const std::string unread = weights::unread_tensors(*source, *around_.model);
        !unread.empty())
      add(Severity::Warning, "spec.training.modelNameOrPath",
          around_.model_directory + ": " + unread,
          "the trained model lacks what is not read: are config.json and the weights of one "
          "model?");
  }

  /// Checks the checkpoint that the job names: one of dsj or DeepSpeed.
  void resume() {
    const std::string from = job_.training.resume_from_checkpoint.value_or("false");
    if (from == "false" || from == "true") return trainers_own();
    std::error_code ignored;
    if (!fs::is_directory(from, ignored))
      return problem(
          "resumeFromCheckpoint",
          {ErrorKind::BadInput, "there is no such directory", from,
           "without it a run continues from the newest checkpoint in its output directory"});
    const auto deepspeeds = deepspeed::is_deepspeed(files_, from);
    if (!deepspeeds) return problem("resumeFromCheckpoint", deepspeeds.error());
    if (*deepspeeds) return;
    if (const auto ours = checkpoint::Reader::open(files_, from); !ours)
      problem("resumeFromCheckpoint", fs::exists(from + "/" + checkpoint::kManifestFile, ignored)
                                          ? ours.error()
                                          : no_checkpoint(from));
  }

  /// Says what a directory without a checkpoint is.
  static Error no_checkpoint(const std::string& from) {
    std::error_code ignored;
    const auto is = [&](const char* what, std::string hint) {
      return Error{ErrorKind::BadInput, what, from, std::move(hint)};
    };
    if (const std::string newest = newest_trainer_checkpoint(from); !newest.empty())
      return is("holds checkpoints of Trainer's and is not one itself",
                "name one of them: " + newest);
    if (fs::is_directory(from + "/" + contract::kCheckpointsDir, ignored))
      return is("is the output directory of a run, not a checkpoint",
                "name one of " + from + "/" + contract::kCheckpointsDir);
    if (fs::exists(from + "/trainer_state.json", ignored))
      return is("is a checkpoint of Trainer's without DeepSpeed's states (global_stepN and latest)",
                "--model_name_or_path begins with its weights");
    return is("is not a checkpoint of a run (manifest.json) or of DeepSpeed (latest)",
              "name a directory step-N, checkpoint-N or global_stepN");
  }

  /// Reports Trainer's checkpoints in the output directory. Trainer would continue from them or
  /// refuse the directory, so a run must not silently start anew there.
  void trainers_own() {
    const std::string& output = job_.training.output_dir;
    const bool anew = job_.training.overwrite_output_dir.value_or(false);
    if (files_are_ != FilesAre::Here || anew || has_checkpoints(output)) return;
    const std::string newest = newest_trainer_checkpoint(output);
    if (newest.empty() || job_.training.model_name_or_path.starts_with(output + "/")) return;
    const bool goes_on = deepspeed::is_deepspeed(files_, newest).value_or(false);
    add(Severity::Error, "spec.training.outputDir", "holds checkpoints of Trainer's: " + newest,
        (goes_on ? "--resume_from_checkpoint " + newest + " continues from it"
                 : "--model_name_or_path " + newest +
                       " begins with its weights (it has no DeepSpeed states to continue from)") +
            "; --overwrite_output_dir True begins at step 0 and leaves it there");
  }

  /// Opens the training and evaluation data as the ranks do.
  void rows() {
    const std::string& path = job_.training.data_path;
    if (path.empty()) return problem("dataPath", {ErrorKind::BadInput, "is missing", "", ""});
    const auto there = check_readable(files_, path, job_.training.dataset.value_or(""));
    if (!there) return no_rows("dataPath", there.error());
    if (!around_.model) {
      around_.no_data = "the model cannot be read here";
      return;
    }
    auto open = std::make_shared<data::JobRows>();
    auto tokenizer = data::tokenizer_of(around_.model_directory);
    if (!tokenizer) return no_rows("modelNameOrPath", tokenizer.error());
    open->tokenizer = std::move(*tokenizer);
    if (open->tokenizer)
      for (const std::string& note : open->tokenizer->notes())
        add(Severity::Warning, "spec.training.modelNameOrPath", note);
    if (const Status chosen = data::choose_eos(job_.training, open->tokenizer.get()); !chosen)
      problem("eosToken", chosen.error());
    const auto options = data::job_rows_options(job_.training, *around_.model);
    if (!options) return no_rows("datasetWeights", options.error());
    auto dataset = data::Dataset::open(path, open->tokenizer.get(), *options);
    if (!dataset) return no_rows("dataPath", dataset.error());
    open->rows = std::move(*dataset);
    tell_notes("dataPath", path, *open->rows);
    if (const std::string note = open->rows->answer_end_note(); !note.empty())
      add(Severity::Warning, "spec.training.dataPath", note);
    around_.facts.dataset_rows = open->rows->rows();
    around_.data = open;
    if (const Status split =
            open->rows->check_split(held_out_rows(open->rows->rows(), job_.training));
        !split)
      problem("dataPath", split.error());
    pack();
    const auto [eval, names] = eval_source(job_.training);
    if (eval.empty()) return;
    const char* field = names.empty() ? "evalDataPath" : "evalDataset";
    if (const auto readable = check_readable(files_, eval, names); !readable)
      return problem(field, readable.error());
    const auto held_out = data::Dataset::open(
        eval, open->tokenizer.get(),
        data::evaluation_options(*options, names, job_.training.max_eval_samples.value_or(0)));
    if (!held_out) return problem(field, held_out.error());
    tell_notes(field, eval, **held_out);
  }

  void tell_notes(const char* field, const std::string& path, const data::Dataset& rows) {
    for (const std::string& note : rows.notes())
      add(Severity::Warning, std::string("spec.training.") + field, path + ": " + note);
  }

  void no_rows(const char* field, const Error& error) {
    around_.no_data = error.to_string();
    problem(field, error);
    if (files_are_ == FilesAre::Here) return;
    // Rows can be counted without a tokenizer.
    const auto options =
        data::job_rows_options(job_.training, around_.model.value_or(layout::ModelConfig()));
    if (!options) return;
    if (const auto count = data::Dataset::count_rows(files_, job_.training.data_path, *options))
      around_.facts.dataset_rows = *count;
  }

  void pack() {
    if (!job_.training.packing.value_or(false)) return;
    auto rows = measure_rows(job_, *around_.model, *around_.data);
    if (!rows) return problem("dataPath", rows.error());
    around_.facts.packed_rows = (*rows)->packs->count();
    around_.rows = std::move(*rows);
  }

  const jobspec::Job& job_;
  const FilesAre files_are_;
  PosixFiles files_;
  Surroundings around_;
};

}  // namespace

Surroundings look_around(const jobspec::Job& job, FilesAre files) {
  if (!job.runs_user_program()) return Look(job, files).take();
  Surroundings around;  // the program reads model and data itself
  around.facts.world_size = job.world_size();
  return around;
}

}  // namespace dsj::cli
