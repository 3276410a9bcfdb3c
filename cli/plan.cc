// dsj plan JOB.yaml: what would run, without running it: every value of ds_config with its origin,
// the topology, bytes per rank and elements on the wire. Exit 0, or 2 when it cannot run.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/input.h"
#include "cli/quantity.h"
#include "cli/verbs.h"
#include "common/dsconfig/memory_model.h"
#include "common/jobspec/yaml.h"

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

json memory_of(const dsconfig::MemoryModel& model) {
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
            {"total", bytes.total()}}},
          {"peakLiveParameters", model.peak_live_parameters},
          {"gathersPerStep", model.gathers}};
}

json wire_of(const dsconfig::WireCount& wire) {
  return {
      {"elementsPerStep",
       {{"gradients", wire.gradient_elements}, {"parameters", wire.parameter_elements}}},
      {"bytesPerStep", {{"gradients", wire.gradient_bytes}, {"parameters", wire.parameter_bytes}}}};
}

/// What one worker may use: its container's memory limit, else this machine's memory.
struct MemoryLimit {
  std::optional<int64_t> bytes;
  std::string from;
};

MemoryLimit memory_limit(const jobspec::Job& job) {
  const json::json_pointer limit("/spec/containers/0/resources/limits/memory");
  if (job.worker_template.is_object() && job.worker_template.contains(limit)) {
    const json& found = job.worker_template[limit];
    return {parse_quantity(found.is_string() ? found.get<std::string>() : found.dump()),
            "spec.workers.template's memory limit"};
  }
  std::ifstream file("/proc/meminfo");
  int64_t kibibytes = 0;
  for (std::string word; file >> word;)
    if (word == "MemTotal:" && file >> kibibytes)
      return {kibibytes * 1024, "this machine's memory"};
  return {};
}

/// Without a template all workers are processes of this machine.
void check_fit(const jobspec::Job& job, const dsconfig::MemoryModel& model,
               const MemoryLimit& limit, std::vector<Finding>& findings) {
  if (!limit.bytes) return;
  const bool here = job.worker_template.is_null();
  const int64_t ranks = here ? job.world_size() : job.slots_per_worker;
  const double needed = static_cast<double>(model.bytes.total()) * static_cast<double>(ranks);
  if (needed <= static_cast<double>(*limit.bytes)) return;
  findings.push_back(
      {Severity::Error, "spec",
       "DoesNotFit: " + std::to_string(ranks) + " ranks need " +
           show_bytes(static_cast<int64_t>(needed)) + ", " + limit.from + " is " +
           show_bytes(*limit.bytes),
       "a higher ZeRO stage, more workers, a smaller micro batch, or gradientCheckpointing"});
}

json findings_of(const jobspec::Job& job, const std::vector<Finding>& findings) {
  json list = json::array();
  for (const Finding& finding : findings) list.push_back(jobspec::to_line(job, finding));
  return list;
}

}  // namespace

int run_plan(Arguments args) {
  CLI::App app{"Shows what a DeepSpeedJob would run. Exit code: 0, or 2 when it cannot run.",
               "dsj plan"};
  std::string file, output = "yaml";
  std::vector<std::string> overrides;
  app.add_option("FILE", file, "a DeepSpeedJob (YAML)")->required();
  app.add_option("-o,--output", output, "yaml or json")->check(CLI::IsMember({"yaml", "json"}));
  app.add_option("--set", overrides, "spec.path=value, any number of times")
      ->type_size(1)
      ->allow_extra_args(false);
  if (const auto over = parse(app, args)) return *over;

  const auto input = read_input(file, overrides);
  if (!input) return report("plan", input.error());
  if (input->syntax) return report("plan", *input->syntax);
  if (!input->job)
    return report("plan", Error{ErrorKind::BadInput, "this is a bare ds_config", file,
                                "plan needs a DeepSpeedJob; `dsj validate` checks a ds_config"});
  const jobspec::Job& job = *input->job;
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
  if (around.model && resolution.ok()) {
    const auto model =
        dsconfig::memory_model({.model = *around.model,
                                .config = resolution.config,
                                .world = job.world_size(),
                                .tokens_per_row = job.training.max_seq_length.value_or(2048),
                                .recompute = job.training.gradient_checkpointing.value_or(false),
                                .lora = around.lora});
    const MemoryLimit limit = memory_limit(job);
    check_fit(job, model, limit, resolution.findings);
    plan["memory"] = memory_of(model);
    if (limit.bytes) plan["memory"]["limit"] = {{"bytes", *limit.bytes}, {"from", limit.from}};
    plan["wire"] = wire_of(model.wire);
  }
  plan["runnable"] = resolution.runnable();
  plan["findings"] = findings_of(job, resolution.findings);
  for (const Finding& finding : resolution.findings)
    std::fprintf(stderr, "%s\n", jobspec::to_line(job, finding).c_str());
  if (!resolution.ok()) {  // the config holds no decisions then
    std::fprintf(stderr, "dsj plan: %s cannot run\n", file.c_str());
    return 2;
  }
  const std::string text = output == "json"
                               ? plan.dump(2, ' ', false, json::error_handler_t::replace) + "\n"
                               : jobspec::to_yaml(plan);
  std::fputs(text.c_str(), stdout);
  return resolution.runnable() ? 0 : 2;
}

}  // namespace dsj::cli
