#include "agent/gang/session_state.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"

namespace dsj::agent {

Session::Session(const SessionConfig& config_, Time now)
    : config(config_),
      attempt(config_.last_attempt),
      phase_since(now),
      last_progress(now),
      last_now(now),
      account(config_.budget),
      budget(config_.budget),
      workers(config_.workers) {
  DSJ_CHECK(config_.workers >= 1, "a gang of %d workers", config_.workers);
}

int world_size(const Session& s) {
  return std::accumulate(s.slots.begin(), s.slots.end(), 0);
}

bool asked_to_stop(const Session& s) {
  return s.stop_requested || s.yields;
}

bool departs(const Session::Worker& worker) {
  return worker.joined && worker.report.departing;
}

bool silent(const Session& s, const Session::Worker& worker, Time now) {
  return now - worker.last_beat > s.config.silence;
}

bool clear(const Session& s, const Session::Worker& worker, Time now) {
  if (now < worker.ghost_until) return false;
  if (!worker.joined || silent(s, worker, now)) return true;
  return worker.report.fence >= s.attempt &&
         std::ranges::none_of(worker.report.ranks, &RankState::running);
}

void enter(Session& s, Phase phase, Time now) {
  s.phase = phase;
  s.phase_since = now;
}

std::vector<RankLook> looks_of(const Session& s) {
  std::vector<RankLook> looks;
  for (const auto& worker : s.workers) {
    const auto& report = worker.report;
    const bool answered = s.stall_watch.request() > 0 && report.attempt == s.attempt &&
                          report.look == s.stall_watch.request();
    if (!answered) return {};
    looks.insert(looks.end(), report.looks.begin(), report.looks.end());
  }
  return looks;
}

bool have_stacks(const Session& s) {
  return std::ranges::all_of(s.workers, [&](const Session::Worker& worker) {
    const auto& report = worker.report;
    return report.attempt != s.attempt || report.stacks == s.stacks ||
           std::ranges::none_of(report.ranks, &RankState::running);
  });
}

std::string where_is(const Session& s, int rank) {
  for (size_t w = 0; w < s.slots.size() && rank >= 0; rank -= s.slots[w++]) {
    const auto& report = s.workers[w].report;
    if (rank >= s.slots[w]) continue;
    const bool known = s.stacks > 0 && report.attempt == s.attempt && report.stacks == s.stacks &&
                       static_cast<size_t>(rank) < report.where.size();
    return known ? report.where[rank] : "";
  }
  return "";
}

}  // namespace dsj::agent
