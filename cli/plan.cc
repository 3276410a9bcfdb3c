// dsj plan JOB.yaml: what would run, without running it. It prints every value of ds_config with
// its origin, the topology, bytes per rank and elements on the wire. Exit 0, or 2 if the job cannot
// run.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/input.h"
#include "cli/limits.h"
#include "cli/measured_rows.h"
#include "cli/quantity.h"
#include "cli/roofline.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "job/dsconfig/resolved_json.h"
#include "job/plan/host_wire.h"
#include "job/plan/memory_model.h"
#include "job/plan/row_plan.h"
#include "job/roofline/roofline.h"
#include "job/spec/yaml.h"

namespace dsj::cli {
namespace {

using dsconfig::Finding;
using nlohmann::json;
using Severity = Finding::Severity;

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
  return {{"stage", model.stage},
          {"parametersOfTheModel", model.parameters},
          {"trainableParameters", model.trainable},
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
  // A 1-bit optimizer sends gradients before its freeze, and momenta after it.
  if (wire.momentum_bytes > 0)
    out["afterTheFreeze"] = {
        {"elementsPerStep",
         {{"momenta", wire.momentum_elements}, {"parameters", wire.later_parameter_elements}}},
        {"bytesPerStep",
         {{"momenta", wire.momentum_bytes}, {"parameters", wire.later_parameter_bytes}}}};
  return out;
}

/// Adds to `out`, which is wire_of(wire), the way of the collectives and what it brings from host to
/// host. NCCL on an accelerator finds its own.
void add_way(json& out, const jobspec::Job& job, const plan::WireCount& wire, bool accelerator) {
  if (accelerator) {
    out["way"] = {{"collectives", "NCCL"}, {"because", "ranks compute on accelerators"}};
    return;
  }
  const Topology topology = dsj::topology_of_pods(job.replicas, job.slots_per_worker);
  const plan::HostWire sent = plan::bytes_between_hosts(wire, topology);
  out["way"] = {{"collectives", name_of(topology.way)},
                {"hosts", topology.hosts},
                {"ranksPerHost", topology.each},
                {"because", topology.because}};
  out["bytesBetweenHostsPerStep"] = {{"gradients", sent.gradients},
                                     {"parameters", sent.parameters}};
  if (wire.matrix_bytes > 0) out["bytesBetweenHostsPerStep"]["matrices"] = sent.matrices;
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
  std::string file, output = "yaml", device;
  std::vector<std::string> overrides;
  GivenLimits given;
};

/// The exit code, if there is nothing more to do.
std::optional<int> parse(Arguments args, PlanOptions& options) {
  ArgumentParser parser{
      "Shows what a DeepSpeedJob would run. Exit code: 0, or 2 when it cannot run.", "dsj plan"};
  parser.option("FILE", options.file, "a DeepSpeedJob (YAML)").required();
  parser.option("-o,--output", options.output, "yaml or json").one_of({"yaml", "json"});
  parser.option("--set", options.overrides, "spec.path=value, any number of times").one_word_each();
  const auto bytes = [&](const char* name, const char* what, std::optional<int64_t>& to) {
    parser.option(
        name,
        [&to](const std::string& text) -> std::optional<std::string> {
          to = parse_quantity(text);
          return to ? std::nullopt : std::optional("\"" + text + "\" is no amount of memory");
        },
        what);
  };
  bytes("--memory", "of one worker, for example 8Gi (default: what its container may use)",
        options.given.memory);
  bytes("--device-memory", "of one rank's accelerator (default: ranks compute in host memory)",
        options.given.device_memory);
  std::vector<std::string> gpus;
  for (const roofline::Gpu& gpu : roofline::gpus()) gpus.emplace_back(gpu.name);
  parser
      .option("--device", options.device,
              "a GPU: the roofline of a step on it; its memory is the limit")
      .one_of(gpus);
  return parser.parse(args);
}

/// The job of the file, if it is one whose steps are this engine's.
Result<jobspec::Job> job_of(const PlanOptions& options) {
  DSJ_TRY(auto input, read_input(options.file, options.overrides));
  if (input.syntax) return std::unexpected(*input.syntax);
  if (!input.job)
    return bad_input("this is a bare ds_config", options.file,
                     "plan needs a DeepSpeedJob; `dsj validate` checks a ds_config");
  if (input.job->runs_user_program())
    return bad_input("launcher: Command runs a program of your own", options.file,
                     "only this engine's own steps can be planned");
  return std::move(*input.job);
}

/// The warning about a copy that does not fit.
Finding saving_waits(const plan::Snapshot& snapshot, const plan::Limits& limits) {
  return {Severity::Warning, "spec",
          "the steps wait while a checkpoint is written: a copy of " +
              plan::show_bytes(snapshot.bytes) + " per rank does not fit into " + limits.host.from,
          "more memory, or a higher zero_optimization.stage"};
}

/// The rows of the job, measured now unless they were; else why they cannot be.
std::shared_ptr<const MeasuredRows> rows_of(const jobspec::Job& job, const Surroundings& around,
                                            std::string& why) {
  if (around.rows) return around.rows;
  auto measured = measure_rows(job, *around.model, around.model_directory);
  if (measured) return *measured;
  why = measured.error().to_string();
  return nullptr;
}

/// The memory model's input, with what a GPU is known to do.
plan::MemoryInput input_on(const roofline::Gpu* gpu, const PlanOptions& options,
                           plan::MemoryInput input) {
  if (gpu) input.native_products = true;
  input.accelerator = input.accelerator || gpu || options.given.device_memory;
  return input;
}

/// Adds what only a model tells to `plan`: memory, limits, wire, the roofline on `gpu` (null: none
/// is asked for). What does not fit joins the findings of `resolution`. True: it fits. Error: this
/// job has no roofline.
Result<bool> add_model(json& plan, const jobspec::Job& job, const Surroundings& around,
                       const PlanOptions& options, dsconfig::Resolution& resolution) {
  const roofline::Gpu* const gpu = roofline::find_gpu(options.device);
  const auto bound = input_on(gpu, options, memory_input(job, around, resolution));
  auto input = bound;
  std::string why;
  const auto rows = rows_of(job, around, why);
  if (rows) count_with(*rows, job, input);
  const auto model = plan::memory_model(input);
  auto limits = limits_of(job, resolution.config.offload, options.given, ThisMachine());
  if (gpu && !limits.device.bytes)
    limits.device = {roofline::usable_memory(*gpu), "--device " + options.device};
  const auto misfits = fit_findings(job, input, limits);
  resolution.findings.insert(resolution.findings.end(), misfits.begin(), misfits.end());
  plan["memory"] = memory_of(model);
  plan["memory"]["deepSpeedEstimatePerGpu"] = deepspeed_of(input);
  plan["memory"]["limits"] = limits_json(limits);
  plan["memory"]["rows"] = rows_json(rows.get(), why, input);
  // The ranks decide about the copy by the longest row that may come.
  const auto snapshot = snapshot_of(job, bound, limits);
  plan["memory"]["bytesPerRank"]["snapshot"] = snapshot.bytes;
  plan["memory"]["savesBehindTheSteps"] = snapshot.bytes > 0 && snapshot.fits;
  if (misfits.empty() && !snapshot.fits)
    resolution.findings.push_back(saving_waits(snapshot, limits));
  const auto units = layout::units_of(input.model, input.lora);
  if (const auto why = plan::dense_because(units, resolution.config); !why.empty())
    resolution.findings.push_back({Severity::Warning, "sparse_gradients", why, "remove it"});
  const auto disk = plan::disk_use(input);
  plan["memory"]["disk"] = {{"checkpoint", disk.checkpoint}, {"model", disk.model}};
  plan["wire"] = wire_of(model.wire);
  add_way(plan["wire"], job, model.wire, input.accelerator);
  if (gpu) {
    DSJ_TRY(plan["roofline"], roofline_json(job, input, *gpu));
  }
  return misfits.empty();
}

}  // namespace

int run_plan(Arguments args) {
  PlanOptions options;
  if (const auto over = parse(args, options)) return *over;
  const auto read = job_of(options);
  if (!read) return report("plan", read.error());
  const jobspec::Job& job = *read;
  const Surroundings around = look_around(job);
  dsconfig::Resolution resolution = jobspec::resolve(job, around.facts);
  resolution.findings.insert(resolution.findings.end(), around.findings.begin(),
                             around.findings.end());

  json plan = {{"name", job.name},
               {"behavesAs", dsconfig::kCompatibility},
               {"complete", resolution.complete},
               {"config", dsconfig::to_json(resolution.config)},
               {"origins", origins_of(resolution)},
               {"topology", topology_of(job)},
               {"memory", nullptr},
               {"wire", nullptr}};
  bool fits = true;
  if (around.model && resolution.ok()) {
    const auto added = add_model(plan, job, around, options, resolution);
    if (!added) return report("plan", added.error());
    fits = *added;
  } else if (!options.device.empty()) {
    plan["roofline"] = nullptr;  // as memory: the findings say what is missing
  }
  plan["runnable"] = resolution.runnable();
  plan["findings"] = findings_of(job, resolution.findings);
  for (const Finding& finding : resolution.findings)
    std::fprintf(stderr, "%s\n", jobspec::to_line(job, finding).c_str());
  if (!resolution.ok() && fits) {  // then the config is not decided
    std::fprintf(stderr, "dsj plan: %s cannot run\n", options.file.c_str());
    return 2;
  }
  const std::string text = options.output == "json"
                               ? plan.dump(2, ' ', false, json::error_handler_t::replace) + "\n"
                               : jobspec::to_yaml(plan);
  std::fputs(text.c_str(), stdout);
  return resolution.runnable() ? 0 : 2;
}

}  // namespace dsj::cli
