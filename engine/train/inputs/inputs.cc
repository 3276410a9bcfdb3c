#include "engine/train/inputs/inputs.h"

#include <ATen/Parallel.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "common/files/posix_files.h"
#include "common/startup_trace.h"
#include "engine/data/files/data_record.h"
#include "engine/data/row_sizes.h"
#include "engine/data/tokenizer/tokenizer_files.h"
#include "engine/rows/job_rows.h"
#include "engine/weights/continued_adapter.h"
#include "job/layout/trained_model.h"
#include "job/layout/trained_part.h"
#include "job/plan/memory_input.h"
#include "job/plan/muon_plan.h"
#include "job/plan/one_bit_plan.h"
#include "job/plan/row_cut_plan.h"

namespace dsj::train {
namespace {

Result<JobFile> read_job(const std::string& path) {
  std::ifstream file(path);
  if (!file) return bad_input("cannot be read", path);
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return bad_input("is not JSON", path);
  return job_file_from_json(json);
}

/// Error: all findings that prevent the start, in one message.
Status accept(const dsconfig::Resolution& resolution, const std::string& source) {
  std::string text;
  for (const auto& finding : resolution.findings) {
    if (finding.severity == dsconfig::Finding::Severity::Warning) continue;
    text += (text.empty() ? "" : "\n") + finding.path + ": " + finding.message;
    if (!finding.hint.empty()) text += " (" + finding.hint + ")";
  }
  if (!text.empty()) return bad_input(text, source);
  if (!resolution.complete)
    return bad_input("the number of steps is not known", source, "give maxSteps");
  return {};
}

/// Measures the rows to train on if packs or length groups need it. Every rank tokenizes all rows
/// for this.
Status measure_rows(Inputs& in, int64_t max_seq_length) {
  const TrainingArgs& training = in.job.training;
  const auto packing =
      data::packing_of(training.packing.value_or(false), training.packing_strategy.value_or("bfd"));
  const bool groups = training.group_by_length.value_or(false);
  const int64_t first = held_out_rows(in.dataset->rows(), training);
  const int64_t count = in.dataset->rows() - first;
  if ((!packing && !groups) || count < 1) return {};  // resolve() reports an empty data set
  DSJ_TRY(auto sizes,
          data::row_sizes(*in.dataset, first, count, at::get_num_threads(),
                          packing ? data::cut_of(*packing) : data::RowCut::AtMaxLength));
  if (packing) {
    in.packs.emplace(sizes, max_seq_length, *packing);
    sizes = in.packs->sizes();
  }
  if (groups) in.lengths = std::make_shared<const std::vector<int32_t>>(data::tokens_of(sizes));
  return {};
}

void rotate_answers(const Inputs& in, data::Dataset& dataset, int64_t held_out) {
  if (in.objective.estimates_kl())
    dataset.rotate_answers(
        dsconfig::rotated_rows(in.config().micro_batch_size, in.config().train_batch_size),
        held_out);
}

/// Reads the data files once.
Result<nlohmann::json> record_data(const Inputs& in, const data::DatasetOptions& options) {
  PosixFiles files;
  const TrainingArgs& training = in.job.training;
  data::DataRecord record{.selection = data::selection_text(options.selection),
                          .rows = in.dataset->rows(),
                          .split_rows = in.first_row(),
                          .max_seq_length = options.max_seq_length,
                          .chat_template = options.chat_template,
                          .default_system = options.default_system,
                          .by_length = in.packs || in.lengths,
                          .packing = in.packs ? std::string(name_of(in.packs->strategy())) : ""};
  DSJ_TRY(record.train, data::rows_content(files, training.data_path, options.dataset));
  if (in.eval_dataset) {
    const auto [path, dataset] = eval_source(training);
    DSJ_TRY(record.eval, data::rows_content(files, path, dataset));
  }
  DSJ_TRY(record.tokenizer, data::tokenizer_content(files, training.model_name_or_path));
  return to_json(record);
}

/// The model, and which of its parameters are trained.
Status read_model(Inputs& in) {
  const TrainingArgs& training = in.job.training;
  const auto at_argument = [](const Error& error) {
    return bad_input(error.message, "training." + error.where, error.hint);
  };
  DSJ_TRY(in.model,
          layout::read_trained_model(training.model_name_or_path, training.objective == "reward"));
  if (const Status set = layout::set_balance(training, in.model); !set)
    return at_argument(set.error());
  if (training.lora) {
    PosixFiles files;
    auto lora = weights::resolve_adapter(files, in.model, *training.lora);
    if (!lora) return at_argument(lora.error());
    in.lora = std::move(*lora);
    in.trained = in.lora;
  } else {
    const auto frozen = layout::frozen_parameters(in.model, training);
    if (!frozen) return at_argument(frozen.error());
    if (!frozen->empty()) {
      DSJ_TRY(in.trained, layout::all_but(in.model, *frozen));
    }
  }
  if (training.neftune_noise_alpha.value_or(0) > 0 && in.model.embedding_scale != 1)
    return bad_input("NEFTune's noise is not built for models that scale their embeddings",
                     "training.neftuneNoiseAlpha", "leave it out");
  return {};
}

/// Decides every setting of ds_config, now that the rows are counted.
Status resolve_config(Inputs& in, int world_size) {
  dsconfig::Facts facts{.world_size = world_size,
                        .hidden_size = in.model.hidden_size,
                        .dataset_rows = in.dataset->rows(),
                        .layers = in.model.num_layers,
                        .positions = in.model.longest_sequence(),
                        .positions_learned = in.model.learned_positions};
  if (in.packs) facts.packed_rows = in.packs->count();
  in.resolution = dsconfig::resolve(in.job.ds_config, in.job.training, facts);
  DSJ_TRY_STATUS(accept(in.resolution, in.job.ds_config_source));
  const auto units = layout::units_of(in.model, in.trained);
  DSJ_TRY_STATUS(plan::check_muon(units, in.config()));
  DSJ_TRY_STATUS(plan::check_one_bit(units, in.config()));
  DSJ_TRY_STATUS(plan::check_left_out(in.model, in.config()));
  return plan::check_row_cut(in.model, in.config());
}

/// Opens the separate evaluation rows, if there are any and the run evaluates.
Status open_eval_rows(Inputs& in, const data::DatasetOptions& options) {
  const auto& eval = in.config().eval;
  const bool evaluates = eval.on_start || eval.when.kind != dsconfig::Cadence::Kind::Never;
  const TrainingArgs& training = in.job.training;
  const auto [path, dataset] = eval_source(training);
  if (!evaluates || path.empty()) return {};
  DSJ_TRY(in.eval_dataset,
          data::Dataset::open(
              path, in.tokenizer.get(),
              data::evaluation_options(options, dataset, training.max_eval_samples.value_or(0))));
  rotate_answers(in, *in.eval_dataset, 0);
  return {};
}

}  // namespace

data::Sampler Inputs::sampler(int64_t world) const {
  return data::Sampler({.rows = rows(),
                        .accumulation = config().gradient_accumulation_steps,
                        .world = world,
                        .micro_batch = config().micro_batch_size,
                        .seed = static_cast<uint64_t>(data_seed()),
                        .shuffle = shuffle(),
                        .drop_last = config().dataloader_drop_last,
                        .drop_last_micro_batches = config().drop_last_micro_batches,
                        .lengths = lengths});
}

Result<data::Sample> sample_at(const data::Dataset& dataset, int64_t row,
                               const ReferenceLogps* reference) {
  DSJ_TRY(data::Sample sample, dataset.at(row));
  if (reference) {
    const auto& own = (*reference)[static_cast<size_t>(row)];
    sample.reference.assign(own.begin(), own.end());
    for (data::Sample& beside : sample.beside) beside.reference = {own[1]};
  }
  return sample;
}

Result<data::Sample> Inputs::training_row(int64_t row, const ReferenceLogps* reference) const {
  if (packs && data::cut_of(packs->strategy()) == data::RowCut::Never)
    return dataset->whole(first_row() + row);
  return sample_at(*dataset, first_row() + row, reference);
}

Result<data::Sample> EvalRows::at(int64_t row) const {
  return sample_at(*dataset, first + row, reference);
}

EvalRows Inputs::eval_rows() const {
  if (eval_dataset) return {eval_dataset.get(), 0, eval_dataset->rows()};
  if (first_row() > 0) return {dataset.get(), 0, first_row()};
  return {};
}

Result<Inputs> read_inputs(const RankEnv& env) {
  Inputs in;
  DSJ_TRY(in.job, read_job(env.job_file));
  const TrainingArgs& training = in.job.training;
  if (in.job.world_size != env.world_size) {
    return bad_input("worldSize is " + std::to_string(in.job.world_size) + ", WORLD_SIZE is " +
                         std::to_string(env.world_size),
                     env.job_file);
  }
  DSJ_TRY_STATUS(read_model(in));
  in.objective = dsconfig::objective_of(training);
  startup::recorder().stage_ends("settings");
  DSJ_TRY(in.tokenizer, data::tokenizer_of(training.model_name_or_path));
  DSJ_TRY_STATUS(data::choose_eos(training, in.tokenizer.get()));
  startup::recorder().stage_ends("tokenizer");
  DSJ_TRY(data::DatasetOptions options, data::job_rows_options(training, in.model));
  options.threads = at::get_num_threads();
  options.cache_writes = env.local_rank == 0;
  DSJ_TRY(in.dataset, data::Dataset::open(training.data_path, in.tokenizer.get(), options));
  DSJ_TRY_STATUS(measure_rows(in, options.max_seq_length));
  DSJ_TRY_STATUS(resolve_config(in, env.world_size));
  DSJ_TRY_STATUS(in.dataset->check_split(in.first_row()));
  rotate_answers(in, *in.dataset, in.first_row());
  DSJ_TRY_STATUS(open_eval_rows(in, options));
  if (env.rank == 0) {
    DSJ_TRY(in.data_record, record_data(in, options));
  }
  startup::recorder().stage_ends("rows");
  return in;
}

}  // namespace dsj::train
