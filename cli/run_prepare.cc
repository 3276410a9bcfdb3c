#include "cli/run_prepare.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "cli/hub_cache.h"
#include "cli/input.h"
#include "cli/limits.h"
#include "cli/measured_rows.h"
#include "cli/run_program.h"
#include "common/home_path.h"
#include "job/contract.h"
#include "job/dsconfig/metric_curriculum.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using dsconfig::Finding;
using jobspec::Job;

/// Reads "--name=VALUE" or "--name VALUE" at args[i]; moves i past the value.
Result<bool> take_option(Arguments args, size_t& i, const std::string& name, std::string& value) {
  if (args[i].starts_with(name + "=")) {
    value = args[i].substr(name.size() + 1);
    return true;
  }
  if (args[i] != name) return false;
  if (i + 1 >= args.size()) return bad_input("a value is missing", name);
  value = args[++i];
  return true;
}

/// Collects problems and prints each when it is found.
class Problems {
 public:
  explicit Problems(const char* verb) : verb_(verb) {}
  void add(const std::string& line) {
    std::fprintf(stderr, "%s\n", line.c_str());
    ++count_;
  }
  void add(const Error& error) { add("dsj " + std::string(verb_) + ": " + error.to_string()); }
  void findings(const Job& job, const std::vector<Finding>& findings) {
    for (const auto& finding : findings) {
      std::fprintf(stderr, "%s\n", jobspec::to_line(job, finding).c_str());
      count_ += finding.severity != Finding::Severity::Warning;
    }
  }
  int count() const { return count_; }

 private:
  const char* verb_;
  int count_ = 0;
};

/// Checks that new entries can be made in the nearest existing directory.
Status check_output(const std::string& output_dir) {
  std::error_code ignored;
  fs::path path = output_dir;
  if (fs::exists(path, ignored) && !fs::is_directory(path, ignored)) {
    return bad_input("the output directory is a file", output_dir);
  }
  while (!fs::exists(path, ignored) && path.has_parent_path() && path != path.parent_path()) {
    path = path.parent_path();
  }
  if (access(path.c_str(), W_OK | X_OK) != 0) {
    return fail(ErrorKind::Environment, std::string("cannot write there: ") + std::strerror(errno),
                path.string());
  }
  return {};
}

Status check_data(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return bad_input("expected a data file (.json, .jsonl), found a directory", path);
  }
  if (!fs::is_regular_file(path, ignored)) return bad_input("there is no such data file", path);
  if (access(path.c_str(), R_OK) != 0) {
    return bad_input(std::string("cannot read the data: ") + std::strerror(errno), path);
  }
  return {};
}

Status check_metric_file(const std::string& path) {
  if (access(path.c_str(), R_OK) == 0) return {};
  return bad_input(std::string("cannot read the metric of the rows: ") + std::strerror(errno), path,
                   "`dsj analyze DATA` makes it");
}

/// What does not fit. Rows are measured only for a job that would not fit if all were the longest.
std::vector<Finding> misfits(const Job& job, const Surroundings& around,
                             const dsconfig::Resolution& resolution) {
  const auto limits = limits_of(job, resolution.config.offload, {}, ThisMachine());
  auto input = memory_input(job, around, resolution);
  const auto bound = fit_findings(job, input, limits);
  if (bound.empty()) return bound;
  auto rows = around.rows;
  if (!rows) {
    if (auto measured = measure_rows(job, *around.model, around.model_directory)) rows = *measured;
  }
  if (!rows) return bound;
  count_with(*rows, job, input);
  return fit_findings(job, input, limits);
}

/// Checks what dsj-train will read and need.
void check_engine_input(Job& job, Problems& problems) {
  if (job.training.model_name_or_path.empty()) {
    problems.add(Error{ErrorKind::BadInput, "modelNameOrPath is missing", job.source, ""});
  } else if (auto model = find_model(job.training.model_name_or_path, hub_cache_directory())) {
    job.training.model_name_or_path = *model;
  } else {
    problems.add(model.error());
  }
  if (job.training.data_path.empty()) {
    problems.add(Error{ErrorKind::BadInput, "dataPath is missing", job.source, ""});
  } else if (const auto data = check_data(job.training.data_path); !data) {
    problems.add(data.error());
  }
  if (const auto& eval = job.training.eval_data_path; eval && !eval->empty()) {
    if (const auto data = check_data(*eval); !data) problems.add(data.error());
  }
  const Surroundings around = look_around(job);
  problems.findings(job, around.findings);
  const auto resolution = jobspec::resolve(job, around.facts);
  problems.findings(job, resolution.findings);
  for (const auto& metric : dsconfig::metric_curricula(job.ds_config)) {
    for (const auto& prefix : {metric.index_to_sample, metric.index_to_metric})
      if (!prefix.empty())
        for (const char* end : {".idx", ".bin"})
          if (const auto file = check_metric_file(prefix + end); !file) problems.add(file.error());
  }
  if (around.model && resolution.ok()) problems.findings(job, misfits(job, around, resolution));
}

/// Checks that the user's own program exists, and ds_config as far as DeepSpeed would.
void check_program(const Job& job, Problems& problems) {
  problems.findings(job, jobspec::resolve(job, {}).findings);
  const auto program = user_program(job, run_directory(job.training.output_dir));
  if (!program) problems.add(program.error());
}

Result<int> open_lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return fail(ErrorKind::Environment, std::string("cannot open it: ") + std::strerror(errno),
                path);
  }
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const bool taken = errno == EWOULDBLOCK;
  char holder[32] = "";
  const ssize_t got = pread(fd, holder, sizeof holder - 1, 0);
  close(fd);
  if (!taken) {
    return fail(ErrorKind::Environment, "cannot lock it", path);
  }
  std::string pid(holder, got > 0 ? static_cast<size_t>(got) : 0);
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  const bool alive = !pid.empty() && fs::exists("/proc/" + pid);
  return bad_input("another dsj run (pid " + pid + ") uses this output directory" +
                       (alive ? "" : "; it is gone, but its agents are still saving"),
                   fs::path(path).parent_path().parent_path().string(),
                   alive ? "stop it first, or name another --output" : "try again in a moment");
}

}  // namespace

Result<RunArguments> split_run_arguments(Arguments args) {
  RunArguments result;
  std::vector<std::string> rest;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i] == "--help" || args[i] == "-h") {
      result.help = true;
      continue;
    }
    std::string value;
    DSJ_TRY(const bool is_output, take_option(args, i, "--output", result.output));
    if (is_output) continue;
    DSJ_TRY(const bool is_set, take_option(args, i, "--set", value));
    if (is_set) {
      result.overrides.push_back(value);
      continue;
    }
    rest.push_back(args[i]);
  }
  if (result.help) return result;
  if (rest.empty()) return bad_input("expected JOB.yaml or the torchrun line's arguments");
  if (rest[0].starts_with("-") || rest[0].ends_with(".py")) {
    result.line = std::move(rest);
  } else {
    result.manifest = rest[0];
    if (rest.size() > 1) {
      return bad_input("not expected beside a manifest", rest[1],
                       "change a field with --set spec.path=value");
    }
  }
  if (const auto wrong = home_path(result.output))
    return bad_input(wrong->message, "--output", wrong->hint);
  if (!result.output.empty()) {
    const std::string absolute = fs::absolute(result.output).lexically_normal().string();
    result.overrides.push_back("spec.training.outputDir=" + nlohmann::json(absolute).dump());
  }
  return result;
}

Result<Job> prepare_job(const RunArguments& arguments) {
  DSJ_TRY(Job job, arguments.manifest.empty()
                       ? jobspec::job_from_arguments(arguments.line, arguments.overrides)
                       : jobspec::load_job_yaml(arguments.manifest, arguments.overrides));
  Problems problems("run");
  if (job.runs_user_program()) {
    check_program(job, problems);
  } else {
    check_engine_input(job, problems);
  }
  if (job.training.output_dir.empty()) {
    problems.add(
        Error{ErrorKind::BadInput, "no output directory", job.source, "name one: --output DIR"});
  }
  if (problems.count() > 0) {
    return bad_input(std::to_string(problems.count()) + (problems.count() == 1
                                                             ? " problem; nothing was started"
                                                             : " problems; nothing was started"));
  }
  DSJ_TRY_STATUS(check_output(job.training.output_dir));
  return job;
}

Result<OutputLock> OutputLock::take(const std::string& output_dir) {
  std::error_code problem;
  for (const auto& directory : {output_dir, output_dir + "/" + contract::kCheckpointsDir,
                                output_dir + "/" + contract::kLogsDir, run_directory(output_dir)}) {
    fs::create_directories(directory, problem);
    if (problem) {
      return fail(ErrorKind::Environment, "cannot make the directory: " + problem.message(),
                  directory);
    }
  }
  chmod(run_directory(output_dir).c_str(), 0700);
  DSJ_TRY(const int fd, open_lock(run_directory(output_dir) + "/lock"));
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    const int number = errno;
    close(fd);
    return fail(ErrorKind::Environment,
                std::string("cannot write the lock: ") + std::strerror(number),
                run_directory(output_dir) + "/lock");
  }
  return OutputLock(fd);
}

OutputLock::OutputLock(OutputLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

OutputLock::~OutputLock() {
  if (fd_ >= 0) close(fd_);
}

std::string run_directory(const std::string& output_dir) {
  return output_dir + "/.dsj";
}

}  // namespace dsj::cli
