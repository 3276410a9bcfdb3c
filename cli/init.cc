// dsj init: writes a commented job for a model and a data file, which passes `dsj validate`.
#include <cstdio>
#include <filesystem>
#include <string>

#include "cli/check/hub_cache.h"
#include "cli/check/job_check.h"
#include "cli/exit_codes.h"
#include "cli/new_job.h"
#include "cli/result_format.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/cpu.h"
#include "common/cuda_driver.h"
#include "common/files/posix_files.h"
#include "job/layout/model_config.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

struct InitOptions {
  NewJob job{.preset = "full"};
  std::string output = "job.yaml", format;
  std::optional<int64_t> ranks;
  bool force = false, elsewhere = false;
};

/// `path` relative to the directory of `output`, as a job there must name it. Keeps a hub id.
std::string as_named(const std::string& path, const std::string& output) {
  const fs::path here = fs::current_path();
  const bool same = fs::absolute(output).parent_path().lexically_normal() == here;
  std::error_code ignored;
  return same || !fs::exists(path, ignored) ? path : fs::absolute(path).lexically_normal().string();
}

Result<int> init(InitOptions options) {
  JsonResult result(options.format);
  PosixFiles files;
  DSJ_TRY(const bool there, files.exists(options.output));
  if (there && !options.force)
    return bad_input("the file exists", options.output,
                     "--force replaces it, --output FILE names another");
  NewJob& job = options.job;
  if (job.model.empty() != job.data.empty())
    return bad_input("a model without a data file", job.model,
                     "dsj init MODEL DATA, or neither for a job to fill in");
  const bool blank = job.model.empty();
  if (blank) {
    job.model = "MODEL";
    job.data = "DATA.json";
  } else if (const auto directory = find_model(job.model, hub_cache_directory())) {
    DSJ_TRY(const auto config, layout::read_model_config(*directory));
    job.positions = config.longest_sequence();
  } else if (!options.elsewhere) {
    return std::unexpected(directory.error());
  }
  job.model = as_named(job.model, options.output);
  job.data = as_named(job.data, options.output);
  const bool on_cpu = job.preset == "cpu";
  job.ranks =
      static_cast<int>(options.ranks.value_or(on_cpu ? 1 : std::max(1, cuda_driver().devices)));
  job.native_bf16 = cpu_multiplies_bf16();
  job.file_name = fs::path(options.output).filename().string();
  const std::string text = job_text(job);
  DSJ_TRY(const auto parsed, jobspec::parse_job_yaml(text, options.output));
  const auto are = blank || options.elsewhere ? FilesAre::Elsewhere : FilesAre::Here;
  const JobCheck check = check_job(parsed, {.files = are}, ThisMachine());
  if (!blank || !check.passes()) {
    const int code = report_findings("init", parsed, check.findings);
    if (code != 0) return code;
  }
  DSJ_TRY_STATUS(files.write_atomically(options.output, text));
  std::printf("%s: preset %s%s\n", options.output.c_str(), job.preset.c_str(),
              blank ? "; fill in MODEL and DATA.json" : "");
  result.print(
      {{"job", options.output}, {"preset", job.preset}, {"ranks", job.ranks}, {"toFillIn", blank}});
  return kExitOk;
}

}  // namespace

int run_init(Arguments args) {
  InitOptions options;
  ArgumentParser parser{
      "Writes a job with comments for a model and a data file, by a preset. The job passes `dsj "
      "validate`; nothing is written if it would not. Without MODEL and DATA it is a job to fill "
      "in.",
      "dsj init"};
  parser.option("MODEL", options.job.model, "a Hugging Face directory, or a hub id in the cache");
  parser.option("DATA", options.job.data, "a data file: alpaca or chat rows, JSON or JSONL");
  parser
      .option("--preset", options.job.preset,
              "full fine-tuning, LoRA, rows of up to 32k tokens, or a CPU")
      .one_of(preset_names())
      .show_default();
  parser
      .option(
          "--ranks", options.ranks,
          "ranks on this machine (default: its GPUs, or 1 without a GPU and for the preset cpu)")
      .positive();
  parser.option("--output", options.output, "the job's file").show_default();
  add_format(parser, options.format);
  parser.flag("--force", options.force, "replaces the file");
  parser.flag("--elsewhere", options.elsewhere,
              "the job is for another machine: a file that is not here is a warning");
  if (const auto over = parser.parse(args)) return *over;
  const auto code = init(options);
  return code ? *code : report("init", code.error());
}

}  // namespace dsj::cli
