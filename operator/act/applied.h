// The result of carrying out a plan, and the callbacks for doing so.
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
  std::string create_problem;  ///< the server answered a create with an error that is no refusal
  std::string problem;         ///< for the log; empty if done
  bool overtaken = false;      ///< another write came first: decide again; not a defect
  Milliseconds retry_after{0};
  int64_t created = 0, deleted = 0;
  int pods = 0;  ///< pods created or deleted
  bool status_written = false;
  AdmittedObjects admitted;
  MadeKey key;      ///< that this pass made
  Repairs written;  ///< objects other than pods that this pass created, and those that it restored
  std::string account;  ///< uid of the job's ServiceAccount, if this pass created or found it
};

/// Issues a key, with random numbers and the plan's time.
using IssueKey = std::function<Result<ServerCertificate>(const NewKey&)>;

/// The next task; nullopt if none is left or one has failed.
using ClaimTask = std::function<std::optional<size_t>()>;
using CarryTask = std::function<void(size_t)>;
/// Runs tasks until none is left, up to `at_once` at a time, in any order.
using Crew = std::function<void(int at_once, const ClaimTask& claim, const CarryTask& carry)>;

}  // namespace dsj::op
