// dsj run: a DeepSpeedJob on this machine, from a manifest or from a torchrun line.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "cli/resume_command.h"
#include "cli/run_prepare.h"
#include "cli/run_program.h"
#include "cli/run_supervisor.h"
#include "cli/verbs.h"
#include "common/files/posix_files.h"
#include "common/json.h"
#include "common/random_hex.h"
#include "common/startup_trace.h"
#include "job/contract.h"
#include "job/report/told.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using jobspec::Job;

constexpr char kRunHelp[] =
    R"(usage: dsj run JOB.yaml [--output DIR] [--set spec.path=value]...
       dsj run --nproc_per_node=N --deepspeed ds_config.json --model_name_or_path DIR
               --data_path FILE --output_dir DIR [Hugging Face training arguments]

Runs the job here: one agent per worker, one dsj-train per rank; with launcher: Command one process of
the program that spec.workers.template names (docs/command.md). Everything is checked before a process is
started. Under the output directory:
  metrics.jsonl   one line per optimizer step
  status.yaml     the job's status: conditions, step, loss, last checkpoint, failures
  checkpoints/    model/    logs/rank-N.log
The same command on the same output directory goes on from its newest checkpoint, unless
resumeFromCheckpoint names another; a finished run is not repeated. Ctrl-C or SIGTERM saves one step on
all ranks and stops; a second one kills.

Environment: OMP_NUM_THREADS (default: cores / ranks), HF_HOME or HF_HUB_CACHE (where hub ids are looked
up), DSJ_TRAIN_PROGRAM (another program in place of dsj-train), DSJ_STARTUP_TRACE=1 (prints where the time
of each start went), DSJ_ROWS_CACHE=0 (large data files are checked anew; docs/startup.md).
Exit codes: 0 done, 1 the job failed, 2 bad input (nothing was started), 3 environment, 4 losses, gradients
or weights are not finite, 130 interrupted.
)";

/// A program of ours, which lies beside this one.
Result<std::string> program_beside(const std::string& name) {
  std::error_code problem;
  const fs::path own = fs::read_symlink("/proc/self/exe", problem);
  const fs::path path = own.parent_path() / name;
  if (problem || access(path.c_str(), X_OK) != 0) {
    return fail(ErrorKind::Environment, "the program is not there", path.string(),
                "dsj, dsj-agent and dsj-train belong into one directory");
  }
  return path.string();
}

Result<RankProgram> rank_program(const Job& job) {
  if (job.runs_user_program()) return user_program(job, run_directory(job.training.output_dir));
  const char* other = std::getenv("DSJ_TRAIN_PROGRAM");
  if (!other || !*other) {
    DSJ_TRY(const std::string train, program_beside("dsj-train"));
    return RankProgram{.command = {train}};
  }
  if (access(other, X_OK) != 0) {
    return fail(ErrorKind::Environment, "DSJ_TRAIN_PROGRAM is not a program", other);
  }
  return RankProgram{.command = {fs::absolute(other).string()}};
}

nlohmann::json previous_status(const std::string& output_dir) {
  PosixFiles files;
  const std::string path = output_dir + "/" + contract::kStatusFile;
  const auto text = files.read_all(path);
  return text ? status_from_text(*text, path) : nlohmann::json(nullptr);
}

/// Whether the run in this output directory has done all the steps that are asked for now.
bool is_complete(const Job& job, const nlohmann::json& status) {
  if (job.runs_user_program()) return false;  // only the program knows what is left
  if (json_text(status, "phase") != "Complete") return false;
  const auto step = report::told<&report::Training::step>(json_child(status, report::kTraining));
  // Without max_steps only the engine can tell: it finds nothing to do, or continues.
  const int64_t wanted = job.training.max_steps.value_or(0);
  std::error_code ignored;
  return wanted > 0 && step && *step >= wanted &&
         fs::is_directory(job.training.output_dir + "/" + contract::kModelDir, ignored);
}

/// Continuing a run with another model or other data is most likely a mistake.
void warn_if_another_run(const Job& job, const std::string& run_dir) {
  PosixFiles files;
  const std::string path = run_dir + "/agent.json";
  const auto text = files.read_all(path);
  if (!text) return;
  const auto before = agent::agent_config_from_text(*text, path);
  if (!before) return;
  const auto check = [&](const char* what, const std::string& then, const std::string& now) {
    if (then == now) return;
    std::fprintf(stderr, "warning: this output directory's run had %s %s, now it is %s\n", what,
                 then.c_str(), now.c_str());
  };
  check("model", before->job.training.model_name_or_path, job.training.model_name_or_path);
  check("data", before->job.training.data_path, job.training.data_path);
}

/// Whether the times of the start are asked for.
Result<bool> begin_startup_trace() {
  const char* text = std::getenv(contract::kEnvStartupTrace);
  if (!text) return false;
  const auto on = startup::switched_on(text);
  if (!on) {
    return bad_input(
        std::string(contract::kEnvStartupTrace) + " is \"" + text + "\", expected 0 or 1",
        "environment");
  }
  startup::recorder().begin("dsj", text);
  startup::recorder().stage_ends("exec and libraries");
  return *on;
}

Result<int> run(Arguments args) {
  DSJ_TRY(const RunArguments arguments, split_run_arguments(args));
  if (arguments.help) {
    std::fputs(kRunHelp, stdout);
    return 0;
  }
  DSJ_TRY(const bool traced, begin_startup_trace());
  DSJ_TRY(const Job job, prepare_job(arguments));
  const std::string output = job.training.output_dir;
  const auto status = previous_status(output);
  if (is_complete(job, status)) {
    std::printf(
        "this run is complete: all %ld steps are done, the model is in %s/%s\n"
        "raise max_steps to go on, or name another output directory to start over\n",
        static_cast<long>(*job.training.max_steps), output.c_str(), contract::kModelDir);
    return 0;
  }
  SupervisorOptions options;
  DSJ_TRY(const std::string agent_program, program_beside("dsj-agent"));
  DSJ_TRY(RankProgram program, rank_program(job));
  DSJ_TRY(const OutputLock lock, OutputLock::take(output));
  agent::AgentConfig& config = options.config;
  config.job = jobspec::to_job_file(job, 1, job.world_size());
  DSJ_TRY(config.job.run, random_hex(16));
  config.replicas = job.replicas;
  config.slots = job.slots_per_worker;
  config.ranks_on_host = job.world_size();
  config.run_dir = run_directory(output);
  DSJ_TRY(config.key, random_hex(32));
  config.user_program = job.runs_user_program();
  config.rank_command = std::move(program.command);
  if (config.user_program) config.stall = agent::Time(INT64_MAX / 4);  // it reports no steps
  config.budget.limit = job.restart_policy == "Never" ? 0 : job.backoff_limit;
  config.last_attempt = json_whole(status, "attempt").value_or(0);
  warn_if_another_run(job, config.run_dir);
  options.resume_command = resume_command(args, job.training.resume_from_checkpoint);
  options.previous_status = status;
  options.startup_trace = traced;
  std::error_code ignored;
  fs::remove(startup_file(config), ignored);
  std::printf("%s: %d workers x %d ranks, output %s\n", job.name.c_str(), job.replicas,
              job.slots_per_worker, output.c_str());
  std::fflush(stdout);
  DSJ_TRY(LocalAgents agents, LocalAgents::open({.workers = config.replicas,
                                                 .program = agent_program,
                                                 .config_file = agent_config_file(config),
                                                 .logs_dir = logs_dir(config),
                                                 .environment = std::move(program.environment),
                                                 .lock_fd = lock.fd()}));
  startup::recorder().stage_ends("checks");
  std::signal(SIGPIPE, SIG_IGN);  // the supervisor sees it, and the ranks save a step
  PosixFiles files;
  const SystemRunClock clock;
  return Supervisor(std::move(options), {.agents = agents,
                                         .files = files,
                                         .clock = clock,
                                         .terminal = isatty(STDOUT_FILENO) == 1})
      .run();
}

}  // namespace

int run_run(Arguments args) {
  const auto code = run(args);
  return code ? *code : report("run", code.error());
}

}  // namespace dsj::cli
