#include "job/dsconfig/resolve.h"

#include <algorithm>

#include "job/dsconfig/config/batch.h"
#include "job/dsconfig/read/check.h"
#include "job/dsconfig/sections/autotuning.h"
#include "job/dsconfig/sections/parts.h"

namespace dsj::dsconfig {

using nlohmann::json;

namespace {

Resolution run(const Checked& checked, const TrainingArgs& training, const Facts& facts,
               bool alone) {
  Resolution resolution{.findings = checked.findings, .complete = true};
  ResolvedConfig& config = resolution.config;
  const Source in{checked, training, facts, alone};
  Report out(in, resolution);
  read_fields(in, config);
  check_arguments(training, out);
  check_row_length(in, out);
  resolve_batch(in, config, out);
  resolve_precision(in, config, out);
  resolve_zero(in, config, out);
  resolve_optimizer(in, config, out);
  resolve_offload(in, config, out);
  resolve_master_types(in, config, out);
  resolve_autocast(in, config, out);
  resolve_adapters(in, config, out);
  const Length length = resolve_steps(in, config, out);
  check_local_steps(config, out);
  resolve_scheduler(in, length, config, out);
  if (resolution.complete && resolution.ok()) check_rates(config, out);
  resolve_data_efficiency(in, config, out);
  check_objective_rows(in, config, out);
  resolve_activation_checkpointing(in, config, out);
  resolve_cadences(in, config, out);
  resolve_best(in, config, out);
  resolve_observe(in, config, out);
  refuse_autotuning(in, out);
  check_sequence_parallel(in, config, out);
  resolution.complete = resolution.complete && resolution.ok();
  return resolution;
}

}  // namespace

Resolution resolve(const json& ds_config, const TrainingArgs& training, const Facts& facts) {
  return run(check(ds_config), training, facts, false);
}

Resolution resolve_alone(const json& ds_config) {
  const Checked checked = check(ds_config);
  const auto given = [&](const char* path) -> int64_t {
    const json* value = checked.find(path);
    return value != nullptr && value->is_number_integer() ? value->get<int64_t>() : 0;
  };
  const int64_t train = given("train_batch_size");
  const int64_t micro = given("train_micro_batch_size_per_gpu");
  const int64_t accumulation = given("gradient_accumulation_steps");
  int64_t world = 1;  // the three keys together determine it
  int64_t per_step = 0;
  if (train > 0 && micro > 0 && accumulation > 0 &&
      !__builtin_mul_overflow(micro, accumulation, &per_step) && train % per_step == 0)
    world = std::min<int64_t>(train / per_step, INT32_MAX);
  const int64_t together = std::max<int64_t>(1, given(kSequenceKey));
  if (together <= INT32_MAX / world) world *= together;
  const Facts facts{.world_size = static_cast<int>(world)};
  Resolution resolution = run(checked, {}, facts, true);
  if (train > 0 && micro > 0 && accumulation > 0)
    for (Finding& finding : resolution.findings)
      if (finding.path == "train_batch_size" && finding.severity == Finding::Severity::Error)
        finding.message = "no world size satisfies this; " + finding.message;
  return resolution;
}

}  // namespace dsj::dsconfig
