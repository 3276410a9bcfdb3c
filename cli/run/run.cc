// dsj run: runs a DeepSpeedJob on this machine, from a manifest or a torchrun line.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "cli/check/run_lock.h"
#include "cli/check/run_program.h"
#include "cli/programs.h"
#include "cli/result_format.h"
#include "cli/run/earlier_run.h"
#include "cli/run/loopback.h"
#include "cli/run/overwritten_run.h"
#include "cli/run/resume_command.h"
#include "cli/run/run_follower.h"
#include "cli/run/run_nodes.h"
#include "cli/run/run_prepare.h"
#include "cli/run/run_supervisor.h"
#include "cli/verbs.h"
#include "common/argument_introspection.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "common/json.h"
#include "common/random_hex.h"
#include "common/startup_trace.h"
#include "common/terminal.h"
#include "engine/checkpoint/retention.h"
#include "engine/weights/output_place.h"
#include "job/argument_table.h"
#include "job/contract.h"
#include "job/report/field_value.h"
#include "job/training_schema.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using jobspec::Job;

constexpr char kRunHelp[] =
    R"(usage: dsj run JOB.yaml [--output DIR] [--set spec.path=value]... [-o json]
       dsj run --nproc_per_node=N --deepspeed ds_config.json --model_name_or_path DIR
               --data_path FILE --output_dir DIR [Hugging Face training arguments]

Trains the job on this machine: one agent per worker, one dsj-train per rank. With launcher: Command each
rank is the program that spec.workers.template names (docs/cluster.md). All checks come before the first
process. In the output directory:
  metrics.jsonl   one line per optimizer step
  status.yaml     the job's status: conditions, step, loss, last checkpoint, failures
  checkpoints/    model/    logs/rank-N.log
The same command resumes from the newest checkpoint of the output directory, unless resumeFromCheckpoint
names another; a finished run is not repeated. Another model, other data, or other settings after the end
are refused; --overwrite_output_dir True starts from the beginning. Ctrl-C or SIGTERM saves one step on
all ranks and stops; a second one kills the ranks. With -o json the last status is one JSON document on
stdout, and all lines are on stderr.

On several machines each runs the same line, as with torchrun: --nnodes=N --node_rank=R --master_addr=HOST
--master_port=PORT, or torchrun's variables such as PET_NNODES. The output directory is on a shared volume.
Nodes wait 900 s for each other, or as long as --rdzv_conf timeout=SECONDS allows. In a TrainJob of Kubeflow
Trainer the progress goes to its status (docs/trainer.md).

Environment:
  OMP_NUM_THREADS              threads of a rank (default: cores / ranks)
  HF_HOME or HF_HUB_CACHE      where hub ids are looked up
  DSJ_TRAIN_PROGRAM            another program instead of dsj-train
  DSJ_STARTUP_TRACE=1          prints the duration of each stage of a start (docs/reports/startup.md)
  DSJ_ROWS_CACHE=0             checks large data files at each start
Exit codes: 0 done; 1 the job failed, or `dsj validate` refuses it and nothing was started; 2 the arguments
are not a job, or a rank refused its input; 3 environment; 7 losses, gradients or weights are not finite;
8 not all nodes joined in time; 130 interrupted.
)";

Result<RankProgram> rank_program(const Job& job) {
  if (job.runs_user_program()) return user_program(job, run_directory(job.training.output_dir));
  DSJ_TRY(const std::string train, engine_program());
  return RankProgram{.command = {train}};
}

nlohmann::json previous_status(const std::string& output_dir) {
  PosixFiles files;
  const std::string path = output_dir + "/" + contract::kStatusFile;
  const auto text = files.read_all(path);
  return text ? status_from_text(*text, path) : nlohmann::json(nullptr);
}

int64_t steps_done(const nlohmann::json& status) {
  return report::field_value<&report::Training::step>(json_child(status, report::kTraining))
      .value_or(0);
}

/// Whether the run in this output directory has done all requested steps.
bool is_complete(const Job& job, const nlohmann::json& status) {
  if (job.runs_user_program()) return false;  // only the program knows its progress
  if (json_text(status, "phase") != "Complete") return false;
  // Without max_steps only the engine knows: it finds nothing to do, or continues.
  const int64_t wanted = job.training.max_steps.value_or(0);
  std::error_code ignored;
  return wanted > 0 && steps_done(status) >= wanted &&
         fs::is_directory(job.training.output_dir + "/" + contract::kModelDir, ignored);
}

/// Reads the earlier run in the output directory.
Result<EarlierRun> look_back(Files& files, const Job& job, const nlohmann::json& status) {
  const std::string& output = job.training.output_dir;
  DSJ_TRY(const auto checkpoints,
          checkpoint::list_candidates(files, path_join(output, contract::kCheckpointsDir)));
  DSJ_TRY(const bool has_model, files.exists(path_join(output, contract::kModelDir)));
  return EarlierRun{.inputs = recorded_inputs(files, run_directory(output)),
                    .finished = json_text(status, "phase") == "Complete" && has_model,
                    .has_checkpoints = !checkpoints.empty()};
}

/// False if the output directory has another run and the user did not say what to do with it.
/// Prints the reasons on stderr.
bool may_go_on(const EarlierRun& earlier, const nlohmann::json& inputs, const Job& job) {
  const Course course =
      course_after(earlier, inputs, job.training.ignore_data_skip.value_or(false));
  const std::string& output = job.training.output_dir;
  if (course.kind == Course::Kind::GoOn) {
    for (const std::string& what : course.said)
      std::fprintf(stderr, "warning: the run in %s continues with a change: %s\n", output.c_str(),
                   what.c_str());
    return true;
  }
  std::fprintf(stderr, "dsj run: %s has another run%s:\n", output.c_str(),
               earlier.finished ? ", which is complete" : "");
  for (const std::string& what : course.said) std::fprintf(stderr, "  %s\n", what.c_str());
  std::fprintf(stderr, "%s\n", ways_on(earlier, inputs).c_str());
  return false;
}

/// Refuses a job that starts from a checkpoint of the run that it overwrites.
Status check_overwrite(const Job& job) {
  const auto& from = job.training.resume_from_checkpoint;
  if (!from) return {};
  const weights::SystemPlaces places;
  const std::string path = places.canonical(*from);
  const std::string output = places.canonical(job.training.output_dir);
  if (path != output && !path.starts_with(output + "/")) return {};
  return bad_input("it lies in the output directory, whose run is to be overwritten", *from,
                   "leave resumeFromCheckpoint or overwriteOutputDir out");
}

/// Renames a status file that no run wrote, so that it is not overwritten.
Status keep_foreign_status(Files& files, const std::string& output) {
  const std::string path = path_join(output, contract::kStatusFile);
  const auto text = files.read_all(path);
  if (!text || text->empty() || !json_text(status_from_text(*text, path), "phase").empty())
    return {};
  std::string kept = path + ".kept";
  for (int i = 2; files.exists(kept).value_or(false); ++i)
    kept = path + ".kept-" + std::to_string(i);
  return files.rename(path, kept);
}

/// Moves the earlier run aside. The status file moves with it.
Status begin_anew(Files& files, const std::string& output) {
  DSJ_TRY(const bool moved, set_run_aside(files, output));
  if (!moved) return {};
  std::printf("a new run begins in %s; until it has a checkpoint, the earlier one is in %s\n",
              output.c_str(), path_join(output, kOverwrittenDir).c_str());
  return {};
}

/// Whether a trace of the start is requested.
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

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Runs a node other than node 0.
Result<int> follow(const Nodes& nodes, const Job& job) {
  const std::string& output = job.training.output_dir;
  DSJ_TRY(const std::string agent_program, program_beside("dsj-agent"));
  DSJ_TRY(RankProgram program, rank_program(job));
  DSJ_TRY(const OutputLock lock, OutputLock::take(output, nodes.rank));
  agent::AgentConfig config;
  config.job.output_dir = output;
  config.run_dir = run_directory(output);
  const SystemRunClock clock;
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  FollowerOptions options{
      .nodes = nodes,
      .slots = job.slots_per_worker,
      .output_dir = output,
      .config_file = agent_config_file(config),
      .first_life = std::chrono::duration_cast<std::chrono::milliseconds>(since_1970).count(),
      .patience = nodes.join_limit};
  DSJ_TRY(LocalAgents agents, LocalAgents::open({.workers = nodes.rank + 1,
                                                 .program = agent_program,
                                                 .config_file = options.config_file,
                                                 .logs_dir = logs_dir(config),
                                                 .environment = std::move(program.environment),
                                                 .lock_fd = lock.fd()}));
  std::signal(SIGPIPE, SIG_IGN);
  PosixFiles files;
  return Follower(std::move(options), {.agents = agents, .files = files, .clock = clock}).run();
}

/// Describes the arguments for completions and manual pages; they are parsed elsewhere.
int show_arguments() {
  ArgumentParser parser{kRunHelp, "dsj run"};
  std::string word;
  parser.option("JOB.yaml", word);
  parser.option("--output", word, "spec.training.outputDir");
  std::string format;
  add_format(parser, format);
  parser.option("--set", word, "spec.path=value, any number of times");
  parser.option("--nproc_per_node", word, "ranks, as torchrun takes it");
  parser.option("--nnodes", word, "machines; each runs the same line with its own --node_rank");
  parser.option("--node_rank", word, "which of them this machine is, from 0");
  parser.option("--master_addr", word, "the machine of node 0");
  parser.option("--master_port", word, "the port of node 0's agent");
  parser.option("--rdzv_conf", word, "timeout=SECONDS: how long nodes wait for each other");
  parser.option("--deepspeed", word, "the ds_config");
  for (const TrainingField& field : training_fields())
    parser.option("--" + snake_case(field.name), word, field.description);
  return parser.parse(Arguments()).value_or(0);
}

/// The result for -o json.
nlohmann::json result_of(const std::string& output) {
  std::error_code ignored;
  nlohmann::json result = {{"outputDir", output}, {"status", previous_status(output)}};
  const std::string model = path_join(output, contract::kModelDir);
  if (fs::is_directory(model, ignored)) result["model"] = model;
  return result;
}

/// The output directory's earlier status, and the inputs of this run.
struct Earlier {
  nlohmann::json status;  ///< null if there is none, or it is overwritten
  nlohmann::json inputs;  ///< null for a user's program, or if node 0 records them
  bool may_go_on = true;
};

/// Errors: an input cannot be read; the run to overwrite contains the checkpoint to start from.
Result<Earlier> compare_with_earlier(Files& files, const Job& job, bool leads, bool overwrites) {
  Earlier found;
  if (!overwrites) found.status = previous_status(job.training.output_dir);
  if (job.runs_user_program() || !leads) return found;
  DSJ_TRY(found.inputs, inputs_of(files, job));
  if (overwrites) {
    DSJ_TRY_STATUS(check_overwrite(job));
  } else {
    DSJ_TRY(const EarlierRun earlier, look_back(files, job, found.status));
    found.may_go_on = may_go_on(earlier, found.inputs, job);
  }
  return found;
}

/// The configuration of the agents, written by node 0 or the only machine.
Result<agent::AgentConfig> agent_config(const Job& job, const Nodes& nodes,
                                        const std::string& address, const nlohmann::json& status) {
  agent::AgentConfig config;
  config.job = jobspec::to_job_file(job, 1, job.world_size());
  DSJ_TRY(config.job.run, random_hex(16));
  config.replicas = job.replicas;
  config.slots = job.slots_per_worker;
  config.ranks_on_host = nodes.several() ? job.slots_per_worker : job.world_size();
  config.run_dir = run_directory(job.training.output_dir);
  config.address = address;
  config.join_port = nodes.master_port;
  if (nodes.several()) {
    config.predecessor = true;             // the lock does not cover other machines
    config.silence = agent::Time(15'000);  // a network may stall for a moment
    config.lease = agent::Time(10'000);
    config.gather_limit = nodes.join_limit;
  }
  DSJ_TRY(config.key, random_hex(32));
  config.user_program = job.runs_user_program();
  if (config.user_program) config.stall = agent::Time(INT64_MAX / 4);  // it reports no steps
  config.budget.limit = job.restart_policy == "Never" ? 0 : job.backoff_limit;
  config.last_attempt = json_whole(status, "attempt").value_or(0);
  return config;
}

void announce(const Job& job, const Nodes& nodes, bool killed) {
  const std::string& output = job.training.output_dir;
  if (killed)
    std::fprintf(
        stderr,
        "the earlier run in %s was killed with all its processes; this one continues from its "
        "last checkpoint\n",
        output.c_str());
  std::printf("%s: %d workers x %d ranks, output %s\n", job.name.c_str(), job.replicas,
              job.slots_per_worker, output.c_str());
  if (nodes.several())
    std::printf(
        "this machine is node 0, at %s; the run begins when all %d nodes have joined, in %ld s at "
        "most\n",
        nodes.master_addr.c_str(), nodes.count, static_cast<long>(nodes.join_limit.count()));
  std::fflush(stdout);
}

/// Node 0, or the only machine: starts the agents and supervises them until the run ends.
Result<int> lead(Files& files, SupervisorOptions options, const Job& job, const Nodes& nodes,
                 const Earlier& earlier) {
  const std::string& output = job.training.output_dir;
  const bool overwrites = job.training.overwrite_output_dir.value_or(false);
  SystemNames names;
  DSJ_TRY(const std::string address,
          nodes.several() ? own_address(nodes.master_addr, names) : loopback_address());
  DSJ_TRY(const std::string agent_program, program_beside("dsj-agent"));
  DSJ_TRY(RankProgram program, rank_program(job));
  const bool killed = was_killed(output, earlier.status);
  DSJ_TRY(const OutputLock lock, OutputLock::take(output));
  if (overwrites) DSJ_TRY_STATUS(begin_anew(files, output));
  DSJ_TRY_STATUS(keep_foreign_status(files, output));
  DSJ_TRY(options.config, agent_config(job, nodes, address, earlier.status));
  agent::AgentConfig& config = options.config;
  config.rank_command = std::move(program.command);
  // Recorded only after a save, so that a run that saves nothing keeps the earlier record.
  options.when_saved = [&files, output, inputs = earlier.inputs, run_dir = config.run_dir] {
    auto warnings = remove_overwritten(files, output);
    if (!inputs.is_null())
      if (const Status recorded = record_inputs(files, run_dir, inputs); !recorded)
        warnings.push_back(recorded.error().to_string());
    return warnings;
  };
  options.workers_here = nodes.several() ? 1 : config.replicas;
  options.previous_status = earlier.status;
  std::error_code ignored;
  fs::remove(startup_file(config), ignored);
  announce(job, nodes, killed);
  const std::string config_file = agent_config_file(config);
  DSJ_TRY(LocalAgents agents, LocalAgents::open({.workers = options.workers_here,
                                                 .program = agent_program,
                                                 .config_file = config_file,
                                                 .logs_dir = logs_dir(config),
                                                 .environment = std::move(program.environment),
                                                 .lock_fd = lock.fd()}));
  startup::recorder().stage_ends("checks");
  std::signal(SIGPIPE, SIG_IGN);  // the supervisor notices, and the ranks save a step
  const SystemRunClock clock;
  const Result<int> code =
      Supervisor(
          std::move(options),
          {.agents = agents, .files = files, .clock = clock, .terminal = draws_over(STDOUT_FILENO)})
          .run();
  if (nodes.several()) fs::remove(config_file, ignored);  // no node may join a run that has ended
  return code;
}

Result<int> run(Arguments args) {
  DSJ_TRY(const RunArguments arguments, split_run_arguments(args, variable));
  if (arguments.help) {
    std::fputs(kRunHelp, stdout);
    return 0;
  }
  JsonResult result(arguments.format);
  DSJ_TRY(const bool traced, begin_startup_trace());
  DSJ_TRY(const auto prepared, prepare_job(arguments));
  if (!prepared) return 1;
  const Job& job = prepared->job;
  const Nodes& nodes = arguments.nodes;
  const std::string output = job.training.output_dir;
  PosixFiles files;
  const bool overwrites = job.training.overwrite_output_dir.value_or(false);
  DSJ_TRY(const Earlier earlier, compare_with_earlier(files, job, nodes.rank == 0, overwrites));
  if (!earlier.may_go_on) return static_cast<int>(contract::kExitFailed);
  int code = 0;
  if (is_complete(job, earlier.status)) {
    const int64_t wanted = *job.training.max_steps, done = steps_done(earlier.status);
    const std::string steps =
        done > wanted
            ? std::to_string(done) + " steps are done, max_steps is " + std::to_string(wanted)
            : "all " + std::to_string(wanted) + " steps are done";
    std::printf(
        "this run is complete: %s, the model is in %s/%s\n"
        "to continue, raise max_steps; to start over, name another output directory or give "
        "--overwrite_output_dir True\n",
        steps.c_str(), output.c_str(), contract::kModelDir);
  } else if (nodes.rank > 0) {
    DSJ_TRY(code, follow(nodes, job));
  } else {
    SupervisorOptions options;
    options.resume_command = resume_command(args, job.training.resume_from_checkpoint, overwrites);
    options.told = prepared->told;
    options.startup_trace = traced;
    DSJ_TRY(code, lead(files, std::move(options), job, nodes, earlier));
  }
  if (result.wanted()) result.print(result_of(output));
  return code;
}

}  // namespace

int run_run(Arguments args) {
  if (ParserObserver::active()) return show_arguments();
  const auto code = run(args);
  return code ? *code : report("run", code.error());
}

}  // namespace dsj::cli
