#include "cli/run/run_prepare.h"

#include <cstdio>
#include <filesystem>
#include <utility>

#include "cli/check/job_check.h"
#include "cli/check/run_program.h"
#include "cli/input.h"
#include "common/home_path.h"
#include "common/text.h"
#include "job/contract.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;
using jobspec::Job;

}  // namespace

Result<RunArguments> split_run_arguments(Arguments args, const Variable& variable) {
  RunArguments result;
  JobWords words =
      split_words(args, {{"-o"}, {"--output"}, {"--set"}, {"--help", false}, {"-h", false}});
  for (size_t i = 0; i < words.own.size(); ++i) {
    const std::string name = words.own[i].substr(0, words.own[i].find('='));
    if (name == "--help" || name == "-h") {
      result.help = true;
      return result;
    }
    if (name != "-o" && name != "--output" && name != "--set")
      return bad_input(
          "not an argument of dsj run", name,
          text::did_you_mean(name, std::vector<std::string>{"--output", "--set", "--help"}));
    const bool apart = name.size() == words.own[i].size();
    if (apart && i + 1 >= words.own.size()) return bad_input("a value is missing", name);
    const std::string value = apart ? words.own[++i] : words.own[i].substr(name.size() + 1);
    if (name == "-o")
      result.format = value;
    else if (name == "--output")
      result.output = value;
    else
      result.overrides.push_back(value);
  }
  if (!result.format.empty() && result.format != "text" && result.format != "json")
    return bad_input("found \"" + result.format + "\", expected text or json", "-o",
                     "--output DIR names the output directory");
  if (const auto wrong = home_path(result.output))
    return bad_input(wrong->message, "--output", wrong->hint);
  if (words.file.empty() && words.line.empty())
    return bad_input("expected JOB.yaml or the torchrun line's arguments");
  if (words.file.size() > 1)
    return bad_input("not expected beside a manifest", words.file[1],
                     "change a field with --set spec.path=value");
  if (!words.file.empty()) result.manifest = words.file[0];
  result.line = std::move(words.line);
  if (result.line.empty()) {
    DSJ_TRY_STATUS(one_node(variable));
  } else {
    DSJ_TRY(result.nodes, take_nodes(result.line, variable));
  }
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

}  // namespace dsj::cli
