#include "cli/check/measured_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/host.h"
#include "engine/data/batches/micro_batch_sizes.h"
#include "job/dsconfig/keys/metric_curriculum.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

/// A plan should take seconds; a core tokenizes about 20,000 rows per second.
constexpr int64_t kRowsMax = 500'000;
/// Up to this many dealt rows the order is followed.
constexpr int64_t kDealtMax = 20'000'000;

data::Sampler sampler_of(const MeasuredRows& rows, const jobspec::Job& job,
                         const dsconfig::ResolvedConfig& config) {
  const TrainingArgs& training = job.training;
  data::SamplerOptions options{.rows = std::ssize(rows.dealt()),
                               .accumulation = config.gradient_accumulation_steps,
                               .world = dsconfig::data_ranks(config, job.world_size()),
                               .micro_batch = config.micro_batch_size,
                               .seed = static_cast<uint64_t>(training.seed.value_or(42)),
                               .shuffle = training.shuffle.value_or(true),
                               .drop_last = config.dataloader_drop_last,
                               .drop_last_micro_batches = config.drop_last_micro_batches};
  if (training.group_by_length.value_or(false))
    options.lengths = std::make_shared<const std::vector<int32_t>>(data::tokens_of(rows.dealt()));
  return data::Sampler(options);
}

json lengths_json(const std::vector<data::RowSize>& rows) {
  std::vector<int32_t> tokens = data::tokens_of(rows);
  std::ranges::sort(tokens);
  const auto share = [&](int64_t percent) {
    return tokens[static_cast<size_t>(percent * (std::ssize(tokens) - 1) / 100)];
  };
  return {{"shortest", tokens.front()},
          {"median", share(50)},
          {"p90", share(90)},
          {"p99", share(99)},
          {"longest", tokens.back()}};
}

}  // namespace

Result<std::shared_ptr<const MeasuredRows>> measure_rows(const jobspec::Job& job,
                                                         const layout::ModelConfig& model,
                                                         const data::JobRows& open) {
  const TrainingArgs& training = job.training;
  const int64_t longest = plan::longest_row(training, model);
  const data::Dataset& dataset = *open.rows;
  const int64_t first = held_out_rows(dataset.rows(), training);
  const int64_t count = dataset.rows() - first;
  if (count < 1) return bad_input("no rows are left to train on", training.data_path);
  if (count > kRowsMax) {
    return bad_input(std::to_string(count) + " rows are too many to measure each",
                     training.data_path);
  }
  const int threads = usable_cores();
  auto measured = std::make_shared<MeasuredRows>();
  const auto packing =
      data::packing_of(training.packing.value_or(false), training.packing_strategy.value_or("bfd"));
  const data::RowCut cut = packing ? data::cut_of(*packing) : data::RowCut::AtMaxLength;
  DSJ_TRY(measured->rows, data::row_sizes(dataset, first, count, threads, cut));
  if (cut == data::RowCut::AtMaxLength) {
    DSJ_TRY(measured->longer, data::count_long_rows(dataset, first, count, threads));
  }
  if (packing) measured->packs.emplace(measured->rows, longest, *packing);
  return std::shared_ptr<const MeasuredRows>(std::move(measured));
}

void count_with(const MeasuredRows& rows, const jobspec::Job& job, plan::MemoryInput& input) {
  input.tokens_per_row =
      rows.packs ? rows.packs->longest_row()
                 : std::ranges::max_element(rows.rows, {}, &data::RowSize::tokens)->tokens;
  input.micro_batches.clear();
  // A curriculum by metrics deals in its own order: assume the longest rows in one micro-batch.
  const bool in_order = dsconfig::metric_curricula(job.ds_config).empty();
  const auto most = data::largest_micro_batches(sampler_of(rows, job, input.config), rows.dealt(),
                                                std::max<int64_t>(1, input.config.total_steps),
                                                in_order ? kDealtMax : 0);
  for (const auto& [count, size] : most) input.micro_batches[count] = {size.tokens, size.targets};
}

json rows_json(const MeasuredRows* rows, const std::string& why, const plan::MemoryInput& input) {
  const auto largest = plan::micro_batch_tokens(input);
  json out = {{"from", rows ? "data" : "maxSeqLength"},
              {"largestMicroBatch", {{"tokens", largest.tokens}, {"targets", largest.targets}}}};
  if (!rows) {
    out["because"] = why;
    return out;
  }
  out["count"] = rows->rows.size();
  out["tokens"] = lengths_json(rows->rows);
  if (const data::LongRows& longer = rows->longer; longer.cut > 0) {
    out["cut"] = {
        {"rows", longer.cut}, {"tokens", longer.tokens}, {"withoutTarget", longer.without_target}};
    if (longer.estimated) out["cut"]["estimated"] = true;
  }
  if (rows->packs)
    out["packed"] = {{"count", rows->packs->count()},
                     {"filled", rows->packs->filled()},
                     {"strategy", name_of(rows->packs->strategy())}};
  return out;
}

}  // namespace dsj::cli
