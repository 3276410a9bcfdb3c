// Beats within one process: the full fake of agent/wire/transport.h. One thread.
#pragma once

#include <memory>
#include <utility>

#include "agent/wire/transport.h"

namespace dsj::agent {

class MemoryServer final : public BeatServer {
 public:
  std::vector<WorkerReport> take() override { return std::exchange(inbox_, {}); }
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
  void send(const WorkerReport& report) override {
    if (server_->cut) {
      answer_ = fail(ErrorKind::Transient, "the network is cut", "memory transport");
      return;
    }
    server_->inbox_.push_back(report);
    answer_ = server_->board_.answer(report.worker, report.incarnation);
  }
  std::optional<Result<Directive>> receive() override {
    return std::exchange(answer_, std::nullopt);
  }
  int ready_fd() const override { return -1; }

 private:
  std::shared_ptr<MemoryServer> server_;
  std::optional<Result<Directive>> answer_;
};

}  // namespace dsj::agent
