#include "agent/health/node_health.h"

#include <algorithm>
#include <cmath>

#include "common/format.h"

namespace dsj::agent {
namespace {

std::string bytes_text(int64_t bytes) {
  if (bytes < (1 << 20)) return text::format("%lld KiB", static_cast<long long>(bytes >> 10));
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 1024 ? text::format("%.0f MiB", mib) : text::format("%.1f GiB", mib / 1024);
}

/// Tokens are checked with this leeway (token.h); certificates and logs also depend on the clock.
constexpr double kClockSkew = 30;
/// Job files and sockets of one worker take less than 1 MiB.
constexpr int64_t kScratchLeast = 16 << 20;
/// Room for logs and the status file; for a checkpoint the size of the previous one is expected.
constexpr int64_t kOutputLeast = 64 << 20;
/// Shared memory for NCCL and a data loader per rank. Docker's default of 64 MiB for a whole
/// container is the usual cause of their failures.
constexpr int64_t kShmPerRank = 64 << 20;

/// XIDs after which NVIDIA's catalog requires a reset of the GPU or a restart of the node, whatever
/// program runs: a halt of the GPU or of its controllers (46, 62, 79, 110, 119, 120), memory errors
/// that affect other programs (48, 64, 95, 140), a broken NVLink (74, 136). 109 is left out,
/// because a busy GPU may report it.
constexpr int kBrokenXids[] = {46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140};

class Judge {
 public:
  Judge(const NodeFacts& facts, const NodeNeeds& needs) : facts_(facts), needs_(needs) {}

  std::vector<NodeProblem> run() {
    memory();
    disk();
    clock();
    if (facts_.driver) driver(*facts_.driver);
    return std::move(found_);
  }

 private:
  void bad(const std::string& what) { found_.push_back({true, what}); }
  void tell(const std::string& what) { found_.push_back({false, what}); }

  void memory() {
    const auto& free = facts_.memory_available;
    if (free && *free < needs_.memory_request) {
      bad("the node has " + bytes_text(*free) +
          " of memory available, and the container requests " + bytes_text(needs_.memory_request) +
          ": processes outside of pods use it");
    }
    const int64_t shm = kShmPerRank * needs_.ranks;
    if (facts_.shm_bytes && *facts_.shm_bytes < shm && needs_.ranks > 1) {
      tell("/dev/shm has " + bytes_text(*facts_.shm_bytes) + ", " + std::to_string(needs_.ranks) +
           " ranks may need " + bytes_text(shm) +
           ": raise sizeLimit of the volume that the template mounts there, or leave it out");
    }
  }

  void disk() {
    if (facts_.scratch_free && *facts_.scratch_free < kScratchLeast) {
      bad("the node's disk has " + bytes_text(*facts_.scratch_free) +
          " free for the pod's own files, expected " + bytes_text(kScratchLeast));
    }
    if (!facts_.output_free) return;
    const int64_t needed = std::max(kOutputLeast, facts_.newest_checkpoint.value_or(0));
    if (*facts_.output_free >= needed) return;
    tell("the output directory has " + bytes_text(*facts_.output_free) + " free, " +
         (needed > kOutputLeast ? "the newest checkpoint takes " : "expected at least ") +
         bytes_text(needed) + ": the next one may not fit");
  }

  void clock() {
    if (!facts_.clock_ahead || std::abs(*facts_.clock_ahead) <= kClockSkew) return;
    const auto seconds = std::to_string(std::llround(std::abs(*facts_.clock_ahead)));
    bad("the node's clock is " + seconds + " s " +
        (*facts_.clock_ahead > 0 ? "ahead of" : "behind") +
        " the API server's, at most 30 s are allowed: tokens and certificates would be refused");
  }

  void driver(const DriverFacts& driver) {
    if (!driver.problem.empty()) {
      if (needs_.gpus > 0) bad("the NVIDIA driver does not answer: " + driver.problem);
      return;
    }
    const std::string of = driver.version.empty() ? "" : " (driver " + driver.version + ")";
    if (static_cast<int>(driver.gpus.size()) < needs_.gpus) {
      bad("the container sees " + std::to_string(driver.gpus.size()) + " GPUs, it asked for " +
          std::to_string(needs_.gpus) + of);
    }
    int links = 0;
    for (const GpuFacts& gpu : driver.gpus) links = std::max(links, gpu.links_up.value_or(0));
    for (const GpuFacts& gpu : driver.gpus) {
      const std::string name = "GPU " + std::to_string(gpu.index) + of;
      faults(gpu, name);
      if (gpu.lost) bad(name + " is lost: it no longer answers; the node needs a restart");
      if (gpu.uncorrected.value_or(0) > 0) {
        bad(name + " had " + std::to_string(*gpu.uncorrected) +
            " uncorrectable memory errors since its driver was loaded: reset it");
      }
      if (gpu.remap_failed.value_or(false)) {
        bad(name + " has broken memory rows and no spare ones: replace it");
      }
      if (gpu.remap_pending.value_or(false)) {
        tell(name + " replaces broken memory rows at its next reset");
      }
      if (gpu.links_down.value_or(0) > 0 && gpu.links_up.value_or(0) < links) {
        tell(name + " has " + std::to_string(gpu.links_up.value_or(0)) +
             " NVLinks up, another GPU " + std::to_string(links));
      }
      if (gpu.link_recoveries.value_or(0) > 0) {
        tell(name + " lost the connection of an NVLink " + std::to_string(*gpu.link_recoveries) +
             " times since this pod started");
      }
    }
  }

  /// What the driver reported about a GPU, and what it requires.
  void faults(const GpuFacts& gpu, const std::string& name) {
    const std::string needs = needed(gpu.recovery.value_or(GpuRecovery::None));
    if (!needs.empty())
      bad(name + " needs " + needs + " before it works again: its driver says so");
    for (const int xid : gpu.xids) {
      const std::string told =
          name + " reported XID " + std::to_string(xid) + " since this pod started";
      if (std::ranges::find(kBrokenXids, xid) != std::end(kBrokenXids)) {
        bad(told + ": it needs a reset, or the node a restart");
      } else {
        tell(told + ": most often an error of the program that used it");
      }
    }
  }

  static std::string needed(GpuRecovery recovery) {
    switch (recovery) {
      case GpuRecovery::None:
        return "";
      case GpuRecovery::Reset:
        return "a reset";
      case GpuRecovery::Reboot:
        return "a restart of the node";
      case GpuRecovery::DrainPeers:
        return "an end of all traffic between GPUs";
      case GpuRecovery::DrainAndReset:
        return "an end of all traffic between GPUs and a reset";
    }
    return "";
  }

  const NodeFacts& facts_;
  const NodeNeeds& needs_;
  std::vector<NodeProblem> found_;
};

}  // namespace

std::vector<NodeProblem> judge_node(const NodeFacts& facts, const NodeNeeds& needs) {
  return Judge(facts, needs).run();
}

std::string unfit_because(const std::vector<NodeProblem>& problems) {
  std::string text;
  for (const NodeProblem& problem : problems) {
    if (problem.of_the_node) text += (text.empty() ? "" : "; ") + problem.what;
  }
  return text;
}

}  // namespace dsj::agent
