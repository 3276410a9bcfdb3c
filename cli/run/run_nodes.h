// A run on several machines, with torchrun's options: each machine runs the same line with its
// own --node_rank. Variables that torchrun reads (PET_NNODES and others, set by Kubeflow
// Trainer) are read, too; the line takes precedence. Node 0 runs worker 0's agent at
// --master_addr and --master_port. All nodes share the output directory, where the others find
// node 0's address and the run's key (run_follower.h).
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::cli {

struct Nodes {
  int count = 1;
  int rank = 0;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;  ///< 0 means any free port
  /// How long nodes wait for each other: torchrun's --rdzv_conf. Node 0's value applies to all.
  std::chrono::seconds join_limit{900};
  bool several() const { return count > 1; }
};

/// Reads an environment variable; empty if it is not set.
using Variable = std::function<std::string(const char*)>;

/// Removes the options that describe this machine from a torchrun line, and adds what only the
/// environment says about the job (--nnodes, --nproc_per_node, --max_restarts). Errors:
/// BadInput for an invalid number, an elastic number of nodes, or a rank outside it.
Result<Nodes> take_nodes(std::vector<std::string>& line, const Variable& variable);
/// The same for a manifest. Errors: BadInput if the environment has several nodes.
Status one_node(const Variable& variable);

/// The port for name resolution; its fake is in tests/cli/run/run_nodes_test.cc.
class Names {
 public:
  virtual ~Names() = default;
  /// All addresses of a name or address; empty if it does not resolve now.
  virtual std::vector<std::string> addresses(const std::string& host) = 0;
  virtual bool is_own(const std::string& address) = 0;
  virtual void wait(std::chrono::milliseconds time) = 0;
};
class SystemNames final : public Names {
 public:
  std::vector<std::string> addresses(const std::string& host) override;
  bool is_own(const std::string& address) override;
  void wait(std::chrono::milliseconds time) override;
};

/// The address of this machine that `host` resolves to. A pod's name may resolve later than the
/// pod starts, so it is looked up for a minute. Errors: BadInput if it resolves to no machine,
/// or to another one.
Result<std::string> own_address(const std::string& host, Names& names);

}  // namespace dsj::cli
