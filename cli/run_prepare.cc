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

#include "cli/input.h"
#include "cli/job_check.h"
#include "cli/run_program.h"
#include "common/home_path.h"
#include "job/contract.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using jobspec::Job;

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
  JobWords words = split_words(args, {{"--output"}, {"--set"}, {"--help", false}, {"-h", false}});
  for (size_t i = 0; i < words.own.size(); ++i) {
    const std::string name = words.own[i].substr(0, words.own[i].find('='));
    if (name == "--help" || name == "-h") {
      result.help = true;
      return result;
    }
    const bool apart = name.size() == words.own[i].size();
    if (apart && i + 1 >= words.own.size()) return bad_input("a value is missing", name);
    const std::string value = apart ? words.own[++i] : words.own[i].substr(name.size() + 1);
    if (name == "--output")
      result.output = value;
    else
      result.overrides.push_back(value);
  }
  if (const auto wrong = home_path(result.output))
    return bad_input(wrong->message, "--output", wrong->hint);
  if (words.file.empty() && words.line.empty())
    return bad_input("expected JOB.yaml or the torchrun line's arguments");
  if (words.file.size() > 1)
    return bad_input("not expected beside a manifest", words.file[1],
                     "change a field with --set spec.path=value");
  if (!words.file.empty()) result.manifest = words.file[0];
  result.line = std::move(words.line);
  if (!result.output.empty()) {
    const std::string absolute = fs::absolute(result.output).lexically_normal().string();
    result.overrides.push_back("spec.training.outputDir=" + nlohmann::json(absolute).dump());
  }
  return result;
}

Result<std::optional<PreparedJob>> prepare_job(const RunArguments& arguments) {
  DSJ_TRY(Input input, arguments.manifest.empty()
                           ? read_line(arguments.line, arguments.overrides)
                           : read_input(arguments.manifest, arguments.overrides));
  if (input.syntax) {
    std::fprintf(stderr, "%s\n", input.syntax->to_string().c_str());
    return std::optional<PreparedJob>();
  }
  if (!input.job)
    return bad_input("this is a bare ds_config", arguments.manifest,
                     "run needs a DeepSpeedJob, or a line with --deepspeed " + arguments.manifest);
  Job& job = *input.job;
  const JobCheck check = check_job(job, {}, ThisMachine());
  if (report_findings("run", job, check.findings) != 0) return std::optional<PreparedJob>();
  if (check.around.model) job.training.model_name_or_path = check.around.model_directory;
  PreparedJob prepared{std::move(job), {}};
  for (const auto& finding : check.findings) prepared.told.push_back(finding.message);
  return std::optional(std::move(prepared));
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

}  // namespace dsj::cli
