#include "agent/gang/memory_transport.h"

#include <utility>

namespace dsj::agent {

std::vector<WorkerReport> MemoryServer::take() {
  return std::exchange(inbox_, {});
}

void MemoryClient::send(const WorkerReport& report) {
  if (server_->cut) {
    answer_ = fail(ErrorKind::Transient, "the network is cut", "memory transport");
    return;
  }
  server_->inbox_.push_back(report);
  answer_ = server_->board_.answer(report.worker, report.incarnation);
}

std::optional<Result<Directive>> MemoryClient::receive() {
  return std::exchange(answer_, std::nullopt);
}

}  // namespace dsj::agent
