#include "job/plan/fit.h"

#include <array>
#include <functional>

#include "common/format.h"
#include "job/plan/zero_plan.h"

namespace dsj::plan {
namespace {

/// Bytes of one kind that all ranks of a host need of one limit.
struct Need {
  const char* noun;
  const Limit* limit;
  int64_t ranks;  ///< ranks that share the limit
  std::function<int64_t(const FitInput&)> bytes_per_rank;
};

int64_t device_bytes(const FitInput& input) {
  return memory_model(input.memory).bytes.peak;
}
int64_t offloaded_bytes(const FitInput& input) {
  return memory_model(input.memory).bytes.host;
}

std::vector<Need> needs_of(const FitInput& input, const Limits& limits) {
  if (input.memory.accelerator || limits.device.bytes)
    return {{"device memory", &limits.device, 1, device_bytes},
            {"host memory", &limits.host, input.ranks_per_host, offloaded_bytes}};
  return {{"host memory", &limits.host, input.ranks_per_host, [](const FitInput& one) {
             const MemoryClasses bytes = memory_model(one.memory).bytes;
             return bytes.peak + bytes.host;
           }}};
}

bool within(const Need& need, const FitInput& input) {
  return !need.limit->bytes ||
         static_cast<double>(need.bytes_per_rank(input)) * static_cast<double>(need.ranks) <=
             static_cast<double>(*need.limit->bytes);
}

bool fits(const FitInput& input, const Limits& limits) {
  for (const Need& need : needs_of(input, limits))
    if (!within(need, input)) return false;
  return true;
}

struct Change {
  std::string text;
  FitInput input;
};

void set_micro_batch(FitInput& input, int64_t rows) {
  dsconfig::ResolvedConfig& config = input.memory.config;
  config.gradient_accumulation_steps *= config.micro_batch_size / rows;
  config.micro_batch_size = rows;
}

std::string micro_batch_text(const FitInput& input) {
  const dsconfig::ResolvedConfig& config = input.memory.config;
  return "train_micro_batch_size_per_gpu " + std::to_string(config.micro_batch_size) +
         " with gradient_accumulation_steps " + std::to_string(config.gradient_accumulation_steps);
}

int highest_stage(const dsconfig::ResolvedConfig& config) {
  const int highest = dsconfig::descriptor_of(config.optimizer.kind).highest_stage;
  return config.sparse_gradients ? std::min(highest, 2) : highest;
}

/// Changes that a user can make, the cheapest for the run first: each alone, then together.
std::vector<Change> changes_of(const FitInput& input) {
  std::vector<Change> changes;
  const dsconfig::ResolvedConfig& config = input.memory.config;
  const auto stage_text = [](int stage) {
    return "zero_optimization.stage " + std::to_string(stage);
  };
  const int highest = highest_stage(config);
  if (input.memory.world > 1)
    for (int stage = config.zero.stage + 1; stage <= highest; ++stage) {
      changes.push_back({stage_text(stage), input});
      changes.back().input.memory.config.zero.stage = stage;
    }
  if (!input.memory.recompute) {
    changes.push_back({"gradientCheckpointing true", input});
    changes.back().input.memory.recompute = true;
  }
  for (int64_t rows = config.micro_batch_size - 1; rows >= 1; --rows) {
    if (config.micro_batch_size % rows != 0) continue;
    Change change{"", input};
    set_micro_batch(change.input, rows);
    change.text = micro_batch_text(change.input);
    changes.push_back(change);
  }
  Change all{"", input};
  if (input.memory.world > 1 && config.zero.stage < highest) {
    all.input.memory.config.zero.stage = highest;
    all.text = stage_text(highest);
  }
  if (!input.memory.recompute) {
    all.input.memory.recompute = true;
    all.text += std::string(all.text.empty() ? "" : ", ") + "gradientCheckpointing true";
  }
  if (!all.text.empty()) changes.push_back(all);
  for (int64_t rows = config.micro_batch_size - 1; rows >= 1; --rows) {
    if (config.micro_batch_size % rows != 0) continue;
    Change smaller = all;
    set_micro_batch(smaller.input, rows);
    smaller.text += (all.text.empty() ? "" : ", ") + micro_batch_text(smaller.input);
    changes.push_back(smaller);
  }
  return changes;
}

/// More hosts with as many ranks each, together with every other change that helps.
std::optional<std::string> more_workers(const FitInput& last, const std::string& with,
                                        const Limits& limits) {
  const int now = last.memory.world;
  for (int world = now * 2; world <= 1024; world *= 2) {
    FitInput wider = last;
    wider.memory.world = world;
    if (wider.memory.config.zero.stage == 0 || now == 1)
      wider.memory.config.zero.stage = highest_stage(wider.memory.config);
    if (!fits(wider, limits)) continue;
    const int workers = world / std::max(1, last.ranks_per_host);
    return "spec.workers.replicas " + std::to_string(workers) + " (" + std::to_string(world) +
           " ranks) with zero_optimization.stage " +
           std::to_string(wider.memory.config.zero.stage) + (with.empty() ? "" : ", " + with);
  }
  return std::nullopt;
}

std::string remedy_of(const FitInput& input, const Limits& limits, const Need& need) {
  FitInput smallest = input;
  std::string with;
  for (const Change& change : changes_of(input)) {
    smallest = change.input;
    with = change.text;
    if (!fits(change.input, limits)) continue;
    return change.text +
           " makes it fit: " + show_bytes(need.bytes_per_rank(change.input) * need.ranks);
  }
  if (const auto workers = more_workers(smallest, with, limits)) return *workers + " makes it fit";
  return "no stage, recompute, micro-batch or number of workers makes it fit: with " +
         (with.empty() ? "everything as it is" : with) + " it needs " +
         show_bytes(need.bytes_per_rank(smallest) * need.ranks);
}

void check_disk(const char* what, const Limit& limit, int64_t needed, const std::string& remedy,
                std::vector<Misfit>& misfits) {
  if (!limit.bytes || needed <= *limit.bytes) return;
  misfits.push_back({std::string(what) + " " + show_bytes(needed) + ", " + limit.from + " has " +
                         show_bytes(*limit.bytes) + " free",
                     remedy});
}

}  // namespace

std::vector<Misfit> check_fit(const FitInput& input, const Limits& limits) {
  std::vector<Misfit> misfits;
  for (const Need& need : needs_of(input, limits)) {
    if (within(need, input)) continue;
    const int64_t bytes = need.bytes_per_rank(input);
    misfits.push_back({std::to_string(need.ranks) +
                           (need.ranks == 1 ? " rank needs " : " ranks need ") +
                           show_bytes(bytes * need.ranks) + " of " + need.noun + ", " +
                           need.limit->from + " is " + show_bytes(*need.limit->bytes),
                       remedy_of(input, limits, need)});
  }
  const DiskUse disk = disk_use(input.memory);
  const int64_t output =
      input.new_checkpoints * disk.checkpoint + (1 + input.new_models) * disk.model;
  const std::string fewer =
      input.new_checkpoints > 2 && limits.output_disk.bytes &&
              2 * disk.checkpoint + disk.model <= *limits.output_disk.bytes
          ? "saveTotalLimit 1 makes it fit: " + show_bytes(2 * disk.checkpoint + disk.model)
          : "another outputDir, or free space: a checkpoint takes " + show_bytes(disk.checkpoint) +
                ", model/ " + show_bytes(disk.model);
  check_disk("checkpoints and model/ need", limits.output_disk, output, fewer, misfits);
  const MemoryModel model = memory_model(input.memory);
  const bool apart = limits.nvme_parameter_disk.bytes.has_value();
  const std::string elsewhere = "another nvme_path, or more ranks on other hosts";
  check_disk(apart ? "offload_optimizer needs" : "offload needs", limits.nvme_disk,
             (model.bytes.nvme - (apart ? model.parameter_file : 0)) * input.ranks_per_host,
             elsewhere, misfits);
  check_disk("offload_param needs", limits.nvme_parameter_disk,
             model.parameter_file * input.ranks_per_host, elsewhere, misfits);
  return misfits;
}

std::string show_bytes(int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return text::format("%.*f %s", unit == 0 ? 0 : 1, value, kUnits[unit]);
}

}  // namespace dsj::plan
