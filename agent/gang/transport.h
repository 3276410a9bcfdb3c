// The port by which beats travel between agents: over HTTP (http_transport.h), or the full fake in
// memory (memory_transport.h). The agent's one thread polls both sides; neither blocks it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/gang/messages.h"
#include "agent/gang/session.h"
#include "common/result.h"

namespace dsj::agent {

/// The answers of worker 0's agent. Made once per turn, in time linear in the workers; read by the
/// transport's threads.
class Board {
 public:
  Board() = default;
  explicit Board(const Session& session);
  /// What directive_for() returned when the board was made.
  Directive answer(int worker, int64_t incarnation) const;

 private:
  struct Answers {
    int64_t incarnation;
    Directive current;
    Directive successor;  ///< for a later incarnation
  };
  std::vector<Answers> answers_;  ///< [worker]
  Directive replaced_, unknown_;
};

/// Worker 0's side.
class BeatServer {
 public:
  virtual ~BeatServer() = default;
  /// The beats that came since the last call, in the order of arrival.
  virtual std::vector<WorkerReport> take() = 0;
  /// The answers to beats from now on. Before the first call beats wait or fail.
  virtual void publish(Board board) = 0;
  /// Readable when take() has something; -1: no such descriptor.
  virtual int ready_fd() const = 0;
};

/// Every other worker's side. At most one beat is in flight.
class BeatClient {
 public:
  virtual ~BeatClient() = default;
  virtual void send(const WorkerReport& report) = 0;
  /// The answer to the last beat, once. Error: there will be none.
  virtual std::optional<Result<Directive>> receive() = 0;
  virtual int ready_fd() const = 0;
};

}  // namespace dsj::agent
