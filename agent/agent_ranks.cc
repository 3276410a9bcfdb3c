// An agent's own ranks: starting, watching and looking at them.
#include <algorithm>
#include <utility>

#include "agent/agent.h"
#include "agent/gang/rank_end.h"
#include "common/files/replace_file.h"
#include "common/log.h"
#include "common/net_address.h"
#include "common/startup_trace.h"
#include "job/contract.h"
#include "job/flight_log.h"
#include "job/missing_library.h"
#include "job/stacks_request.h"

namespace dsj::agent {

using namespace dsj::contract;

namespace {

constexpr Time kPaces{2000};

}  // namespace

bool Agent::gives_ds_config() const {
  return config_.user_program && !config_.job.ds_config.empty();
}

std::string Agent::ds_config_path() const {
  return path_join(config_.run_dir, kDsConfigFile);
}

Status Agent::write_job_file(const Directive& directive, const std::string& path) {
  JobFile job = config_.job;
  job.attempt = directive.attempt;
  job.world_size = directive.world_size;
  DSJ_TRY_STATUS(replace_file(ports_.files, path, to_json(job).dump(1) + "\n"));
  if (!gives_ds_config()) return {};
  return replace_file(ports_.files, ds_config_path(), job.ds_config.dump(1) + "\n");
}

void Agent::launch(const Directive& directive, Time now) {
  const int worker = worker_.config.worker;
  const std::string job_file =
      path_join(config_.run_dir, "job-" + std::to_string(worker) + ".json");
  const std::string logs = path_join(config_.job.output_dir, kLogsDir);
  const Status job_written = write_job_file(directive, job_file);
  const std::string interface = interface_with(config_.address);
  ranks_.clear();
  ranks_.resize(config_.slots);
  if (config_.user_program) ports_.ranks.close_store(std::exchange(store_, {}));
  std::vector<std::pair<int, Error>> problems;
  for (int local = 0; local < config_.slots; ++local) {
    LocalRank& own = ranks_[local];
    own.rank = directive.first_rank + local;
    RankStart start;
    start.command = config_.rank_command;
    start.attempt = directive.attempt;
    start.log_file = path_join(logs, "rank-" + std::to_string(own.rank) + ".log");
    start.place.rank = own.rank;
    start.place.local_rank = local;
    start.place.world_size = directive.world_size;
    start.place.local_world_size = config_.slots;
    start.place.group_rank = worker;
    start.place.master_addr = directive.master_addr;
    start.place.master_port = directive.master_port;
    start.place.interface = interface;
    start.place.job_file = job_file;
    if (gives_ds_config()) start.place.ds_config = ds_config_path();
    start.place.store_fd = worker == 0 ? store_.fd : -1;
    start.place.threads = threads_;
    start.flies = !config_.user_program;
    auto started = job_written ? ports_.ranks.start(start)
                               : Result<RankProcess>(std::unexpected(job_written.error()));
    if (!started) {
      problems.emplace_back(local, started.error());
      continue;
    }
    own.process = *started;
    own.running = true;
  }
  if (worker == 0) ports_.ranks.close_store(std::exchange(store_, {}));  // rank 0 has its own copy
  startup::recorder().stage_ends("ranks launched");
  startup::append_line(path_join(config_.run_dir, kStartupFile), directive.attempt);
  start_traced_ = true;
  ends_traced_ = false;
  for (const auto& [local, error] : problems) {
    react(RankError{local, "CannotStart", error.to_string()}, now);
    react(RankExited{local, kExitEnvironment, 0, "", false}, now);
  }
}

void Agent::take_look(const TakeLook& command, Time now) {
  Looked looked{.look = command.look};
  for (const auto& rank : ranks_) {
    const RankSight sight = rank.running ? ports_.ranks.look(rank.process) : rank.last_sight;
    looked.ranks.push_back(look_at(sight.flight, sight.stopped, flight_clock()));
  }
  react(looked, now);
}

/// Reads how long the ranks' steps take, for straggler detection.
void Agent::take_paces(Time now) {
  if (config_.user_program || now < next_paces_) return;
  next_paces_ = now + kPaces;
  for (int local = 0; local < static_cast<int>(ranks_.size()); ++local) {
    if (!ranks_[local].running) continue;
    const auto picture = flight_picture(ports_.ranks.look(ranks_[local].process).flight);
    if (!picture) continue;
    const int64_t own = std::max<int64_t>(0, picture->step_ns - picture->collective_ns);
    react(RankPaced{local, {picture->steps, picture->step_ns / 1000, own / 1000}}, now);
  }
}

/// Starts to take stacks, and processes them when they are ready. The log gets all of them, each
/// line prefixed with the request's number; the session gets one text per rank.
void Agent::take_stacks(Time now) {
  if (const auto taken = ports_.ranks.taken_stacks()) {
    const int64_t request = std::exchange(stacks_begun_, 0);
    std::vector<std::string> where(ranks_.size(), "not running");
    for (const RankStacks& stacks : *taken) {
      for (const auto& line : lines_of(stacks)) log::info(stacks_prefix(request) + line);
      for (size_t local = 0; local < ranks_.size(); ++local) {
        if (ranks_[local].rank == stacks.rank) where[local] = where_of(stacks);
      }
    }
    log::info(stacks_prefix(request) + kStacksEnd);
    react(StacksTaken{request, where}, now);
  }
  if (stacks_wanted_ == 0) return;
  std::vector<RankPid> running;
  for (const auto& rank : ranks_) {
    if (rank.running) running.push_back({rank.rank, rank.process.pid});
  }
  if (ports_.ranks.begin_stacks(running)) stacks_begun_ = std::exchange(stacks_wanted_, 0);
}

void Agent::watch_ranks(Time now) {
  for (int local = 0; local < static_cast<int>(ranks_.size()); ++local) {
    LocalRank& own = ranks_[local];
    if (!own.running) continue;
    const auto exit = ports_.ranks.poll_exit(own.process);
    read_events(local, exit.has_value(), now);  // after the exit no more events can arrive
    if (!exit) continue;
    own.running = false;
    own.last_sight = {.flight = ports_.ranks.look(own.process).flight};
    // The startup time of the next attempt, if any, counts from the first exit in this one.
    if (!std::exchange(ends_traced_, true)) startup::recorder().begin_again();
    ports_.ranks.forget(own.process);
    log::info("rank " + std::to_string(own.rank) + " ended with " +
              describe_exit(exit->exit_code, exit->signal));
    const bool tells =
        exit->signal != 0 || (exit->exit_code != kExitDone &&
                              (config_.user_program || exit->exit_code != kExitPreempted));
    int code = exit->exit_code;
    if (!config_.user_program && exit->signal == 0 && code == kExitNotStarted) {
      react(RankError{local, "CannotStart", kMissingLibrary}, now);
      code = kExitEnvironment;
    }
    react(RankExited{local, code, exit->signal,
                     tells ? ports_.ranks.last_words(own.process, kLastWordsBytesMax) : ""},
          now);
  }
}

void Agent::read_events(int local, bool to_the_end, Time now) {
  LocalRank& own = ranks_[local];
  for (bool more = true; more;) {
    const std::string bytes = ports_.ranks.read_events(own.process);
    more = to_the_end && !bytes.empty();
    for (const auto& line : own.lines.feed(bytes)) {
      if (const auto event = report::event_from_line(line)) {
        take_event(local, *event, now);
      } else if (++own.garbage == 1) {
        log::warn("rank " + std::to_string(own.rank) +
                  " wrote a line that is not an event: " + line.substr(0, 200));
      }
    }
  }
}

void Agent::take_event(int local, const report::ReadEvent& read, Time now) {
  const int rank = ranks_[local].rank;
  const std::string who = "rank " + std::to_string(rank) + ": ";
  if (const auto* step = std::get_if<report::Step>(&read.event)) {
    react(RankStep{local, step->step}, now);
  } else if (const auto* error = std::get_if<report::RankError>(&read.event)) {
    log::error(who + error->reason + ": " + error->message);
    react(RankError{local, error->reason, error->message}, now);
  } else if (const auto* warning = std::get_if<report::Warning>(&read.event)) {
    log::warn(who + warning->message);
    ports_.reports.report(report::Warning{.rank = rank, .message = warning->message});
  }
  if (rank == 0) take_rank_zero(read, now);
}

void Agent::take_rank_zero(const report::ReadEvent& read, Time now) {
  if (const auto* step = std::get_if<report::Step>(&read.event)) {
    nlohmann::json others = read.others;
    if (!cut_rows_.is_null()) others.update(std::exchange(cut_rows_, nullptr));
    tell_metrics_problem(metrics_->append(*step, others));
  } else if (const auto* eval = std::get_if<report::Eval>(&read.event)) {
    tell_metrics_problem(metrics_->append(*eval, read.others));
  } else if (const auto* rows = std::get_if<report::CutRows>(&read.event)) {
    cut_rows_ = nlohmann::json::parse(report::metrics_line(*rows, read.others));
    cut_rows_.erase("step");
  } else if (const auto* resumed = std::get_if<report::Resumed>(&read.event)) {
    tell_metrics_problem(metrics_->drop_after(resumed->step));
  } else if (const auto* saved = std::get_if<report::Checkpoint>(&read.event)) {
    tell_metrics_problem(metrics_->sync());
    decide(CheckpointSaved{saved->step}, now);
  }
  if (const auto told = report::passed_on(read.event)) ports_.reports.report(*told);
}

/// Training continues without metrics, but not silently.
void Agent::tell_metrics_problem(const Status& status) {
  if (status || metrics_failed_) return;
  metrics_failed_ = true;
  log::error(status.error().to_string());
  ports_.reports.report(report::Warning{.rank = -1, .message = status.error().to_string()});
}

}  // namespace dsj::agent
