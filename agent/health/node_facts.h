// What an agent can see of the node that it runs on, and the port through which it looks. What
// cannot be read is unset, and is not judged.
// Tested by: tests/agent/health/node_health_test.cc, tests/agent/health/node_probe_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace dsj::agent {

/// What the driver itself says that a GPU needs before it works again (NVML's GPU recovery action).
enum class GpuRecovery { None = 0, Reset = 1, Reboot = 2, DrainPeers = 3, DrainAndReset = 4 };

/// One GPU that the container sees, as the driver's management library (NVML) tells it.
struct GpuFacts {
  int index = 0;
  bool lost = false;                        ///< it no longer answers (XID 79)
  std::optional<int64_t> uncorrected;       ///< ECC errors since the driver was loaded
  std::optional<bool> remap_failed;         ///< a broken row has no spare row left (XID 64)
  std::optional<bool> remap_pending;        ///< broken rows are replaced at the GPU's next reset
  std::optional<int> links_up, links_down;  ///< NVLinks
  /// Times that an NVLink lost its connection and made it again, since the first look.
  std::optional<int64_t> link_recoveries;
  std::optional<GpuRecovery> recovery;
  std::set<int> xids;  ///< that the driver told since the first look
  bool operator==(const GpuFacts&) const = default;
};

struct DriverFacts {
  std::string version;  ///< empty: not told
  std::string problem;  ///< why the driver does not answer; empty: it does
  std::vector<GpuFacts> gpus;
};

struct NodeFacts {
  std::optional<int64_t> memory_available;   ///< bytes that the node can still give
  std::optional<int64_t> scratch_free;       ///< bytes free for the agent's own files
  std::optional<int64_t> output_free;        ///< bytes free under the output directory
  std::optional<int64_t> newest_checkpoint;  ///< its bytes on disk
  std::optional<int64_t> shm_bytes;          ///< size of /dev/shm
  std::optional<double> clock_ahead;  ///< seconds before the API server's clock; below 0: behind
  std::optional<DriverFacts> driver;  ///< unset: there is no NVML here
};

/// Looks at the node. Blocks for some milliseconds. One thread.
class NodeProbe {
 public:
  virtual ~NodeProbe() = default;
  virtual NodeFacts look() = 0;
};

}  // namespace dsj::agent
