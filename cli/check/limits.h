// What a job may use on this machine, and whether it fits: the same answer for `dsj plan` and
// `dsj run`. The machine is a port, so that tests bring their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/check/surroundings.h"
#include "job/plan/fit.h"
#include "job/plan/snapshot.h"

namespace dsj::cli {

/// What the machine says. nullopt: it does not know.
class Machine {
 public:
  virtual ~Machine() = default;
  /// The smallest limit of this process's control groups, bytes.
  virtual std::optional<int64_t> container_memory() const = 0;
  virtual std::optional<int64_t> memory() const = 0;
  /// Free bytes of the file system of `path`, or of its nearest directory that exists.
  virtual std::optional<int64_t> free_disk(const std::string& path) const = 0;
  /// Why it has no GPU for this process; empty: it has one.
  virtual std::string lacking_gpu() const = 0;
};

class ThisMachine : public Machine {
 public:
  /// `root` precedes /proc and /sys: for tests.
  explicit ThisMachine(std::string root = "") : root_(std::move(root)) {}
  std::optional<int64_t> container_memory() const override;
  std::optional<int64_t> memory() const override;
  std::optional<int64_t> free_disk(const std::string& path) const override;
  std::string lacking_gpu() const override;

 private:
  std::string root_;
};

/// Limits given by the user. Each wins over what is found.
struct GivenLimits {
  std::optional<int64_t> memory;         ///< --memory, per worker
  std::optional<int64_t> device_memory;  ///< --device-memory, per rank's accelerator
};

/// A worker's memory is the given one, else its container's limit in spec.workers.template, else
/// this container's or machine's. The last, and the limits of disks, hold only without a template:
/// then the workers run here.
plan::Limits limits_of(const jobspec::Job& job, const dsconfig::Offload& offload,
                       const GivenLimits& given, const Machine& machine);

/// Ranks that share a host. Without a template all workers run on this machine, unless a line has --nnodes.
int ranks_per_host(const jobspec::Job& job);

/// The memory model's input for a job. The resolution must be ok().
plan::MemoryInput memory_input(const jobspec::Job& job, const Surroundings& around,
                               const dsconfig::Resolution& resolution);

/// The copy for saving behind the steps.
plan::Snapshot snapshot_of(const jobspec::Job& job, const plan::MemoryInput& memory,
                           const plan::Limits& limits);

/// One Error per thing that does not fit ("DoesNotFit: ..."), with the remedy as its hint.
std::vector<dsconfig::Finding> fit_findings(const jobspec::Job& job,
                                            const plan::MemoryInput& memory,
                                            const plan::Limits& limits);

}  // namespace dsj::cli
