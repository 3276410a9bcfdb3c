#include "agent/stacks/stack_taker.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

namespace dsj::agent {

struct StackTaker::Shared {
  std::mutex mutex;
  std::optional<std::vector<RankStacks>> taken;
};

StackTaker::StackTaker() : shared_(std::make_shared<Shared>()) {}
StackTaker::~StackTaker() = default;

bool StackTaker::start(std::vector<RankPid> ranks) {
  if (std::exchange(busy_, true)) return false;
  // When this thread ends, every hold on a rank's thread ends too.
  std::thread([shared = shared_, ranks = std::move(ranks)] {
    std::vector<RankStacks> all;
    for (const auto& [rank, pid] : ranks) {
      RankStacks one{.rank = rank, .pid = pid};
      for (const pid_t process : group_of(pid)) {
        auto stacks = stacks_of(process);
        if (stacks) {
          std::ranges::move(*stacks, std::back_inserter(one.threads));
        } else if (process == pid) {  // another process may have ended meanwhile
          one.problem = stacks.error().to_string();
        }
      }
      all.push_back(std::move(one));
    }
    const std::lock_guard lock(shared->mutex);
    shared->taken = std::move(all);
  }).detach();
  return true;
}

std::optional<std::vector<RankStacks>> StackTaker::take() {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->taken) busy_ = false;
  return std::exchange(shared_->taken, std::nullopt);
}

}  // namespace dsj::agent
