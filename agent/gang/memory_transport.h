// Beats within one process: the fake of transport.h, for tests. One thread.
// Tested by: tests/agent/gang/transport_test.cc
#pragma once

#include <memory>

#include "agent/gang/transport.h"

namespace dsj::agent {

class MemoryServer final : public BeatServer {
 public:
  std::vector<WorkerReport> take() override;
  void publish(Board board) override { board_ = std::move(board); }
  int ready_fd() const override { return -1; }

  bool cut = false;  ///< true: beats are lost, as on a broken network

 private:
  friend class MemoryClient;
  std::vector<WorkerReport> inbox_;
  Board board_;
};

class MemoryClient final : public BeatClient {
 public:
  explicit MemoryClient(std::shared_ptr<MemoryServer> server) : server_(std::move(server)) {}
  void send(const WorkerReport& report) override;
  std::optional<Result<Directive>> receive() override;
  int ready_fd() const override { return -1; }

 private:
  std::shared_ptr<MemoryServer> server_;
  std::optional<Result<Directive>> answer_;
};

}  // namespace dsj::agent
