// A run on several machines, with torchrun's words: each machine runs the same line with its own --node_rank. What torchrun
// reads from its environment (PET_NNODES and the like, which Kubeflow Trainer sets) is read here, too; the line counts more.
// Node 0 has worker 0's agent at --master_addr and --master_port. All nodes share the output directory: there the others find
// node 0's address and the key of the run (run_follower.h).
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
  int master_port = 0;  ///< 0: any free one
  /// How long nodes wait for each other: torchrun's --rdzv_conf. Node 0's counts for all.
  std::chrono::seconds join_limit{900};
  bool several() const { return count > 1; }
};

/// Reads one variable of the environment; empty: it is not set.
using Variable = std::function<std::string(const char*)>;

/// Takes what says where this machine is out of a torchrun line, and adds to the line what only the environment says of the job
/// (--nnodes, --nproc_per_node, --max_restarts). BadInput: a number that is none, an elastic number of nodes, a rank that no node
/// has.
Result<Nodes> take_nodes(std::vector<std::string>& line, const Variable& variable);
/// The same for a manifest, which has no words for machines. BadInput: the environment has several nodes.
Status one_node(const Variable& variable);

/// How an address is looked up; the fake's answers are in tests/cli/run/run_nodes_test.cc.
class Names {
 public:
  virtual ~Names() = default;
  /// All addresses of a name, or of an address; empty: it is not known now.
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

/// Which address of this machine `host` leads to. The name of a pod may come after the pod: it is looked up for a minute.
/// BadInput: no machine, or another one.
Result<std::string> own_address(const std::string& host, Names& names);

}  // namespace dsj::cli
