#include "agent/agent.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <csignal>
#include <utility>

#include "agent/gang/blame.h"
#include "common/files/replace_file.h"
#include "common/host.h"
#include "common/log.h"
#include "common/startup_trace.h"
#include "job/contract.h"
#include "job/flight_log.h"
#include "job/stacks_request.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;

/// Beside the attempt file: the attempt after which no rank was left running. If it is the newest
/// attempt, a new agent 0 need not wait until old ranks have given up.
constexpr char kEndedFile[] = "ended";
constexpr Time kLongestTurn{250}, kStacksTurn{100}, kPaces{2000};
constexpr Time kLeaveTimeout{3000};

std::string attempt_path(const AgentConfig& config) {
  return path_join(path_join(config.job.output_dir, kCheckpointsDir), kAttemptFile);
}

std::string ended_path(const AgentConfig& config) {
  return path_join(path_join(config.job.output_dir, kCheckpointsDir), kEndedFile);
}

/// 0: there is no such file yet.
Result<int64_t> read_attempt(Files& files, const std::string& path) {
  DSJ_TRY(const bool there, files.exists(path));
  if (!there) return 0;
  DSJ_TRY(std::string text, files.read_all(path, 64));
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  int64_t attempt = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), attempt);
  if (problem != std::errc{} || end != text.data() + text.size() || attempt < 0) {
    return fail(
        ErrorKind::Environment, "a number is expected, found \"" + text + "\"", path,
        "it holds the number of the newest attempt; correct it or use another output directory");
  }
  return attempt;
}

SessionConfig session_config(const AgentConfig& config, int64_t last_attempt, Time now) {
  return {.workers = config.replicas,
          .last_attempt = last_attempt,
          .budget = config.budget,
          .operated = config.operated,
          .silence = config.silence,
          .blame = config.blame,
          .grace = config.grace,
          .stall = config.stall,
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
  DSJ_TRY(const int64_t in_file, read_attempt(ports.files, attempt_path(config)));
  const int64_t last = std::max(in_file, config.last_attempt);
  const auto ended = read_attempt(ports.files, ended_path(config));
  AgentConfig known = config;
  known.predecessor = config.predecessor && ended.value_or(0) < last;
  agent.session_.emplace(session_config(known, last, now), now);
  DSJ_TRY(MetricsFile metrics, MetricsFile::open(path_join(config.job.output_dir, kMetricsFile)));
  agent.metrics_.emplace(std::move(metrics));
  return agent;
}

Agent::Agent(const AgentConfig& config, int worker, int64_t incarnation, AgentPorts ports, Time now)
    : config_(config),
      ports_(ports),
      worker_({.worker = worker,
               .incarnation = incarnation,
               .slots = config.slots,
               .own_codes = config.user_program,
               .lease = config.lease,
               .join_timeout = config.join_timeout},
              now) {
  const int cores = usable_cores();
  threads_ = threads_per_rank(cores, config.ranks_on_host);
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    log::info("OMP_NUM_THREADS=" + std::to_string(threads_) + ": " + std::to_string(cores) +
              " cores for " + std::to_string(config.ranks_on_host) +
              " ranks of this machine (set it to choose)");
  }
}

void Agent::turn(Time now) {
  watch_ranks(now);
  take_stacks(now);
  take_paces(now);
  if (session_) {
    if (ports_.server) {
      for (auto& report : ports_.server->take()) decide(Beat{std::move(report)}, now);
    }
    decide(Tick{}, now);
  }
  hear(now);
  beat(now);
  react(WorkerTick{}, now);
  if (ports_.server) ports_.server->publish(Board(*session_));
  leave(now);
}

void Agent::stop(Time now) {
  log::info("stop requested: the ranks save and end");
  react(StopSignal{}, now);
}

void Agent::account(int64_t attempt, const RestartBudget& budget, Time now) {
  if (session_) decide(Accounted{attempt, budget}, now);
}

void Agent::want_stacks(int64_t request, Time now) {
  log::info("the stacks of all ranks are asked for");
  if (session_) decide(StacksWanted{request}, now);
}

void Agent::depart(Time now) {
  log::info("the pod is taken away: all ranks save, then this agent leaves");
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
  // What is being taken has no descriptor to wait for.
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
    ports_.reports.report(report::Failure{.attempt = failure.attempt,
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
                                          .saved_step = failed->budget.saved_step,
                                          .restart = failed->restart});
  } else if (const auto* changed = std::get_if<StragglersChanged>(&command)) {
    const std::string text = stragglers_text(changed->stragglers, session_->slots);
    log::warn(text.empty() ? "no rank holds up the others any more" : text);
    report::Stragglers told{.count = static_cast<int64_t>(changed->stragglers.size())};
    if (!text.empty()) told.who = text;
    ports_.reports.report(told);
  } else if (const auto* ended = std::get_if<JobEnded>(&command)) {
    const Outcome& outcome = ended->outcome;
    log::info((outcome.handed_over ? "the successor of this agent goes on: " : "the job ended: ") +
              outcome.reason + ": " + outcome.message);
    ports_.reports.report(report::End{
        .exit_code = outcome.exit_code, .reason = outcome.reason, .message = outcome.message});
    // Without this file a successor only waits for ranks that are not there.
    if (ended->clear && session_->attempt > 0) {
      const auto told = ports_.files.write_atomically(ended_path(config_),
                                                      std::to_string(session_->attempt) + "\n");
      if (!told) log::warn(told.error().to_string());
    }
  }
}

void Agent::publish_attempt(const PublishAttempt& publish, Time now) {
  const std::string path = attempt_path(config_);
  startup::recorder().stage_ends(start_traced_ ? "pause" : "gang");
  ports_.ranks.close_store(std::exchange(store_, {}));
  Status written = ports_.files.make_dirs(path_parent(path));
  if (written) {
    written = ports_.files.write_atomically(path, std::to_string(publish.attempt) + "\n");
  }
  if (!written) return decide(PublishFailed{written.error()}, now);
  auto store = ports_.ranks.open_store(config_.address);
  if (!store) return decide(PublishFailed{store.error()}, now);
  store_ = *store;
  decide(Published{publish.attempt, config_.address, store_.port}, now);
}

// ---- this worker's ranks

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
    } else if (std::holds_alternative<SendBeat>(command)) {
      beat_wanted_ = true;
    } else if (const auto* exit = std::get_if<ExitAgent>(&command)) {
      log::info("this agent ends with " + std::to_string(exit->exit_code) + ": " + exit->why);
      leaving_since_ = now;
      beat_wanted_ = true;
    }
  }
}

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

/// How long the ranks' steps take, for the judgement about stragglers.
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

/// Nothing waits for stacks: they come when they are taken. The log has them whole, with the
/// request's number in front of each line; the session gets one text per rank.
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
    read_events(local, exit.has_value(), now);  // after the exit nothing more can come
    if (!exit) continue;
    own.running = false;
    own.last_sight = {.flight = ports_.ranks.look(own.process).flight};
    // The start of the next attempt, if there is one, begins with the first end in this one.
    if (!std::exchange(ends_traced_, true)) startup::recorder().begin_again();
    ports_.ranks.forget(own.process);
    log::info("rank " + std::to_string(own.rank) + " ended with " +
              describe_exit(exit->exit_code, exit->signal));
    const bool tells =
        exit->signal != 0 || (exit->exit_code != kExitDone &&
                              (config_.user_program || exit->exit_code != kExitPreempted));
    react(RankExited{local, exit->exit_code, exit->signal,
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
                  " wrote what is no event: " + line.substr(0, 200));
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
    tell_metrics_problem(metrics_->append(*step, read.others));
  } else if (const auto* eval = std::get_if<report::Eval>(&read.event)) {
    tell_metrics_problem(metrics_->append(*eval, read.others));
  } else if (const auto* resumed = std::get_if<report::Resumed>(&read.event)) {
    tell_metrics_problem(metrics_->drop_after(resumed->step));
  } else if (const auto* saved = std::get_if<report::Checkpoint>(&read.event)) {
    tell_metrics_problem(metrics_->sync());
    decide(CheckpointSaved{saved->step}, now);
  }
  if (const auto told = report::passed_on(read.event)) ports_.reports.report(*told);
}

/// Training goes on without metrics, but not silently.
void Agent::tell_metrics_problem(const Status& status) {
  if (status || metrics_failed_) return;
  metrics_failed_ = true;
  log::error(status.error().to_string());
  ports_.reports.report(report::Warning{.rank = -1, .message = status.error().to_string()});
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
    next_beat_ = now + (*answer)->next_beat;
    react(Heard{**answer, beat_sent_}, now);
    return;
  }
  if (answer->error().message != last_beat_problem_) {
    last_beat_problem_ = answer->error().message;
    log::warn("no answer from worker 0's agent: " + answer->error().to_string());
  }
  next_beat_ = now + Time(200);
  beat_wanted_ = false;  // nobody listens, so there is no hurry
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
