// Ranks that a test plays: it says what they write and how they end.
#pragma once

#include <map>
#include <vector>

#include "agent/ranks/ranks.h"

namespace dsj::agent {

class FakeRanks final : public Ranks {
 public:
  struct Process {
    RankStart start;
    std::string events;
    std::vector<int> signals;
    std::optional<ChildExit> exit;
    bool forgotten = false;
    RankSight sight;
  };

  Result<RankProcess> start(const RankStart& start) override {
    if (refuse) return fail(ErrorKind::Environment, "cannot start it", start.command[0]);
    processes[++last_pid] = {.start = start};
    return RankProcess{.pid = last_pid};
  }
  void signal(const RankProcess& rank, int number) override {
    processes.at(rank.pid).signals.push_back(number);
    if (number == 9) processes.at(rank.pid).exit = ChildExit{0, 9};
  }
  std::string read_events(const RankProcess& rank) override {
    return std::exchange(processes.at(rank.pid).events, {});
  }
  std::optional<ChildExit> poll_exit(const RankProcess& rank) override {
    return processes.at(rank.pid).exit;
  }
  void forget(const RankProcess& rank) override { processes.at(rank.pid).forgotten = true; }
  RankSight look(const RankProcess& rank) override { return processes.at(rank.pid).sight; }
  bool begin_stacks(std::vector<RankPid> ranks) override {
    if (!asked_stacks.empty()) return false;
    asked_stacks = std::move(ranks);
    return true;
  }
  std::optional<std::vector<RankStacks>> taken_stacks() override {
    if (stacks) asked_stacks.clear();
    return std::exchange(stacks, std::nullopt);
  }
  std::string last_words(const RankProcess&, size_t) override { return "last words"; }
  Result<StoreSocket> open_store(const std::string&) override {
    ++open_stores;
    return StoreSocket{77, 4000 + open_stores};
  }
  void close_store(const StoreSocket& store) override { open_stores -= store.fd >= 0; }

  bool refuse = false;
  int open_stores = 0;
  pid_t last_pid = 0;
  std::vector<RankPid> asked_stacks;              ///< what is being taken
  std::optional<std::vector<RankStacks>> stacks;  ///< the test's answer
  std::map<pid_t, Process> processes;
};

class FakeReports final : public Reports {
 public:
  void report(const report::Report& told) override { all.push_back(told); }
  bool flush() override { return false; }
  int fd() const override { return -1; }
  /// The last report of a kind; a new one when there was none.
  template <typename Kind>
  Kind last() const {
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
      if (const auto* found = std::get_if<Kind>(&*it)) return *found;
    }
    return {};
  }
  std::vector<report::Report> all;
};

}  // namespace dsj::agent
