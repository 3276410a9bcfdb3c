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

/// Tokens are checked with this leeway (token.h); certificates and logs suffer, too.
constexpr double kClockSkew = 30;
/// Job files and sockets of one worker take less than 1 MiB.
constexpr int64_t kScratchLeast = 16 << 20;
/// Logs and the status file; a checkpoint is judged by the one before it.
constexpr int64_t kOutputLeast = 64 << 20;
/// NCCL's and a data loader's segments of one rank; Docker's default of 64 MiB for a whole container
/// is the usual cause of their failures.
constexpr int64_t kShmPerRank = 64 << 20;

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
          ": something outside the pods uses it");
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
             " NVLinks up, another one " + std::to_string(links));
      }
    }
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
