// The verdict on a job, which `dsj validate`, `dsj plan` and `dsj run` share: what one of them
// refuses, all refuse, in the same words. Starts nothing, writes nothing but the cache of rows that
// were checked.
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
  /// The job would compute on an accelerator with this much memory; `dsj plan --device`.
  std::optional<plan::Limit> device;
  bool native_products = false;  ///< that accelerator multiplies the job's type
};

struct JobCheck {
  Surroundings around;
  dsconfig::Resolution resolution;  ///< its findings are in `findings`, too
  /// The largest micro-batches that may come. Unset: the model or the config is not known.
  std::optional<plan::MemoryInput> memory;
  plan::Limits limits;
  /// Everything that there is to say, in the order of the lines; those without a line last.
  std::vector<dsconfig::Finding> findings;

  /// Nothing but warnings.
  bool passes() const;
};

JobCheck check_job(const jobspec::Job& job, const CheckOptions& options, const Machine& machine);

/// By file, then line and column. A finding that is there twice is left out.
void put_in_order(const jobspec::Job& job, std::vector<dsconfig::Finding>& findings);

/// No Error and no Unsupported.
bool only_warnings(const std::vector<dsconfig::Finding>& findings);

/// Prints each finding on stderr, and "dsj VERB: N problems; ..." where a job does not pass. Exit
/// code: 0, or 1 where it does not pass.
int report_findings(const char* verb, const jobspec::Job& job,
                    const std::vector<dsconfig::Finding>& findings);

}  // namespace dsj::cli
