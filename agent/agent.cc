#include "agent/agent.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "common/host.h"
#include "common/log.h"
#include "common/startup_trace.h"
#include "job/contract.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;

constexpr Time kLongestTurn{250}, kStacksTurn{100};
constexpr Time kLeaveTimeout{3000};

SessionConfig session_config(const AgentConfig& config, int64_t last_attempt, Time now) {
  return {.workers = config.replicas,
          .last_attempt = last_attempt,
          .budget = config.budget,
          .operated = config.operated,
          .silence = config.silence,
          .blame = config.blame,
          .grace = config.grace,
          .stall = config.stall,
          .link_percent = config.link_percent,
          .gather_limit = config.gather_limit,
          .quiet_until = config.predecessor ? now + config.silence : now};
}

std::string when(Time pause) {
  return pause > Time(0) ? "in " + std::to_string(pause.count()) + " ms" : "at once";
}

}  // namespace

Result<Agent> Agent::make(const AgentConfig& config, int worker, int64_t incarnation,
                          AgentPorts ports, Time now) {
  Agent agent(config, worker, incarnation, ports, now);
  if (worker != 0) return agent;
  DSJ_TRY(const int64_t in_file, agent.attempts_.newest());
  const int64_t last = std::max(in_file, config.last_attempt);
  AgentConfig known = config;
  known.predecessor = config.predecessor && agent.attempts_.ended() < last;
  agent.session_.emplace(session_config(known, last, now), now);
  DSJ_TRY(MetricsFile metrics, MetricsFile::open(path_join(config.job.output_dir, kMetricsFile)));
  agent.metrics_.emplace(std::move(metrics));
  return agent;
}

Agent::Agent(const AgentConfig& config, int worker, int64_t incarnation, AgentPorts ports, Time now)
    : config_(config),
      ports_(ports),
      attempts_(ports.files, config.job.output_dir),
      worker_({.worker = worker,
               .incarnation = incarnation,
               .slots = config.slots,
               .own_codes = config.user_program,
               .lease = config.lease,
               .join_timeout = config.join_timeout},
              now) {
  if (ports_.links) worker_.report.link = ports_.links->place();
  const int cores = usable_cores();
  threads_ = threads_per_rank(cores, config.ranks_on_host);
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    log::info("OMP_NUM_THREADS=" + std::to_string(threads_) + ": " + std::to_string(cores) +
              " cores for " + std::to_string(config.ranks_on_host) +
              " ranks of this machine (set it to choose)");
  }
}

void Agent::turn(Time now) {
  turned_ = now;
  watch_ranks(now);
  take_stacks(now);
  take_paces(now);
  take_link(now);
  if (session_) {
    decide(ports_.server ? Event(Beats{ports_.server->take()}) : Event(Tick{}), now);
  }
  hear(now);
  beat(now);
  react(WorkerTick{}, now);
  if (ports_.server) ports_.server->publish(board_of(*session_));
  leave(now);
}

void Agent::stop(Time now) {
  log::info("stop requested: the ranks save and end");
  react(StopSignal{}, now);
}

void Agent::account(int64_t attempt, const RestartBudget& budget, Time now) {
  if (session_) decide(Accounted{attempt, budget}, now);
}

std::optional<int64_t> Agent::newer_attempt() const {
  const auto newest = attempts_.newest();
  if (published_ == 0 || !newest || *newest <= published_) return std::nullopt;
  return *newest;
}

void Agent::wait_for(Time grace, Time stall) {
  if (!session_) return;
  session_->config.grace = grace;
  session_->config.stall = stall;
}

void Agent::want_stacks(int64_t request, Time now) {
  log::info("taking the stacks of all ranks, as requested");
  if (session_) decide(StacksWanted{request}, now);
}

void Agent::depart(Time now) {
  log::info("the pod is being removed: all ranks save, then this agent leaves");
  react(DepartSignal{}, now);
}

void Agent::abandon(const std::string& why, Time now) {
  log::error("this agent gives up its ranks: " + why);
  react(Heard{{.order = Order::Finish, .exit_code = kExitPeerLost}, now}, now);
}

std::vector<Agent::RankLog> Agent::rank_logs() const {
  std::vector<RankLog> logs;
  for (const auto& rank : ranks_) {
    logs.push_back(
        {rank.rank, rank.process.pid, rank.running, rank.process.log_file, rank.process.log_from});
  }
  return logs;
}

Time Agent::next_turn(Time now) const {
  // Stacks that are being taken have no descriptor to poll.
  if (stacks_begun_ > 0) return now + kStacksTurn;
  if (beat_under_way_ || last_beat_sent_) return now + kLongestTurn;
  return beat_wanted_ ? now : std::clamp(next_beat_, now, now + kLongestTurn);
}

std::vector<int> Agent::event_fds() const {
  std::vector<int> fds;
  for (const auto& rank : ranks_) {
    if (rank.running && rank.process.event_fd >= 0) fds.push_back(rank.process.event_fd);
  }
  return fds;
}

// ---- worker 0's decisions

void Agent::decide(const Event& event, Time now) {
  for (const auto& command : step(*session_, event, now)) {
    beat_wanted_ = true;  // this worker's directive may have changed
    carry_out(command, now);
  }
}

void Agent::carry_out(const Command& command, Time now) {
  if (const auto* publish = std::get_if<PublishAttempt>(&command)) {
    publish_attempt(*publish, now);
  } else if (const auto* started = std::get_if<AttemptStarted>(&command)) {
    startup::recorder().stage_ends("attempt");
    log::info("attempt " + std::to_string(started->attempt) + " starts with " +
              std::to_string(started->world_size) + " ranks");
    ports_.reports.report(
        report::Attempt{.attempt = started->attempt, .world_size = started->world_size});
  } else if (const auto* yielded = std::get_if<AttemptYielded>(&command)) {
    log::info("attempt " + std::to_string(yielded->attempt) + " has ended: " + yielded->message +
              "; the next one starts when its successor has joined");
  } else if (const auto* failed = std::get_if<AttemptFailed>(&command)) {
    const Failure& failure = failed->failure;
    startup::recorder().stage_ends("other ranks end");
    log::error("attempt " + std::to_string(failure.attempt) + " failed: " + failure.message +
               (failed->restart ? "; the next one starts " + when(failed->pause) : ""));
    ports_.reports.report(report::Failure{
        .attempt = failure.attempt,
        .worker = failure.worker,
        .rank = failure.rank,
        .exit_code = failure.exit_code,
        .signal = failure.signal,
        .step = failure.step,
        .reason = failure.reason,
        .message = failure.message,
        .last_words = failure.last_words,
        .collective = failure.collective,
        .missing_ranks = failure.missing_ranks,
        .pause_ms = failed->pause.count(),
        .restarts_used = failed->budget.used,
        .restarts_total = failed->budget.total,
        .restart_limit = failed->budget.limit,
        .saved_step = std::max(failed->budget.saved_step, session_->newest_checkpoint),
        .restart = failed->restart});
  } else if (const auto* changed = std::get_if<StragglersChanged>(&command)) {
    const std::string text = stragglers_text(changed->stragglers, session_->slots);
    log::warn(text.empty() ? "no rank delays the others any more" : text);
    report::Stragglers told{.count = static_cast<int64_t>(changed->stragglers.size())};
    if (!text.empty()) told.who = text;
    ports_.reports.report(told);
  } else if (const auto* measured = std::get_if<LinksMeasured>(&command)) {
    log::info(measured->summary);
    for (const std::string& what : measured->told) log::warn(what);
  } else if (const auto* ended = std::get_if<JobEnded>(&command)) {
    const Outcome& outcome = ended->outcome;
    log::info(
        (outcome.handed_over ? "the successor of this agent continues: " : "the job ended: ") +
        outcome.reason + ": " + outcome.message);
    ports_.reports.report(report::End{
        .exit_code = outcome.exit_code, .reason = outcome.reason, .message = outcome.message});
    // Without this file a successor merely waits for ranks that no longer exist.
    if (ended->clear && session_->attempt > 0) {
      const auto told = attempts_.note_end(session_->attempt);
      if (!told) log::warn(told.error().to_string());
    }
  }
}

void Agent::publish_attempt(const PublishAttempt& publish, Time now) {
  startup::recorder().stage_ends(start_traced_ ? "pause" : "gang");
  ports_.ranks.close_store(std::exchange(store_, {}));
  if (const Status written = attempts_.publish(publish.attempt); !written) {
    return decide(PublishFailed{written.error()}, now);
  }
  published_ = publish.attempt;
  auto store = ports_.ranks.open_store(config_.address);
  if (!store) return decide(PublishFailed{store.error()}, now);
  store_ = *store;
  decide(Published{publish.attempt, config_.address, store_.port}, now);
}

// ---- this worker

void Agent::react(const WorkerEvent& event, Time now) {
  for (const auto& command : step(worker_, event, now)) {
    if (const auto* launch_ranks = std::get_if<LaunchRanks>(&command)) {
      launch(launch_ranks->directive, now);
    } else if (const auto* sent = std::get_if<SignalRanks>(&command)) {
      for (const auto& rank : ranks_) {
        if (rank.running) ports_.ranks.signal(rank.process, sent->signal);
      }
    } else if (const auto* look = std::get_if<TakeLook>(&command)) {
      take_look(*look, now);
    } else if (const auto* stacks = std::get_if<TakeStacks>(&command)) {
      stacks_wanted_ = stacks->request;
      take_stacks(now);
    } else if (const auto* measure = std::get_if<MeasureLink>(&command)) {
      if (ports_.links) ports_.links->send(measure->order);
    } else if (std::holds_alternative<SendBeat>(command)) {
      beat_wanted_ = true;
    } else if (const auto* exit = std::get_if<ExitAgent>(&command)) {
      log::info("this agent ends with " + std::to_string(exit->exit_code) + ": " + exit->why);
      leaving_since_ = now;
      beat_wanted_ = true;
    }
  }
}

void Agent::take_link(Time now) {
  if (!ports_.links) return;
  if (const auto rate = ports_.links->take()) react(LinkMeasured{*rate}, now);
}

// ---- beats

void Agent::beat(Time now) {
  if (beat_under_way_ || last_beat_sent_ || (now < next_beat_ && !beat_wanted_)) return;
  beat_wanted_ = false;
  WorkerReport report = worker_.report;
  report.sequence = ++sequence_;
  beat_sent_ = now;
  last_beat_sent_ = report.leaving;
  if (!session_) {
    beat_under_way_ = true;
    ports_.client->send(report);
    return;
  }
  decide(Beat{std::move(report)}, now);
  const Directive directive = directive_for(*session_, 0, worker_.config.incarnation);
  next_beat_ = now + directive.next_beat;
  react(Heard{directive, now}, now);
}

void Agent::hear(Time now) {
  if (!ports_.client) return;
  const auto answer = ports_.client->receive();
  if (!answer) return;
  beat_under_way_ = false;
  if (*answer) {
    last_beat_problem_.clear();
    unanswered_ = 0;
    next_beat_ = now + (*answer)->next_beat;
    react(Heard{**answer, beat_sent_}, now);
    return;
  }
  if (answer->error().message != last_beat_problem_) {
    last_beat_problem_ = answer->error().message;
    log::warn("no answer from worker 0's agent: " + answer->error().to_string());
  }
  next_beat_ = now + next_try(worker_.config.worker, config_.replicas, ++unanswered_);
  beat_wanted_ = false;  // nothing answers, so there is no hurry
}

void Agent::leave(Time now) {
  if (leaving_since_ < Time(0)) return;
  const bool late = now - leaving_since_ > kLeaveTimeout;
  const bool told = last_beat_sent_ && !beat_under_way_;
  const bool others_left = !session_ || std::ranges::all_of(session_->workers, [&](const auto& w) {
    const bool stays = session_->outcome.handed_over && !departs(w);
    return !w.joined || w.report.leaving || w.late || stays || silent(*session_, w, now);
  });
  if (late || (told && others_left)) exit_code_ = worker_.exit_code;
}

}  // namespace dsj::agent
