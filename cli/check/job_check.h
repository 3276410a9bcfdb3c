// The check of a job that `dsj validate`, `dsj plan` and `dsj run` share: what one of them
// refuses, all refuse with the same message. It starts nothing, and writes only the cache of
// checked rows.
//
// A new check of a job is a function of job_check.cc that returns findings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/check/limits.h"
#include "cli/check/surroundings.h"
#include "job/plan/memory_input.h"
#include "job/spec/job.h"

namespace dsj::cli {

struct CheckOptions {
  FilesAre files = FilesAre::Here;
  GivenLimits given;
  /// Memory of the accelerator that the job would run on (`dsj plan --device`).
  std::optional<plan::Limit> device;
  bool native_products = false;  ///< that accelerator has units for the job's dtype
};

struct JobCheck {
  Surroundings around;
  dsconfig::Resolution resolution;  ///< `findings` includes its findings
  /// Has the largest possible micro-batches. Unset if the model or the config is unknown.
  std::optional<plan::MemoryInput> memory;
  plan::Limits limits;
  /// All findings, sorted by line; those without a line come last.
  std::vector<dsconfig::Finding> findings;

  /// Whether all findings are warnings.
  bool passes() const;
};

JobCheck check_job(const jobspec::Job& job, const CheckOptions& options, const Machine& machine);

/// Sorts by file, line and column, and removes duplicates.
void put_in_order(const jobspec::Job& job, std::vector<dsconfig::Finding>& findings);

/// Whether there is no Error and no Unsupported.
bool only_warnings(const std::vector<dsconfig::Finding>& findings);

/// Prints each finding on stderr, and "dsj VERB: N problems; ..." if the job does not pass.
/// Returns the exit code: 0, or 1 if it does not pass.
int report_findings(const char* verb, const jobspec::Job& job,
                    const std::vector<dsconfig::Finding>& findings);

}  // namespace dsj::cli
