// dsj plan JOB.yaml: shows what would run, without running it: every value of the ds_config
// with its origin, the topology, bytes per rank and elements on the wire. Exit code: 0, or 1 if
// the job does not pass the check of `dsj run` (job_check.h).
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/check/job_check.h"
#include "cli/check/measured_rows.h"
#include "cli/check/quantity.h"
#include "cli/input.h"
#include "cli/plan_text.h"
#include "cli/result_format.h"
#include "cli/roofline.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "engine/optim/lr_schedule.h"
#include "job/dsconfig/keys/resolved_json.h"
#include "job/plan/host_wire.h"
#include "job/plan/memory_model.h"
#include "job/roofline/roofline.h"
#include "job/spec/yaml.h"

namespace dsj::cli {
namespace {

using dsconfig::Finding;
using nlohmann::json;

constexpr int kRanksListed = 64;

json topology_of(const jobspec::Job& job) {
  json ranks = json::array();
  for (int rank = 0; rank < std::min(job.world_size(), kRanksListed); ++rank)
    ranks.push_back({{"rank", rank},
                     {"worker", rank / job.slots_per_worker},
                     {"localRank", rank % job.slots_per_worker}});
  return {{"worldSize", job.world_size()},
          {"replicas", job.replicas},
          {"slotsPerWorker", job.slots_per_worker},
          {"ranksPerHost", ranks_per_host(job)},
          {"ranks", ranks}};
}

json origins_of(const dsconfig::Resolution& resolution) {
  json list = json::array();
  for (const auto& origin : resolution.origins)
    list.push_back({{"path", origin.path}, {"value", origin.value}, {"from", origin.from}});
  return list;
}

json memory_of(const plan::MemoryModel& model) {
  const auto& bytes = model.bytes;
  json out = {{"stage", model.stage},
              {"parametersOfTheModel", model.parameters},
              {"trainableParameters", model.trainable},
              {"activeParameters", model.active},
              {"bytesPerRank",
               {{"parameters", bytes.parameters},
                {"gradients", bytes.gradients},
                {"optimizer", bytes.optimizer},
                {"buckets", bytes.buckets},
                {"activations", bytes.activations},
                {"peak", bytes.peak},
                {"host", bytes.host},
                {"nvme", bytes.nvme}}},
              {"hostBytesPerRank",
               {{"parameters", model.host.parameters},
                {"gradients", model.host.gradients},
                {"optimizer", model.host.optimizer},
                {"layerInputs", model.host.inputs},
                {"buffers", model.host.buffers}}},
              {"peakLiveParameters", model.peak_live_parameters},
              {"gathersPerStep", model.gathers}};
  if (model.packed_codes > 0)
    out["baseIn4BitsBytes"] = {{"codes", model.packed_codes}, {"scales", model.packed_scales}};
  return out;
}

json wire_of(const plan::WireCount& wire) {
  json out = {
      {"elementsPerStep",
       {{"gradients", wire.gradient_elements}, {"parameters", wire.parameter_elements}}},
      {"bytesPerStep", {{"gradients", wire.gradient_bytes}, {"parameters", wire.parameter_bytes}}}};
  if (wire.matrix_bytes > 0) {
    out["elementsPerStep"]["matrices"] = wire.matrix_elements;
    out["bytesPerStep"]["matrices"] = wire.matrix_bytes;
  }
  if (wire.head_bytes > 0) {
    out["elementsPerStep"]["heads"] = wire.head_elements;
    out["bytesPerStep"]["heads"] = wire.head_bytes;
  }
  // A 1-bit optimizer sends gradients before freeze_step, and momenta after it.
  if (wire.momentum_bytes > 0)
    out["afterTheFreeze"] = {
        {"elementsPerStep",
         {{"momenta", wire.momentum_elements}, {"parameters", wire.later_parameter_elements}}},
        {"bytesPerStep",
         {{"momenta", wire.momentum_bytes}, {"parameters", wire.later_parameter_bytes}}}};
  return out;
}

/// Adds to `out`, made by wire_of(wire), the algorithm of the collectives and the traffic
/// between hosts. On an accelerator NCCL chooses its own.
void add_way(json& out, const jobspec::Job& job, const plan::WireCount& wire,
             const plan::RankGroups& groups, bool accelerator) {
  if (groups.sequence > 1) out["ranksOfARow"] = groups.sequence;
  if (groups.parts_flats())
    out["groups"] = {{"ranksOfAShard", groups.shards},
                     {"replicas", groups.replicas()},
                     {"ranksOfASecondCopy", groups.near}};
  if (accelerator) {
    out["way"] = {{"collectives", "NCCL"}, {"because", "ranks compute on accelerators"}};
    return;
  }
  const Topology topology = dsj::topology_of_pods(job.replicas, job.slots_per_worker);
  const plan::HostWire sent =
      plan::bytes_between_hosts(wire, job.replicas, job.slots_per_worker, groups);
  out["way"] = {{"collectives", name_of(topology.way)},
                {"hosts", topology.hosts},
                {"ranksPerHost", topology.each},
                {"because", topology.because}};
  out["bytesBetweenHostsPerStep"] = {{"gradients", sent.gradients},
                                     {"parameters", sent.parameters}};
  if (wire.matrix_bytes > 0) out["bytesBetweenHostsPerStep"]["matrices"] = sent.matrices;
  if (wire.head_bytes > 0) out["bytesBetweenHostsPerStep"]["heads"] = sent.heads;
  if (wire.momentum_bytes > 0)
    out["afterTheFreeze"]["bytesBetweenHostsPerStep"] = {{"momenta", sent.momenta},
                                                         {"parameters", sent.later_parameters}};
}

json limits_json(const plan::Limits& limits) {
  json all = json::object();
  for (const auto& [name, limit] :
       {std::pair{"device", &limits.device}, std::pair{"host", &limits.host},
        std::pair{"outputDisk", &limits.output_disk}, std::pair{"nvmeDisk", &limits.nvme_disk},
        std::pair{"nvmeParameterDisk", &limits.nvme_parameter_disk}})
    if (limit->bytes) all[name] = {{"bytes", *limit->bytes}, {"from", limit->from}};
  return all;
}

/// Optimizer steps, epochs, and tokens if the rows were measured (`rows` is not null).
json steps_of(const dsconfig::ResolvedConfig& config, const MeasuredRows* rows) {
  json steps = {{"total", config.total_steps}};
  if (config.steps_per_epoch > 0) {
    steps["perEpoch"] = config.steps_per_epoch;
    steps["epochs"] =
        static_cast<double>(config.total_steps) / static_cast<double>(config.steps_per_epoch);
  }
  if (!rows) return steps;
  double tokens = 0;
  for (const auto& row : rows->dealt()) tokens += row.tokens;
  const double of_step = tokens / static_cast<double>(rows->dealt().size()) *
                         static_cast<double>(config.train_batch_size);
  steps["tokensPerStep"] = std::llround(of_step);
  steps["tokens"] = std::llround(of_step * static_cast<double>(config.total_steps));
  return steps;
}

/// The learning rates at the first steps, the end of the warm-up, each quarter and the end.
json schedule_of(const dsconfig::ResolvedConfig& config) {
  const int64_t total = config.total_steps, warmup = config.scheduler.warmup_steps;
  std::set<int64_t> at = {1, 2, warmup, total / 4, total / 2, total - total / 4, total};
  json rates = json::array();
  for (const int64_t step : at)
    if (step >= 1 && step <= total)
      rates.push_back({{"step", step}, {"rate", optim::rates_at(config, step - 1).lr}});
  return {{"type", config.scheduler.type}, {"warmupSteps", warmup}, {"rates", rates}};
}

json deepspeed_of(const plan::MemoryInput& input) {
  const auto estimate = plan::deepspeed_estimate(input);
  json one = {{"assumes", "mixed precision, Adam, a device of its own per rank"}};
  if (estimate.model_states > 0) one["modelStates"] = estimate.model_states;
  if (estimate.overlap_buckets > 0) one["overlapCommBuckets"] = estimate.overlap_buckets;
  return one;
}

json findings_of(const jobspec::Job& job, const std::vector<Finding>& findings) {
  json list = json::array();
  for (const Finding& finding : findings) list.push_back(jobspec::to_line(job, finding));
  return list;
}

struct PlanOptions {
  std::string file, output = "text", device;
  std::vector<std::string> line;  ///< a torchrun line instead of the file
  std::vector<std::string> overrides;
  bool elsewhere = false;
  GivenLimits given;
};

/// `--device cpu` in a torchrun line is where the ranks compute; a GPU's name requests a roofline.
bool names_a_gpu(std::string_view value) {
  return value != "cpu" && value != "cuda" && value != "auto";
}

std::string names_of_gpus() {
  std::string names;
  for (const roofline::Gpu& gpu : roofline::gpus())
    names += (names.empty() ? "" : ", ") + std::string(gpu.name);
  return names;
}

/// Why a GPU has no roofline; nullopt if it has one.
std::optional<std::string> unknown_gpu(const std::string& name) {
  if (roofline::find_gpu(name)) return std::nullopt;
  if (name.starts_with("mi"))
    return name + " is AMD's: this engine has kernels for NVIDIA GPUs only; known are " +
           names_of_gpus();
  return "\"" + name + "\" is not in the table of GPUs; known are " + names_of_gpus();
}

/// Parses the arguments. Returns the exit code if there is nothing more to do.
std::optional<int> parse(Arguments args, PlanOptions& options) {
  ArgumentParser parser{
      "Shows what a DeepSpeedJob, or the arguments of a torchrun line, would run. Exit code: 0, or "
      "1 "
      "when `dsj run` would refuse it.",
      "dsj plan"};
  parser.option("FILE", options.file,
                "a DeepSpeedJob (YAML), or a line: --nproc_per_node=2 --deepspeed ...");
  parser.option("-o,--output", options.output, "text, yaml or json")
      .one_of({"text", "yaml", "json"});
  parser.option("--set", options.overrides, "spec.path=value, any number of times").one_word_each();
  parser.flag("--elsewhere", options.elsewhere,
              "the job is for another machine: a file that is not here is a warning");
  const auto bytes = [&](const char* name, const char* what, std::optional<int64_t>& to) {
    parser.option(
        name,
        [&to](const std::string& text) -> std::optional<std::string> {
          to = parse_quantity(text);
          return to ? std::nullopt : std::optional("\"" + text + "\" is not an amount of memory");
        },
        what);
  };
  bytes("--memory", "memory of one worker, for example 8Gi (default: the limit of its container)",
        options.given.memory);
  bytes("--device-memory",
        "memory of one rank's accelerator (default: ranks compute in host memory)",
        options.given.device_memory);
  parser.option(
      "--device",
      [&](const std::string& name) {
        options.device = name;
        return unknown_gpu(name);
      },
      "a GPU: the roofline of a step on it; its memory is the limit (" + names_of_gpus() + ")");
  JobWords words = split_words(args, {{"-o"},
                                      {"--output"},
                                      {"--set"},
                                      {"--elsewhere", false},
                                      {"--memory"},
                                      {"--device-memory"},
                                      {"--device", true, names_a_gpu},
                                      {"--help", false},
                                      {"-h", false}});
  words.own.insert(words.own.end(), words.file.begin(), words.file.end());
  options.line = std::move(words.line);
  if (const auto over = parser.parse(words.own)) return over;
  if (!options.file.empty() || !options.line.empty()) return {};
  return report("plan", Error{ErrorKind::BadInput, "no FILE was given", "", "see --help"});
}

/// Reads the job. Refuses jobs whose steps are not run by this engine.
Result<Input> input_of(const PlanOptions& options) {
  DSJ_TRY(auto input, options.line.empty()
                          ? read_input(options.file, options.overrides, Reading::ByContent)
                          : read_line(options.line, options.overrides));
  if (input.syntax) return input;
  if (!input.job)
    return bad_input("this is a bare ds_config", options.file,
                     "plan needs a DeepSpeedJob; `dsj validate` checks a ds_config");
  if (input.job->runs_user_program())
    return bad_input("launcher: Command runs a program of your own", options.file,
                     "only this engine's own steps can be planned");
  return input;
}

/// The job's rows, measured now if necessary. Null, with the reason in `why`, if they cannot be.
std::shared_ptr<const MeasuredRows> rows_of(const jobspec::Job& job, const Surroundings& around,
                                            std::string& why) {
  if (around.rows) return around.rows;
  why = around.no_data;
  if (!around.data) return nullptr;
  auto measured = measure_rows(job, *around.model, *around.data);
  if (measured) return *measured;
  why = measured.error().to_string();
  return nullptr;
}

/// Adds what requires a model to `plan`: memory, limits, wire, and the roofline on `gpu` (null
/// if not requested). Errors: this job has no roofline.
Status add_model(json& plan, const jobspec::Job& job, const JobCheck& check,
                 const roofline::Gpu* gpu) {
  auto input = *check.memory;
  std::string why;
  const auto rows = rows_of(job, check.around, why);
  if (rows) count_with(*rows, job, input);
  plan["steps"] = steps_of(check.resolution.config, rows.get());
  const auto model = plan::memory_model(input);
  plan["memory"] = memory_of(model);
  plan["memory"]["deepSpeedEstimatePerGpu"] = deepspeed_of(input);
  plan["memory"]["limits"] = limits_json(check.limits);
  plan["memory"]["rows"] = rows_json(rows.get(), why, input);
  // Ranks decide about the snapshot by the longest possible row.
  const auto snapshot = snapshot_of(job, *check.memory, check.limits);
  plan["memory"]["bytesPerRank"]["snapshot"] = snapshot.bytes;
  plan["memory"]["savesBehindTheSteps"] = snapshot.bytes > 0 && snapshot.fits;
  const auto disk = plan::disk_use(input);
  plan["memory"]["disk"] = {{"checkpoint", disk.checkpoint}, {"model", disk.model}};
  plan["wire"] = wire_of(model.wire);
  add_way(plan["wire"], job, model.wire, plan::rank_groups(input.config, input.world),
          input.accelerator);
  if (gpu) {
    DSJ_TRY(plan["roofline"], roofline_json(job, input, *gpu));
  }
  return {};
}

CheckOptions check_options(const PlanOptions& options, const Input& input,
                           const roofline::Gpu* gpu) {
  CheckOptions check{.given = options.given};
  if (options.elsewhere) check.files = FilesAre::Elsewhere;
  if (input.for_cluster) check.files = FilesAre::InContainers;
  if (!gpu) return check;
  check.device = {roofline::usable_memory(*gpu), "--device " + options.device};
  check.native_products = true;
  return check;
}

}  // namespace

int run_plan(Arguments args) {
  PlanOptions options;
  if (const auto over = parse(args, options)) return *over;
  const auto input = input_of(options);
  if (!input) return report("plan", input.error());
  if (input->syntax) {
    std::fprintf(stderr, "%s\n", input->syntax->to_string().c_str());
    return 1;
  }
  const jobspec::Job& job = *input->job;
  const roofline::Gpu* const gpu = roofline::find_gpu(options.device);
  const JobCheck check = check_job(job, check_options(options, *input, gpu), ThisMachine());
  const dsconfig::Resolution& resolution = check.resolution;

  json plan = {{"name", job.name},
               {"behavesAs", dsconfig::kCompatibility},
               {"complete", resolution.complete},
               {"config", dsconfig::to_json(resolution.config)},
               {"origins", origins_of(resolution)},
               {"topology", topology_of(job)},
               {"memory", nullptr},
               {"wire", nullptr},
               {"steps", steps_of(resolution.config, nullptr)}};
  if (resolution.ok()) plan["schedule"] = schedule_of(resolution.config);
  if (check.memory) {
    if (const auto added = add_model(plan, job, check, gpu); !added)
      return report("plan", added.error());
  } else if (gpu) {
    plan["roofline"] = nullptr;  // like memory: the findings say what is missing
  }
  plan["runnable"] = check.passes();
  plan["findings"] = findings_of(job, check.findings);
  const int code = report_findings("plan", job, check.findings);
  if (!resolution.ok()) return code;  // the config is not resolved
  const std::string text = options.output == "text"   ? plan_text(plan)
                           : options.output == "json" ? document_text(plan)
                                                      : jobspec::to_yaml(plan);
  std::fputs(text.c_str(), stdout);
  return code;
}

}  // namespace dsj::cli
