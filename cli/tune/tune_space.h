// Derives from a job what `dsj tune` may try: configurations that fit the memory model, with
// their counts, and the short job of a trial. Reads the data once, to measure the rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/check/limits.h"
#include "cli/check/measured_rows.h"
#include "cli/tune/choose.h"
#include "common/result.h"
#include "job/dsconfig/sections/autotuning.h"
#include "job/spec/job.h"

namespace dsj::cli {

struct TuneScope {
  std::vector<int> stages;
  bool offload = false;     ///< also try the optimizer state in host memory
  bool keep_batch = false;  ///< train_batch_size stays
};

class TuneSpace {
 public:
  /// `job`: with TuneRequest::ds_config. Errors: BadInput if it cannot run unchanged, or if
  /// elasticity determines its batch size. `machine` must outlive the result.
  static Result<TuneSpace> make(jobspec::Job job, dsconfig::Autotuning settings, TuneScope scope,
                                std::vector<int64_t> micro_batches, GivenLimits given,
                                const Machine& machine);

  const jobspec::Job& job() const { return job_; }
  const dsconfig::Autotuning& settings() const { return settings_; }
  /// The unchanged file. Its counts are meaningless if it does not fit.
  const tune::Option& given() const { return given_; }
  /// Grouped by stage and offload. What does not fit is left out; pruned() lists it with reasons.
  const std::vector<tune::Group>& groups() const { return groups_; }
  const std::vector<std::string>& pruned() const { return pruned_; }
  /// Variations of `best` in the other ZeRO keys, one group each.
  std::vector<tune::Group> settings_around(const tune::Candidate& best) const;
  double parameters() const { return parameters_; }

  /// The job with the candidate's values, as a user would run it.
  jobspec::Job job_of(const tune::Candidate& candidate) const;
  /// The same for a few steps, with output below `output`; without monitors, evaluation,
  /// checkpoints and curricula, so that all steps do the same work.
  jobspec::Job trial_of(const tune::Candidate& candidate, const std::string& output) const;

 private:
  TuneSpace() = default;
  /// Why the candidate cannot run. Empty if it can; `option` then has its counts.
  std::string judge(const tune::Candidate& candidate, tune::Option& option) const;
  void add_group(int stage, bool offload, const tune::BatchRule& rule,
                 const std::vector<int64_t>& sizes);

  jobspec::Job job_;
  dsconfig::Autotuning settings_;
  Surroundings around_;
  std::shared_ptr<const MeasuredRows> rows_;
  GivenLimits limits_;
  const Machine* machine_ = nullptr;
  tune::Option given_;
  std::vector<tune::Group> groups_;
  std::vector<std::string> pruned_;
  double parameters_ = 1, tokens_per_row_ = 1;
};

}  // namespace dsj::cli
