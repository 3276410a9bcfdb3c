// A whole gang in one process: session.h, worker.h, a network that delays and drops, ranks that end
// as a seed decides, agents that die and come back. What must never happen is checked at every
// instant; every story must end once the disturbances stop. A failure prints the seed that replays
// it.
#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "agent/gang/session.h"
#include "agent/gang/worker.h"
#include "job/contract.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;

struct Rank {
  int64_t attempt;
  bool alive = true;
  bool term = false;
  int exit_code = -1;  ///< -1: not ended by itself
};

struct Life {  ///< one incarnation of a worker's agent
  Worker core;
  std::vector<Rank> ranks;
  Time next_beat{0}, sent_at{0}, answer_at{0};
  std::optional<Directive> answer;
  bool in_flight = false, dead = false, left = false, cut = false, replaced = false;
  int64_t sequence = 0;
};

class World {
 public:
  explicit World(unsigned seed)
      : random_(seed), session_(make_config(seed), Time(0)), slots_(1 + seed % 3) {
    for (int w = 0; w < session_.config.workers; ++w) spawn(w);
    publish_fails_ = pick(40) == 0;
    stop_at_ = pick(3) == 0 ? Time(pick(30'000)) : Time(-1);
  }

  /// Runs until the job ended and every agent left. False: it did not within the time.
  bool run() {
    for (now_ = Time(0); now_ < Time(900'000); now_ += Time(20)) {
      calm_ = now_ > Time(120'000);
      if (now_ == stop_at_ - stop_at_ % 20 && stop_at_.count() >= 0) stop();
      if (!calm_ && !asleep() && pick(3000) == 0) wakes_at_ = now_ + Time(pick(12'000));
      if (ended_ && gone_at_ < Time(0)) gone_at_ = now_ + Time(15'000);
      // Agent 0 leaves, and whoever took the job's agents in takes those back that are left.
      if (gone() && !stopped_late_) stop();
      stopped_late_ = gone();
      if (!asleep()) leader(Tick{});
      for (size_t i = 0; i < lives_.size(); ++i) move(*lives_[i]);
      check();
      if (testing::Test::HasFailure()) return true;
      if (ended_ && std::ranges::all_of(lives_, [](auto& l) { return l->dead || l->left; })) {
        return true;
      }
    }
    return false;
  }
  std::map<std::string, int> outcomes;
  const Outcome& outcome() const { return session_.outcome; }
  int attempts() const { return static_cast<int>(started_.size()); }
  int departures() const { return departures_; }
  int handovers() const { return handovers_; }

 private:
  static SessionConfig make_config(unsigned seed) {
    SessionConfig config{.workers = 1 + static_cast<int>(seed % 4),
                         .last_attempt = static_cast<int64_t>(seed % 5),
                         .budget = {.limit = static_cast<int>(seed % 7)}};
    config.grace = Time(5000);
    config.stall = Time(20'000);
    return config;
  }
  int pick(int below) { return static_cast<int>(random_() % below); }

  void spawn(int worker) {
    const int64_t incarnation = ++incarnations_[worker];
    if (worker == 0 && handed_over_) succeed();
    lives_.push_back(std::make_unique<Life>(
        Life{Worker({.worker = worker, .incarnation = incarnation, .slots = slots_}, now_)}));
    if (stopped_) this->worker(*lives_.back(), StopSignal{});
  }
  /// The next agent 0 knows the attempt file and whether ranks may be left.
  void succeed() {
    SessionConfig config = session_.config;
    config.last_attempt = newest_;
    config.budget = session_.budget;
    config.quiet_until = handed_over_->clear ? now_ : now_ + config.silence;
    session_ = Session(config, now_);
    handed_over_.reset();
    ++handovers_;
  }
  void stop() {
    stopped_ = true;
    for (auto& life : lives_) {
      if (!life->dead && !life->left) worker(*life, StopSignal{});
    }
  }

  bool gone() const { return gone_at_ >= Time(0) && now_ > gone_at_; }

  /// Worker 0's agent does not run for a while.
  bool asleep() const { return now_ < wakes_at_; }

  void leader(const Event& event) {
    for (const auto& command : step(session_, event, now_)) {
      if (const auto* publish = std::get_if<PublishAttempt>(&command)) {
        EXPECT_GT(publish->attempt, newest_) << "the attempt number must rise";
        EXPECT_GT(publish->attempt, session_.config.last_attempt);
        EXPECT_FALSE(ended_);
        EXPECT_FALSE(fatal_seen_ && no_more_) << "an attempt after a fatal end";
        newest_ = publish->attempt;
        if (publish_fails_) {
          leader(PublishFailed{{ErrorKind::Environment, "disk full"}});
        } else {
          leader(Published{publish->attempt, "h", 1});
        }
      } else if (const auto* start = std::get_if<AttemptStarted>(&command)) {
        EXPECT_TRUE(started_.insert(start->attempt).second);
      } else if (const auto* failed = std::get_if<AttemptFailed>(&command)) {
        EXPECT_LE(failed->budget.used, session_.config.budget.limit);
        EXPECT_FALSE(failed->restart && session_.stop_requested)
            << "restarted after a stop request";
        if (failed->failure.signal == 0 && (failed->failure.exit_code == kExitBadInput ||
                                            failed->failure.exit_code == kExitEnvironment)) {
          fatal_seen_ = no_more_ = true;
        }
      } else if (const auto* end = std::get_if<JobEnded>(&command)) {
        EXPECT_FALSE(ended_) << "ended twice";
        if (end->outcome.handed_over) {
          EXPECT_FALSE(session_.stop_requested);
          handed_over_ = *end;
          continue;
        }
        ended_ = true;
        if (end->outcome.exit_code == kExitDone) check_done();
      }
    }
  }

  void check_done() {
    int zero = 0;
    for (auto& life : lives_) {
      for (auto& rank : life->ranks) {
        zero += rank.attempt == session_.attempt && !rank.alive && rank.exit_code == 0;
      }
    }
    EXPECT_EQ(zero, session_.config.workers * slots_) << "Done without every rank's exit 0";
  }

  void worker(Life& life, const WorkerEvent& event) {
    for (const auto& command : step(life.core, event, now_)) {
      if (const auto* launch = std::get_if<LaunchRanks>(&command)) {
        life.ranks.assign(slots_, Rank{.attempt = launch->directive.attempt});
        EXPECT_TRUE(started_.contains(launch->directive.attempt)) << "ranks before publication";
      } else if (const auto* sent = std::get_if<SignalRanks>(&command)) {
        for (int i = 0; i < static_cast<int>(life.ranks.size()); ++i) {
          auto& rank = life.ranks[i];
          if (!rank.alive) continue;
          if (sent->signal == SIGTERM)
            rank.term = true;
          else
            pending_kills_.push_back({&life, i});
        }
      } else if (std::holds_alternative<SendBeat>(command)) {
        life.next_beat = now_;
      } else if (std::holds_alternative<ExitAgent>(command)) {
        life.next_beat = now_;
        for (auto& rank : life.ranks) EXPECT_FALSE(rank.alive) << "an agent left its ranks behind";
      }
    }
  }

  void end_rank(Life& life, int local, int code, int signal) {
    Rank& rank = life.ranks[local];
    if (!rank.alive) return;
    rank.alive = false;
    rank.exit_code = signal ? -1 : code;
    worker(life, RankExited{local, code, signal, ""});
  }

  void move(Life& life) {
    if (life.dead || life.left) return;
    move_ranks(life);
    if (!calm_ && pick(8000) == 0) {  // its pod is taken away
      worker(life, DepartSignal{});
      ++departures_;
    }
    if (!calm_ && pick(4000) == 0) {  // kill -9 of the agent: its ranks go with it
      life.dead = true;
      for (auto& rank : life.ranks) rank.alive = false;
      if (!ended_) spawn(life.core.config.worker);
      return;
    }
    // Worker 0 is in the agent that leads: nothing comes between the two.
    if (life.core.config.worker != 0 && !calm_ && pick(2000) == 0) life.cut = true;
    if (!calm_ && !ended_ && pick(6000) == 0 && !life.replaced) {  // its node is lost, yet runs on
      life.cut = life.replaced = true;
      spawn(life.core.config.worker);
    }
    if (life.cut && !life.replaced && (calm_ || pick(500) == 0)) life.cut = false;
    beat(life);
    worker(life, WorkerTick{});
    if (life.left && life.core.report.departing && !ended_ && !life.replaced) {
      spawn(life.core.config.worker);
    }
  }

  void beat(Life& life) {
    if (life.answer && now_ >= life.answer_at) {
      life.in_flight = false;
      life.next_beat = now_ + life.answer->next_beat;
      worker(life, Heard{*std::exchange(life.answer, std::nullopt), life.sent_at});
    }
    if (life.in_flight && now_ - life.sent_at > Time(2000)) {  // the client's timeout
      life.in_flight = false;
      life.answer.reset();
      life.next_beat = now_;
    }
    if (!life.in_flight && now_ >= life.next_beat) {
      life.in_flight = true;
      life.sent_at = now_;
      WorkerReport report = life.core.report;
      report.sequence = ++life.sequence;
      if (gone() && report.leaving) life.left = true;
      if (asleep() || gone()) return;
      if (!life.cut) leader(Beat{report});
      if (report.leaving) life.left = true;
      if (life.cut || report.leaving) return;
      if (!calm_ && pick(50) == 0) overtaken_.push_back(report);
      if (!calm_ && pick(100) == 0) return;  // the answer is lost
      life.answer = directive_for(session_, report.worker, report.incarnation);
      life.answer_at = now_ + Time(pick(calm_ ? 40 : 1500));
    }
    if (!overtaken_.empty() && !asleep() && pick(20) == 0) {  // a copy of an old beat comes late
      leader(Beat{overtaken_.back()});
      overtaken_.pop_back();
    }
  }

  void move_ranks(Life& life) {
    auto kills = std::exchange(pending_kills_, {});
    for (auto [owner, local] : kills) {
      if (owner->dead) continue;
      end_rank(*owner, local, 0, SIGKILL);
    }
    for (int i = 0; i < static_cast<int>(life.ranks.size()); ++i) {
      Rank& rank = life.ranks[i];
      if (!rank.alive) continue;
      if (rank.term && pick(30) == 0) {
        end_rank(life, i, kExitPreempted, 0);
        continue;
      }
      const int dice = pick(calm_ ? 400 : 2500);
      if (dice < 4)
        end_rank(life, i, kExitDone, 0);
      else if (dice == 5 && !calm_)
        end_rank(life, i, kExitFailed, 0);
      else if (dice == 6 && !calm_)
        end_rank(life, i, 0, SIGSEGV);
      else if (dice == 7 && !calm_)
        end_rank(life, i, kExitPeerLost, 0);
      else if (dice == 8 && !calm_ && pick(5) == 0)
        end_rank(life, i, kExitBadInput, 0);
      else if (dice == 9 && !calm_)
        leader(CheckpointSaved{session_.newest_checkpoint + 1});
      else if (dice < 300)
        worker(life, RankStep{i, ++steps_});
    }
  }

  void check() {
    std::set<int64_t> alive;
    std::map<std::pair<int64_t, int>, int> owners;
    for (auto& life : lives_) {
      for (size_t i = 0; i < life->ranks.size(); ++i) {
        if (!life->ranks[i].alive) continue;
        alive.insert(life->ranks[i].attempt);
        ++owners[{life->core.config.worker, static_cast<int>(i)}];
      }
    }
    EXPECT_LE(alive.size(), 1u) << "ranks of two attempts at " << now_.count() << " ms";
    for (const auto& [rank, number] : owners) EXPECT_EQ(number, 1) << "one rank twice";
  }

  std::mt19937 random_;
  Session session_;
  int slots_;
  std::map<int, int64_t> incarnations_;
  std::vector<std::unique_ptr<Life>> lives_;
  std::vector<std::pair<Life*, int>> pending_kills_;
  std::set<int64_t> started_;
  std::vector<WorkerReport> overtaken_;
  Time now_{0}, stop_at_{-1}, wakes_at_{0}, gone_at_{-1};
  int64_t newest_ = 0, steps_ = 0;
  std::optional<JobEnded> handed_over_;  ///< agent 0 leaves, and its successor has not come yet
  int departures_ = 0, handovers_ = 0;
  bool publish_fails_ = false, ended_ = false, stopped_ = false, calm_ = false;
  bool fatal_seen_ = false, no_more_ = false, stopped_late_ = false;
};

TEST(SessionProperty, NothingForbiddenHappensAndEveryStoryEnds) {
  std::map<std::string, int> outcomes;
  int most_attempts = 0, departures = 0, handovers = 0;
  for (unsigned seed = 1; seed <= 1500; ++seed) {
    World world(seed);
    const bool ended = world.run();
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    ASSERT_TRUE(ended) << "seed " << seed << ": the job did not end";
    ++outcomes[world.outcome().reason];
    most_attempts = std::max(most_attempts, world.attempts());
    departures += world.departures();
    handovers += world.handovers();
  }
  // The stories are worth telling only if they differ.
  EXPECT_GT(outcomes["Completed"], 20);
  EXPECT_GT(outcomes["BackoffLimitExceeded"], 20);
  EXPECT_GT(outcomes["BadInput"], 0);
  EXPECT_GT(outcomes["Preempted"], 5);
  EXPECT_GT(outcomes["CannotStartAttempt"], 0);
  EXPECT_GT(most_attempts, 4);
  EXPECT_GT(departures, 1000);
  EXPECT_GT(handovers, 50);
  for (const auto& [reason, number] : outcomes) std::cout << reason << ": " << number << "\n";
}

}  // namespace
}  // namespace dsj::agent
