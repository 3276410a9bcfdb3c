// What an agent knows about its node, and the port that collects it. Values that cannot be read are
// unset and are not judged.
// Tested by: tests/agent/health/node_health_test.cc, tests/agent/health/node_probe_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dsj::agent {

/// What a GPU needs before it works again, according to the driver (NVML's GPU recovery action).
enum class GpuRecovery { None = 0, Reset = 1, Reboot = 2, DrainPeers = 3, DrainAndReset = 4 };

/// One GPU that is visible in the container, as reported by the driver's management library (NVML).
struct GpuFacts {
  int index = 0;
  bool lost = false;                        ///< it no longer answers (XID 79)
  std::optional<int64_t> uncorrected;       ///< ECC errors since the driver was loaded
  std::optional<bool> remap_failed;         ///< a broken row has no spare row left (XID 64)
  std::optional<bool> remap_pending;        ///< broken rows are replaced at the GPU's next reset
  std::optional<int> links_up, links_down;  ///< NVLinks
  /// How often an NVLink lost its connection and restored it since the first look.
  std::optional<int64_t> link_recoveries;
  std::optional<GpuRecovery> recovery;
  std::set<int> xids;  ///< reported by the driver since the first look
  bool operator==(const GpuFacts&) const = default;
};

struct DriverFacts {
  std::string version;  ///< empty if unknown
  std::string problem;  ///< why the driver does not answer; empty if it does
  std::vector<GpuFacts> gpus;
};

struct NodeFacts {
  std::optional<int64_t> memory_available;   ///< bytes that the node can still allocate
  std::optional<int64_t> scratch_free;       ///< bytes free for the agent's own files
  std::optional<int64_t> output_free;        ///< bytes free under the output directory
  std::optional<int64_t> newest_checkpoint;  ///< its bytes on disk
  std::optional<int64_t> shm_bytes;          ///< size of /dev/shm
  /// seconds ahead of the API server's clock; negative if behind
  std::optional<double> clock_ahead;
  std::optional<DriverFacts> driver;  ///< unset if NVML is not installed
};

/// Examines the node. Blocks for some milliseconds. For one thread.
class NodeProbe {
 public:
  virtual ~NodeProbe() = default;
  virtual NodeFacts look() = 0;
};

}  // namespace dsj::agent
