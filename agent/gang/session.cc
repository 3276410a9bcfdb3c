#include "agent/gang/session.h"

#include <algorithm>
#include <csignal>
#include <numeric>

#include "agent/gang/conclude.h"
#include "common/check.h"
#include "job/contract.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;

/// Its pod moves to another node because of its link.
bool moves(const Session::Worker& worker) {
  return !worker.slow_link.empty() && worker.report.link.moves;
}

bool gang_complete(const Session& s, Time now) {
  return std::ranges::all_of(s.workers, [&](const Session::Worker& worker) {
    return worker.joined && !worker.report.leaving && !worker.report.departing && !moves(worker) &&
           !silent(s, worker, now) && clear(s, worker, now);
  });
}

std::string listed(const std::vector<int>& nodes) {
  std::string text = nodes.size() == 1 ? "node " : "nodes ";
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (i > 0) text += i + 1 == nodes.size() ? " and " : ", ";
    text += std::to_string(nodes[i]);
  }
  return text;
}

/// Ends the job if nodes are missing after gather_limit: no operator replaces them.
void end_after_the_limit(Session& s, Time now, Commands& out) {
  const Time limit = s.config.gather_limit;
  const Time since = std::max(s.phase_since, s.not_before);
  if (limit <= Time(0) || now - since < limit) return;
  std::vector<int> came, missing;
  for (int w = 0; w < static_cast<int>(s.workers.size()); ++w) {
    const Session::Worker& worker = s.workers[w];
    const bool here = worker.joined && !worker.report.leaving && !silent(s, worker, now);
    (here ? came : missing).push_back(w);
  }
  if (missing.empty()) return;  // ranks of an earlier attempt may still live
  finish(s,
         {kExitNodesMissing, "NodesMissing",
          listed(missing) + " of " + std::to_string(s.workers.size()) + " did not join in " +
              std::to_string(limit.count() / 1000) + " s; " +
              (came.empty() ? "no node" : listed(came)) + " did. Run the same line on " +
              listed(missing) + ", each with its own --node_rank, a --master_addr and " +
              "--master_port that lead to node 0 and the same output directory, or allow more " +
              "time: --rdzv_conf timeout=SECONDS"},
         now, out);
}

/// Measures the links of a complete gang. Returns false while that is not finished, or if a worker
/// must move because of the result.
bool links_are_measured(Session& s, Time now, Commands& out) {
  if (s.config.link_percent <= 0) return true;
  std::vector<const WorkerReport*> gang;
  for (const Session::Worker& worker : s.workers) gang.push_back(&worker.report);
  if (!s.links.measure(gang, s.config.link_percent, now)) return false;
  auto found = s.links.take_findings();
  if (!found) return true;
  for (Session::Worker& worker : s.workers) worker.slow_link.clear();
  for (const auto& [worker, why] : found->slow) s.workers[worker].slow_link = why;
  out.push_back(LinksMeasured{found->summary, found->told});
  return std::ranges::none_of(s.workers, moves);
}

std::vector<int> slots_of(const Session& s) {
  std::vector<int> slots;
  for (const auto& worker : s.workers) slots.push_back(worker.report.slots);
  return slots;
}

void gather(Session& s, Time now, Commands& out) {
  if (s.stop_requested) {
    return finish(s, {kExitPreempted, "Preempted", "stopped on request while no rank was running"},
                  now, out);
  }
  if (departs(s.workers[0])) {
    return hand_over(s, "the pod of worker 0 is being removed while no rank is running", now, out);
  }
  if (now < s.not_before) return;
  if (!gang_complete(s, now)) return end_after_the_limit(s, now, out);
  if (now < s.config.quiet_until) return;
  if (!links_are_measured(s, now, out)) return;
  s.publishing = s.attempt + 1;
  s.slots = slots_of(s);
  enter(s, Phase::Publishing, now);
  out.push_back(PublishAttempt{s.publishing, world_size(s)});
}

void end_attempt(Session& s, bool at_once, Time now) {
  enter(s, Phase::Ending, now);
  s.killing = at_once;
}

/// Updates the time of the last progress of any rank.
void note_progress(Session& s, Time now) {
  int64_t highest = s.highest_step, ended = 0;
  for (const auto& worker : s.workers) {
    if (worker.report.attempt != s.attempt) continue;
    for (const auto& rank : worker.report.ranks) {
      highest = std::max(highest, rank.step);
      ended += !rank.running;
    }
  }
  if (highest == s.highest_step && ended == s.exits_seen) return;
  if (s.highest_step > 0 && highest > s.highest_step) s.stall_watch.stepped(now - s.last_progress);
  s.highest_step = highest;
  s.exits_seen = ended;
  s.last_progress = now;
}

/// Ends the attempt if it hangs.
void watch_for_a_stall(Session& s, Time now) {
  const Time quiet = now - s.last_progress;
  const auto looks = s.stall_watch.wants_looks() ? looks_of(s) : std::vector<RankLook>();
  switch (s.stall_watch.judge(quiet, looks, s.config.stall, now)) {
    case StallWatch::Verdict::Wait:
      return;
    case StallWatch::Verdict::Moved:
      s.last_progress = now;
      return;
    case StallWatch::Verdict::Stalled:
      s.hang = (looks.empty() ? "no rank reported a step for " : "nothing moved for ") +
               std::to_string(quiet.count() / 1000) + " s";
      if (!looks.empty()) s.stall = judge_stall(looks);
      s.stacks = s.attempt;
      return end_attempt(s, false, now);
  }
}

void watch_for_stragglers(Session& s, Time now, Commands& out) {
  if (!s.straggler_watch.due(now)) return;
  std::vector<Pace> paces;
  for (const auto& worker : s.workers) {
    for (const auto& rank : worker.report.ranks) {
      paces.push_back(worker.report.attempt == s.attempt ? rank.pace : Pace{});
    }
  }
  if (s.straggler_watch.judge(paces, s.highest_step, now)) {
    out.push_back(StragglersChanged{s.straggler_watch.stragglers()});
  }
}

void watch(Session& s, Time now, Commands& out) {
  note_progress(s, now);
  if (s.stacks > 0 && have_stacks(s)) s.stacks = 0;  // the agents' logs have them
  if (!asked_to_stop(s) && std::ranges::any_of(s.workers, departs)) {
    s.yields = true;
    s.stop_since = now;
  }
  const Exits exits = count_exits(s, now);
  if (exits.done == world_size(s)) {
    return finish(s,
                  {kExitDone, "Completed",
                   exits.own_codes ? "every rank ended with exit code 0"
                                   : "the last step is done, saved and exported"},
                  now, out);
  }
  if (exits.other > 0 || exits.worker_out >= 0) {
    s.suspect = exits.first_other;
    s.stall_watch.ask(now);  // a rank may have given up on a peer that hangs
    // After a stop request a worker may withdraw because its ranks had not started yet.
    if (!asked_to_stop(s)) s.lost_worker = exits.worker_out;
    return end_attempt(s, exits.other == 0, now);
  }
  if (exits.done + exits.preempted == world_size(s)) return end_attempt(s, true, now);
  if (asked_to_stop(s)) {
    if (now - s.stop_since > s.config.grace) end_attempt(s, true, now);
  } else {
    watch_for_a_stall(s, now);
    if (s.phase == Phase::Running) watch_for_stragglers(s, now, out);
  }
}

/// A rank was killed by something other than its agent.
bool killed_from_outside(const Session& s) {
  return std::ranges::any_of(s.workers, [&](const Session::Worker& worker) {
    return worker.report.attempt == s.attempt &&
           std::ranges::any_of(worker.report.ranks, [](const RankState& rank) {
             return !rank.running && rank.signal == SIGKILL && !rank.stopped;
           });
  });
}

/// Saves where the ranks are, because agents drop this once they end their ranks.
void note_where(Session& s) {
  if (!s.stall || !s.stall_where.empty()) return;
  const int rank = s.stall->ranks.empty() ? 0 : s.stall->ranks.front();
  if (const std::string where = where_is(s, rank); !where.empty()) {
    s.stall_where = "rank " + std::to_string(rank) + " is " + where;
  }
}

void end_ranks(Session& s, Time now, Commands& out) {
  const Exits exits = count_exits(s, now);
  const bool hangs = !s.hang.empty();
  const Time blame = hangs                    ? s.config.stacks
                     : killed_from_outside(s) ? std::min(s.config.blame, s.config.blame_after_kill)
                                              : s.config.blame;
  const bool seen = hangs && have_stacks(s);
  if (exits.running == 0 || seen || now - s.phase_since >= blame) s.killing = true;
  if (const auto looks = s.stall ? std::vector<RankLook>() : looks_of(s); !looks.empty()) {
    s.stall = judge_stall(looks);
  }
  if (!s.killing) return;
  note_where(s);
  for (const auto& worker : s.workers) {
    if (!clear(s, worker, now)) return;
  }
  conclude(s, now, out);
}

void take(Session& s, const WorkerReport& report, Time now) {
  if (report.worker < 0 || report.worker >= static_cast<int>(s.workers.size())) return;
  Session::Worker& worker = s.workers[report.worker];
  if (worker.joined) {
    if (report.incarnation < worker.report.incarnation) return;
    if (report.incarnation == worker.report.incarnation) {
      if (report.sequence <= worker.report.sequence) return;
    } else {
      // Ranks of its predecessor live at most until their lease ends.
      if (!clear(s, worker, now) || s.phase == Phase::Running) {
        worker.ghost_until = std::max(worker.ghost_until, worker.last_beat + s.config.silence);
      }
      if (s.phase == Phase::Running || s.phase == Phase::Ending) worker.lost_in = s.attempt;
      worker.slow_link.clear();
      worker.late = s.phase == Phase::Finished;
    }
  }
  worker.joined = true;
  worker.report = report;
  worker.last_beat = now;
  if (report.stop_requested && !s.stop_requested) {
    s.stop_requested = true;
    s.stop_since = now;
  }
}

/// The beat of a successor replaces the last report of its predecessor, which must be processed
/// first.
bool hides_a_life(const Session& s, const WorkerReport& report) {
  if (report.worker < 0 || report.worker >= static_cast<int>(s.workers.size())) return false;
  const Session::Worker& worker = s.workers[report.worker];
  return worker.joined && report.incarnation > worker.report.incarnation;
}

void take(Session& s, const Published& published, Time now, Commands& out) {
  if (s.phase != Phase::Publishing || published.attempt != s.publishing) return;
  const bool same_gang = gang_complete(s, now) && slots_of(s) == s.slots;
  s.attempt = published.attempt;
  s.address = published.address;
  s.port = published.port;
  s.killing = s.yields = false;
  s.hang.clear();
  s.stall.reset();
  s.stall_watch.forget();
  s.stall_where.clear();
  s.straggler_watch.forget();
  s.stacks = 0;
  s.suspect = s.lost_worker = -1;
  s.highest_step = 0;
  s.exits_seen = 0;
  s.last_progress = now;
  // The attempt number is used up in any case. After a stop request, gather() ends the job.
  if (s.stop_requested || !same_gang) return enter(s, Phase::Gathering, now);
  enter(s, Phase::Running, now);
  out.push_back(AttemptStarted{s.attempt, world_size(s)});
}

void forgive_own_sleep(Session& s, Time now) {
  constexpr Time kAwake{1000};
  const Time gap = now - s.last_now;
  s.last_now = now;
  if (gap <= kAwake) return;
  for (auto& worker : s.workers) worker.last_beat += gap;
  s.last_progress += gap;
  if (s.phase == Phase::Gathering) s.phase_since += gap;
  s.stall_watch.slept(gap);
}

void advance(Session& s, Time now, Commands& out) {
  switch (s.phase) {
    case Phase::Gathering:
      return gather(s, now, out);
    case Phase::Running:
      watch(s, now, out);
      if (s.phase == Phase::Ending) end_ranks(s, now, out);
      return;
    case Phase::Ending:
      return end_ranks(s, now, out);
    case Phase::Publishing:
    case Phase::Finished:
      return;
  }
}

}  // namespace

Commands step(Session& s, const Event& event, Time now) {
  Commands out;
  forgive_own_sleep(s, now);
  if (const auto* beat = std::get_if<Beat>(&event)) {
    take(s, beat->report, now);
  } else if (const auto* beats = std::get_if<Beats>(&event)) {
    for (const WorkerReport& report : beats->reports) {
      if (hides_a_life(s, report)) advance(s, now, out);
      take(s, report, now);
    }
  } else if (const auto* published = std::get_if<Published>(&event)) {
    take(s, *published, now, out);
  } else if (const auto* failed = std::get_if<PublishFailed>(&event)) {
    if (s.phase == Phase::Publishing) {
      finish(s, {kExitEnvironment, "CannotStartAttempt", failed->error.to_string()}, now, out);
    }
  } else if (const auto* saved = std::get_if<CheckpointSaved>(&event)) {
    s.newest_checkpoint = std::max(s.newest_checkpoint, saved->step);
    s.last_progress = now;
  } else if (const auto* wanted = std::get_if<StacksWanted>(&event)) {
    if (s.phase == Phase::Running) s.stacks = wanted->request;
  } else if (const auto* told = std::get_if<Accounted>(&event)) {
    std::erase_if(s.charged, [&](const ChargedEnd& end) { return end.attempt <= told->attempt; });
    s.account = told->budget;
    s.budget = charge_ends(s.account, s.charged).budget;
  }
  advance(s, now, out);
  return out;
}

Directive directive_for(const Session& s, int worker, int64_t incarnation) {
  const int before = std::clamp(worker, 0, static_cast<int>(s.slots.size()));
  return directive_for(s, worker, incarnation,
                       std::accumulate(s.slots.begin(), s.slots.begin() + before, 0));
}

Directive directive_for(const Session& s, int worker, int64_t incarnation, int first_rank) {
  const int gang = static_cast<int>(s.workers.size());
  const Time soon = soon_beat(gang), steady = steady_beat(gang);
  if (worker < 0) return {.order = Order::Finish, .exit_code = kExitBadInput};
  if (worker >= gang) {
    // It belongs to a larger gang that may follow this one, and waits for that gang's worker 0.
    return {.order = Order::Idle, .attempt = s.attempt, .next_beat = steady};
  }
  const Session::Worker& own = s.workers[worker];
  if (own.joined && own.report.incarnation > incarnation) {
    return {.order = Order::Finish, .attempt = s.attempt, .exit_code = kExitPreempted};
  }
  Directive directive{.order = Order::Idle, .attempt = s.attempt, .next_beat = soon};
  // Its first beat has not been processed yet.
  const bool unknown = own.joined && own.report.incarnation < incarnation;
  if (!unknown) directive.slow_link = own.slow_link;
  if (s.phase == Phase::Finished) {
    // It belongs to the gang that continues, and waits for the next worker 0.
    const bool stays = own.late || unknown || (s.outcome.handed_over && !departs(own));
    if (stays && s.outcome.exit_code == kExitPreempted) return directive;
    directive.order = Order::Finish;
    directive.exit_code = s.outcome.exit_code;
    return directive;
  }
  // It must not start ranks that its predecessor may have started.
  if (unknown) return directive;
  if (s.phase == Phase::Gathering) directive.link = s.links.order(worker);
  // While an attempt ends, no worker may join it.
  const bool may_run = s.phase == Phase::Running ||
                       (s.phase == Phase::Ending && !s.killing && own.report.attempt == s.attempt);
  if (!may_run) return directive;
  directive.order = asked_to_stop(s) ? Order::Preempt : Order::Run;
  directive.world_size = world_size(s);
  directive.first_rank = first_rank;
  directive.master_addr = s.address;
  directive.master_port = s.port;
  directive.look = s.stall_watch.request();
  directive.stacks = s.stacks;
  directive.next_beat = s.phase == Phase::Running ? steady : soon;
  return directive;
}

Board board_of(const Session& s) {
  Board board{.unknown = directive_for(s, -1, 0)};
  int first_rank = 0;
  board.answers.reserve(s.workers.size());
  for (int w = 0; w < static_cast<int>(s.workers.size()); ++w) {
    const int64_t incarnation = s.workers[w].report.incarnation;
    board.answers.push_back({incarnation, directive_for(s, w, incarnation, first_rank),
                             directive_for(s, w, incarnation + 1, first_rank)});
    if (w < static_cast<int>(s.slots.size())) first_rank += s.slots[w];
  }
  board.replaced = directive_for(s, 0, INT64_MIN);
  board.replaced.order = Order::Finish;
  return board;
}

}  // namespace dsj::agent
