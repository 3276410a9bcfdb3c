#include "agent/gang/worker.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/gang/rank_end.h"
#include "common/check.h"
#include "common/cut_text.h"
#include "job/contract.h"
#include "job/failure_reasons.h"

namespace dsj::agent {
namespace {

constexpr char kRemoved[] = "the pod is being removed, and its ranks have ended";

bool any_running(const Worker& w) {
  return std::ranges::any_of(w.report.ranks, &RankState::running);
}

/// True if no rank was started, or if all of them saved and ended on request.
bool all_saved(const Worker& w) {
  return std::ranges::all_of(
      w.report.ranks, [](const RankState& rank) { return end_of(rank) == RankEnd::Preempted; });
}

void kill_ranks(Worker& w, WorkerCommands& out) {
  if (!any_running(w) || w.kill_sent) return;
  w.kill_sent = true;
  out.push_back(SignalRanks{SIGKILL});
}

/// Promises to start no rank of `attempt` or older, and kills those that run.
void raise_fence(Worker& w, int64_t attempt, WorkerCommands& out) {
  if (w.report.attempt <= attempt) kill_ranks(w, out);
  if (attempt <= w.report.fence) return;
  w.report.fence = attempt;
  out.push_back(SendBeat{});
}

void run(Worker& w, const Directive& directive, WorkerCommands& out) {
  if (directive.attempt <= w.report.fence || directive.attempt <= w.report.attempt) return;
  // starts them at a later answer, when these are gone
  if (any_running(w)) return kill_ranks(w, out);
  w.report.attempt = directive.attempt;
  w.report.ranks.assign(w.config.slots, RankState{.own_codes = w.config.own_codes});
  w.report.look = 0;
  w.report.looks.clear();
  w.report.stacks = 0;
  w.report.where.clear();
  w.preempt_sent = w.kill_sent = false;
  out.push_back(LaunchRanks{directive});
  out.push_back(SendBeat{});
}

void obey(Worker& w, const Directive& directive, WorkerCommands& out) {
  switch (directive.order) {
    case Order::Idle:
      raise_fence(w, directive.attempt, out);
      // Worker 0's agent leaves once the whole gang is idle (session.h), other agents immediately.
      if (!w.report.departing || w.config.worker == 0 || any_running(w)) return;
      w.finishing = true;
      w.exit_code = contract::kExitPreempted;
      w.exit_reason = kRemoved;
      return;
    case Order::Run:
      return run(w, directive, out);
    case Order::Preempt:
      if (directive.attempt != w.report.attempt) return raise_fence(w, directive.attempt, out);
      if (any_running(w) && !w.preempt_sent) out.push_back(SignalRanks{SIGTERM});
      w.preempt_sent = true;
      return;
    case Order::Finish:
      w.finishing = true;
      w.exit_code = directive.exit_code;
      w.exit_reason = w.report.departing && directive.exit_code == contract::kExitPreempted
                          ? kRemoved
                          : "the job ended";
      return;
  }
}

/// Answers a request to look at the ranks, once. Drops the answer when the request is withdrawn.
void look(Worker& w, const Directive& directive, WorkerCommands& out) {
  if (directive.look == w.report.look) return;
  if (directive.look > 0 && directive.attempt == w.report.attempt && !w.report.ranks.empty()) {
    out.push_back(TakeLook{directive.look});
  } else {
    w.report.look = 0;
    w.report.looks.clear();
  }
}

void ask_for_stacks(Worker& w, const Directive& directive, WorkerCommands& out) {
  if (directive.stacks == 0) {
    w.report.stacks = 0;
    w.report.where.clear();
    return;
  }
  if (directive.stacks == w.stacks_asked) return;
  if (directive.attempt != w.report.attempt || !any_running(w)) return;
  w.stacks_asked = directive.stacks;
  out.push_back(TakeStacks{directive.stacks});
}

/// Carries out an order once. Drops the result when the order is withdrawn.
void measure_link(Worker& w, const Directive& directive, WorkerCommands& out) {
  const LinkOrder& order = directive.link;
  w.slow_link = directive.slow_link;
  if (order.round == w.link_asked) return;
  w.link_asked = order.round;
  w.report.link_rate = {};
  if (order.round > 0) out.push_back(MeasureLink{order});
}

void take(Worker& w, LinkRate rate, WorkerCommands& out) {
  if (rate.round != w.link_asked) return;
  rate.problem = text::first_bytes(rate.problem, kLinkTextMax);
  w.report.link_rate = std::move(rate);
  out.push_back(SendBeat{});
}

void take(Worker& w, const StacksTaken& taken, WorkerCommands& out) {
  if (taken.where.size() != w.report.ranks.size()) return;  // from an attempt that is over
  w.report.stacks = taken.request;
  w.report.where = taken.where;
  for (auto& text : w.report.where) text.resize(std::min(text.size(), kWhereBytesMax));
  out.push_back(SendBeat{});
}

void take(Worker& w, const RankExited& exit, WorkerCommands& out) {
  RankState& rank = w.report.ranks.at(exit.local_rank);
  DSJ_CHECK(rank.running, "rank %d exited twice", exit.local_rank);
  rank.running = false;
  rank.exit_code = exit.exit_code;
  rank.signal = exit.signal;
  rank.stopped = w.kill_sent && exit.signal == SIGKILL;
  rank.asked = w.preempt_sent;
  if (!exit.started) rank.own_codes = false;
  rank.exit_order = static_cast<int>(
      std::ranges::count_if(w.report.ranks, [](const RankState& r) { return !r.running; }));
  rank.last_words = text::last_bytes(exit.last_words, kLastWordsBytesMax);
  out.push_back(SendBeat{});
}

void check_time(Worker& w, Time now, WorkerCommands& out) {
  if (w.finishing) return;
  if (any_running(w) && now - w.last_heard > w.config.lease) {
    raise_fence(w, w.report.attempt, out);
    return;
  }
  // No agent is left that could order a stop. Without ranks there is nothing to save.
  const bool asked = w.report.stop_requested || w.report.departing;
  const bool stop = asked && now - w.last_heard > w.config.lease;
  if (stop || now - w.last_heard > w.config.join_timeout) {
    w.finishing = true;
    w.exit_code = stop && all_saved(w) ? contract::kExitPreempted : contract::kExitPeerLost;
    w.exit_reason = "the agent of worker 0 does not answer";
  }
}

}  // namespace

Worker::Worker(const WorkerConfig& config_, Time now) : config(config_), last_heard(now) {
  report.worker = config_.worker;
  report.incarnation = config_.incarnation;
  report.slots = config_.slots;
}

WorkerCommands step(Worker& w, const WorkerEvent& event, Time now) {
  WorkerCommands out;
  if (w.exited) return out;
  if (const auto* heard = std::get_if<Heard>(&event)) {
    w.last_heard = std::max(w.last_heard, heard->sent_at);
    obey(w, heard->directive, out);
    look(w, heard->directive, out);
    ask_for_stacks(w, heard->directive, out);
    measure_link(w, heard->directive, out);
  } else if (const auto* told = std::get_if<RankStep>(&event)) {
    auto& known = w.report.ranks.at(told->local_rank).step;
    known = std::max(known, told->step);
  } else if (const auto* paced = std::get_if<RankPaced>(&event)) {
    w.report.ranks.at(paced->local_rank).pace = paced->pace;  // no extra beat needed
  } else if (const auto* error = std::get_if<RankError>(&event)) {
    auto& rank = w.report.ranks.at(error->local_rank);
    if (rank.reason.empty()) {  // the first error is the cause, later ones follow from it
      rank.reason = reason_of_rank(error->reason);
      rank.message = text::first_bytes(error->message, kLastWordsBytesMax);
    }
  } else if (const auto* exit = std::get_if<RankExited>(&event)) {
    take(w, *exit, out);
  } else if (const auto* looked = std::get_if<Looked>(&event)) {
    DSJ_CHECK(looked->ranks.size() == w.report.ranks.size(), "a look at %zu of %zu ranks",
              looked->ranks.size(), w.report.ranks.size());
    w.report.look = looked->look;
    w.report.looks = looked->ranks;
    out.push_back(SendBeat{});
  } else if (const auto* taken = std::get_if<StacksTaken>(&event)) {
    take(w, *taken, out);
  } else if (const auto* measured = std::get_if<LinkMeasured>(&event)) {
    take(w, measured->rate, out);
  } else if (std::holds_alternative<StopSignal>(event)) {
    w.report.stop_requested = true;
    out.push_back(SendBeat{});
  } else if (std::holds_alternative<DepartSignal>(event)) {
    w.report.departing = true;
    out.push_back(SendBeat{});
  }
  if (std::holds_alternative<WorkerTick>(event)) check_time(w, now, out);
  if (w.finishing) {
    kill_ranks(w, out);
    if (!any_running(w)) {
      w.exited = true;
      w.report.leaving = true;
      w.report.fence = std::max(w.report.fence, w.report.attempt);
      out.push_back(ExitAgent{w.exit_code, w.exit_reason});
    }
  }
  return out;
}

}  // namespace dsj::agent
