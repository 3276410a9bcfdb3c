// What comes of carrying out a plan, and whom it needs for that.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "common/result.h"
#include "operator/observed.h"
#include "operator/plan.h"
#include "operator/webhook/certificate.h"

namespace dsj::op {

/// Hears from apply what the server answered, so that caches need not wait for their watch.
class Writes {
 public:
  virtual ~Writes() = default;
  virtual void wrote(const std::string& kind, const Json& object) = 0;
  /// The server does not have the object of that name and uid any more.
  virtual void absent(const std::string& /*kind*/, const std::string& /*ns*/,
                      const std::string& /*name*/, const std::string& /*uid*/) {}
};

struct Applied {
  bool done = false;               ///< every write succeeded
  std::optional<Refusal> refusal;  ///< the server refused an object
  std::string create_problem;      ///< the server answered a create, but neither took nor refused it
  std::string problem;             ///< for the log; empty when done
  bool overtaken = false;          ///< another write came first: decide again; no defect
  Milliseconds retry_after{0};
  int64_t created = 0, deleted = 0;
  int pods = 0;  ///< that were made or deleted
  bool status_written = false;
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
