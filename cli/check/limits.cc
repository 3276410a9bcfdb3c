#include "cli/check/limits.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/check/quantity.h"
#include "common/cpu.h"
#include "common/cuda_driver.h"
#include "common/host.h"
#include "job/contract.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using dsconfig::Finding;
using nlohmann::json;
using plan::Limit;

/// The number of checkpoint directories that exist already.
int64_t checkpoints_in(const std::string& output_dir) {
  std::error_code problem;
  int64_t found = 0;
  for (const auto& entry :
       fs::directory_iterator(output_dir + "/" + contract::kCheckpointsDir, problem))
    found += entry.is_directory(problem) && !entry.path().filename().string().starts_with(".");
  return found;
}

/// The number of checkpoints (with saveOnlyModel: models) that the run adds to the disk at
/// most. A new one is written before the oldest beyond the limit is removed.
int64_t new_saves(const jobspec::Job& job, int64_t total_steps) {
  const TrainingArgs& training = job.training;
  if (training.save_strategy.value_or("steps") == "no") return 0;
  const double asked = training.save_steps.value_or(500);  // below 1: a share of the run
  const double steps = asked < 1 ? static_cast<double>(total_steps) * asked : asked;
  const auto every = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps)));
  const int64_t saves = total_steps > 0 ? (total_steps + every - 1) / every : 1;
  if (training.save_total_limit.value_or(0) < 1) return saves;
  const int64_t most = *training.save_total_limit + 1;
  return std::max<int64_t>(1, std::min(saves, most - checkpoints_in(training.output_dir)));
}

}  // namespace

std::optional<int64_t> ThisMachine::container_memory() const {
  return dsj::container_memory(root_);
}

std::optional<int64_t> ThisMachine::memory() const {
  return machine_memory(root_);
}

std::optional<int64_t> ThisMachine::free_disk(const std::string& path) const {
  std::error_code problem;
  fs::path at = fs::absolute(path, problem);
  while (!fs::exists(at, problem) && at.has_relative_path()) at = at.parent_path();
  const fs::space_info space = fs::space(at, problem);
  if (problem || space.available > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(space.available);
}

std::string ThisMachine::lacking_gpu() const {
  return cuda_driver().lacking;
}

std::optional<int64_t> ThisMachine::gpu_memory() const {
  const CudaDriver driver = cuda_driver();
  std::error_code problem;
  const fs::path here = fs::read_symlink("/proc/self/exe", problem).parent_path();
  if (driver.memory == 0 || !fs::exists(here / kCudaLibrary, problem)) return std::nullopt;
  return driver.memory;
}

/// Sets the limits of the disks with offloaded state.
static void nvme_limits(const dsconfig::Offload& offload, const Machine& machine,
                        plan::Limits& limits) {
  const dsconfig::OffloadOptimizer& optimizer = offload.optimizer;
  const dsconfig::OffloadParam& param = offload.param;
  const auto disk = [&](const std::string& path) {
    return plan::Limit{machine.free_disk(path), path};
  };
  if (optimizer.device == dsconfig::OffloadDevice::Nvme)
    limits.nvme_disk = disk(optimizer.nvme_path);
  if (param.device != dsconfig::OffloadDevice::Nvme) return;
  if (limits.nvme_disk.bytes && optimizer.nvme_path != param.nvme_path)
    limits.nvme_parameter_disk = disk(param.nvme_path);
  else
    limits.nvme_disk = disk(param.nvme_path);
}

plan::Limits limits_of(const jobspec::Job& job, const dsconfig::Offload& offload,
                       const GivenLimits& given, const Machine& machine) {
  plan::Limits limits;
  if (given.device_memory) limits.device = {given.device_memory, "--device-memory"};
  const json::json_pointer wanted("/resources/limits/memory");
  json worker;
  const json::json_pointer containers("/spec/containers");
  if (job.worker_template.contains(containers))
    for (const json& container : job.worker_template[containers])
      if (container.value("name", "") == contract::kContainerName) worker = container;
  const bool here = job.worker_template.is_null();
  if (here && !limits.device.bytes && job.training.device != "cpu")
    limits.device = {machine.gpu_memory(), "this GPU's memory"};
  if (given.memory) {
    limits.host = {given.memory, "--memory"};
  } else if (worker.contains(wanted)) {
    const json& found = worker[wanted];
    limits.host = {parse_quantity(found.is_string() ? found.get<std::string>() : found.dump()),
                   "spec.workers.template's memory limit"};
  } else if (here) {
    const HostMemory host = host_memory(machine.container_memory(), machine.memory());
    limits.host = {host.bytes, host.from};
  }
  if (here && !job.training.output_dir.empty())
    limits.output_disk = {machine.free_disk(job.training.output_dir), job.training.output_dir};
  if (here) nvme_limits(offload, machine, limits);
  return limits;
}

plan::MemoryInput memory_input(const jobspec::Job& job, const Surroundings& around,
                               const dsconfig::Resolution& resolution, const plan::Limits& limits) {
  const bool accelerator = limits.device.bytes || job.training.device == "cuda";
  return {.model = *around.model,
          .config = resolution.config,
          .world = job.world_size(),
          .tokens_per_row = plan::longest_sample(job.training, *around.model),
          .recompute = job.training.gradient_checkpointing.value_or(false),
          .native_products =
              dsconfig::product_type(resolution.config) == dsconfig::Precision::Bf16
                  ? cpu_multiplies_bf16()
                  : dsconfig::product_type(resolution.config) == dsconfig::Precision::Fp32,
          .lora = around.lora,
          .accelerator = accelerator,
          .pieces = layout::PieceRule::on(accelerator)};
}

int ranks_per_host(const jobspec::Job& job) {
  // In a line only --nnodes sets the number of workers.
  const bool on_nodes = job.written.contains("spec.workers.replicas");
  const bool here = job.worker_template.is_null() && !on_nodes;
  return here ? job.world_size() : job.slots_per_worker;
}

plan::Snapshot snapshot_of(const jobspec::Job& job, const plan::MemoryInput& memory,
                           const plan::Limits& limits) {
  return plan::plan_snapshot({.memory = memory, .ranks_per_host = ranks_per_host(job)}, limits);
}

std::vector<Finding> fit_findings(const jobspec::Job& job, const plan::MemoryInput& memory,
                                  const plan::Limits& limits) {
  const bool only_model = job.training.save_only_model.value_or(false);
  const int64_t saves = new_saves(job, memory.config.total_steps);
  std::vector<Finding> findings;
  for (const auto& misfit : plan::check_fit({.memory = memory,
                            .ranks_per_host = ranks_per_host(job),
                            .new_checkpoints = only_model ? 1 : saves,  // written by a stop
                                             .new_models = only_model ? saves : 0},
                                            limits))
    findings.push_back(
        {Finding::Severity::Error, "spec", "DoesNotFit: " + misfit.what, misfit.remedy});
  return findings;
}

}  // namespace dsj::cli
