// What comes of carrying out a plan, and whom it needs for that.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/result.h"
#include "operator/observe/observed.h"
#include "operator/observe/writes.h"
#include "operator/render/plan.h"
#include "operator/webhook/certificate.h"

namespace dsj::op {

struct Applied {
  bool done = false;               ///< every write succeeded
  std::optional<Refusal> refusal;  ///< the server refused an object
  std::string create_problem;  ///< the server answered a create, but neither took nor refused it
  std::string problem;         ///< for the log; empty when done
  bool overtaken = false;      ///< another write came first: decide again; no defect
  Milliseconds retry_after{0};
  int64_t created = 0, deleted = 0;
  int pods = 0;  ///< that were made or deleted
  bool status_written = false;
  std::string account;  ///< uid of the job's ServiceAccount, if this pass made or met it
  /// A set of keys that cannot be made, because its Secrets' names are taken; another is to be made.
  std::string taken_set;
};

/// Makes a key for a set, by chance and the clock of the plan.
using IssueKey = std::function<Result<ServerCertificate>(const KeyChange&)>;

/// The next task; nullopt: none is left, or one has failed.
using ClaimTask = std::function<std::optional<size_t>()>;
using CarryTask = std::function<void(size_t)>;
/// Claims tasks and carries out up to `at_once` of them at a time, in no order, until none is left.
using Crew = std::function<void(int at_once, const ClaimTask& claim, const CarryTask& carry)>;

}  // namespace dsj::op
