// The search of `dsj tune`: tries what cli/tune/choose.h picks, keeps each outcome in its own
// folder in DeepSpeed's layout, and writes the result. All state is read back from the folders,
// so the same command continues a search that was stopped.
#pragma once

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "cli/tune/tune_space.h"
#include "cli/tune/tune_trials.h"
#include "common/files/files.h"

namespace dsj::cli {

struct TuneOptions {
  std::string results, experiments;  ///< absolute directories
  bool everything = false;           ///< --all: do not stop early
};

struct TunePorts {
  Files& files;
  Trials& trials;
  std::FILE* out = stdout;
};

class TuneLoop {
 public:
  /// All arguments must outlive it.
  TuneLoop(const TuneSpace& space, TuneOptions options, TunePorts ports);
  /// The exit code of `dsj tune`: 0 if a trial ran, 1 if none did, 130 if interrupted.
  Result<int> run();
  /// The trials of run() in order, and the best one, for -o json.
  nlohmann::json outcomes() const;

 private:
  /// Continues the search in `groups`, after `tried_`. False if interrupted.
  Result<bool> search(const std::vector<tune::Group>& groups, tune::Rules rules);
  /// Tries one option. False if interrupted.
  Result<bool> attempt(const tune::Option& option, std::vector<tune::Outcome>& tried);
  Status begin();
  Status clear();
  Status clear_trial(const std::string& folder);
  Status write_experiment(const tune::Candidate& candidate, const std::string& folder);
  std::optional<TrialResult> known(const tune::Candidate& candidate, const std::string& folder);
  Status record(const tune::Option& option, const TrialResult& result, const std::string& folder);
  Status write_best(const tune::Outcome& best);
  std::string table() const;
  std::string gain(const tune::Outcome& best) const;
  std::string folder_of(const tune::Candidate& candidate) const;
  nlohmann::json experiment(const tune::Candidate& candidate) const;
  std::string job_text(const tune::Candidate& candidate, const std::string& folder) const;

  const TuneSpace& space_;
  const TuneOptions options_;
  TunePorts ports_;
  tune::Rules rules_;
  std::vector<tune::Outcome> tried_;
  std::map<std::string, std::string> failures_;  ///< name → reason
  int64_t reused_ = 0;
};

}  // namespace dsj::cli
