// The memory limits of a job on this machine, and whether the job fits: the same answer for
// `dsj plan` and `dsj run`. The machine is a port, so that tests can replace it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/check/surroundings.h"
#include "job/plan/fit.h"
#include "job/plan/snapshot.h"

namespace dsj::cli {

/// Properties of the machine. nullopt if unknown.
class Machine {
 public:
  virtual ~Machine() = default;
  /// The smallest memory limit of this process's control groups, in bytes.
  virtual std::optional<int64_t> container_memory() const = 0;
  virtual std::optional<int64_t> memory() const = 0;
  /// Free bytes in the file system of `path`, or of its nearest existing parent directory.
  virtual std::optional<int64_t> free_disk(const std::string& path) const = 0;
  /// Why this process has no GPU; empty if it has one.
  virtual std::string lacking_gpu() const = 0;
  /// Bytes of its GPU with the least, if a rank would train on it: there is one, and the library for
  /// it is beside this program.
  virtual std::optional<int64_t> gpu_memory() const = 0;
};

class ThisMachine : public Machine {
 public:
  /// `root` precedes /proc and /sys: for tests.
  explicit ThisMachine(std::string root = "") : root_(std::move(root)) {}
  std::optional<int64_t> container_memory() const override;
  std::optional<int64_t> memory() const override;
  std::optional<int64_t> free_disk(const std::string& path) const override;
  std::string lacking_gpu() const override;
  std::optional<int64_t> gpu_memory() const override;

 private:
  std::string root_;
};

/// Limits from the user, which take precedence over detected limits.
struct GivenLimits {
  std::optional<int64_t> memory;         ///< --memory, per worker
  std::optional<int64_t> device_memory;  ///< --device-memory, per rank's accelerator
};

/// A rank's device memory is the given one, else that of this machine's GPUs, unless the job trains
/// on the CPU. A worker's memory is the given limit, else its container's limit in
/// spec.workers.template, else that of this container or machine. This machine's limits, and those
/// of disks, apply only without a template, because the workers then run here.
plan::Limits limits_of(const jobspec::Job& job, const dsconfig::Offload& offload,
                       const GivenLimits& given, const Machine& machine);

/// Ranks that share a host. Without a template all workers run here, unless a line has --nnodes.
int ranks_per_host(const jobspec::Job& job);

/// The memory model's input for a job. The resolution must be ok().
plan::MemoryInput memory_input(const jobspec::Job& job, const Surroundings& around,
                               const dsconfig::Resolution& resolution, const plan::Limits& limits);

/// The snapshot for saving in the background.
plan::Snapshot snapshot_of(const jobspec::Job& job, const plan::MemoryInput& memory,
                           const plan::Limits& limits);

/// One finding per limit that is exceeded ("DoesNotFit: ..."), with the remedy as its hint.
std::vector<dsconfig::Finding> fit_findings(const jobspec::Job& job,
                                            const plan::MemoryInput& memory,
                                            const plan::Limits& limits);

}  // namespace dsj::cli
