// Fake agents under a test's control: each turn sets what they report and how they end; time
// passes only while the supervisor waits.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "cli/run/run_agents.h"
#include "job/report/reports.h"

namespace dsj::cli {

class FakeRunClock final : public RunClock {
 public:
  Time now() const override { return time; }
  std::string time_of_day() const override { return "2026-01-01T00:00:00Z"; }
  Time time{0};
};

class FakeAgents final : public Agents {
 public:
  FakeAgents(FakeRunClock& clock, int workers) : lives(workers), clock_(clock) {}

  struct Life {
    bool runs = false;
    int64_t incarnation = 0;
    std::optional<agent::ChildExit> exit;
    int stops = 0, kills = 0;
  };

  Status start(int worker, int64_t incarnation) override {
    if (refuse) return fail(ErrorKind::Environment, "cannot start it", "/bin/dsj-agent");
    Life& life = lives[worker];
    life.runs = true;
    life.incarnation = incarnation;
    starts.push_back({clock_.now(), worker});
    return {};
  }
  bool runs(int worker) const override { return lives[worker].runs; }
  std::optional<agent::ChildExit> take_exit(int worker) override {
    Life& life = lives[worker];
    if (!life.runs || !life.exit) return std::nullopt;
    life.runs = false;
    return std::exchange(life.exit, std::nullopt);
  }
  void ask_to_stop(int worker) override { ++lives[worker].stops; }
  void kill(int worker) override {
    ++lives[worker].kills;
    if (lives[worker].runs) lives[worker].exit = agent::ChildExit{0, 9};
  }
  std::string read_reports() override { return std::exchange(reports, {}); }
  std::string last_words(int) const override { return "one\ntwo"; }
  int take_stop_requests() override { return std::exchange(stop_requests, 0); }
  bool take_stacks_request() override { return std::exchange(stacks_requested, false); }
  void ask_for_stacks() override { ++stacks_asked; }
  /// Runs the next turn of the test; after the last one every turn is `forever`.
  void wait() override {
    clock_.time += std::chrono::milliseconds(200);
    if (turns.empty()) return forever();
    const auto turn = std::move(turns.front());
    turns.pop_front();
    turn();
  }
  void bury_strays() override {}
  void kill_strays() override { strays_killed = true; }

  void tell(const report::Report& told) { reports += to_line(told); }
  void end(int worker, int exit_code) { lives[worker].exit = agent::ChildExit{exit_code, 0}; }
  void end_all(int exit_code) {
    for (Life& life : lives) {
      if (life.runs) life.exit = agent::ChildExit{exit_code, 0};
    }
  }

  std::vector<Life> lives;
  std::deque<std::function<void()>> turns;
  std::function<void()> forever = [] {};
  std::vector<std::pair<RunClock::Time, int>> starts;
  std::string reports;
  int stop_requests = 0;
  bool stacks_requested = false;
  int stacks_asked = 0;
  bool refuse = false, strays_killed = false;

 private:
  FakeRunClock& clock_;
};

}  // namespace dsj::cli
