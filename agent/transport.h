// How beats travel between agents: the port, with a full fake in memory (memory_transport.h) and
// HTTP behind cpprestsdk (http_transport.h). Both sides are polled by the agent's one thread and
// never block it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/messages.h"
#include "agent/session.h"
#include "common/result.h"

namespace dsj::agent {

/// The answers of worker 0's agent, made once per change and read by the transport's threads.
class Board {
 public:
  Board() = default;
  explicit Board(const Session& session);
  /// What directive_for() said when the board was made.
  Directive answer(int worker, int64_t incarnation) const;

 private:
  std::vector<Directive> current_;
  std::vector<int64_t> incarnations_;
  Directive replaced_, unknown_;
};

/// Worker 0's side.
class BeatServer {
 public:
  virtual ~BeatServer() = default;
  /// The beats that came since the last call, in the order of arrival.
  virtual std::vector<WorkerReport> take() = 0;
  /// What beats are answered with from now on. Before the first call they wait or fail.
  virtual void publish(const Board& board) = 0;
  /// Readable when take() has something; -1: none.
  virtual int ready_fd() const = 0;
};

/// Every other worker's side. One beat is under way at a time.
class BeatClient {
 public:
  virtual ~BeatClient() = default;
  virtual void send(const WorkerReport& report) = 0;
  /// The answer to the last beat, once; an error when there will be none.
  virtual std::optional<Result<Directive>> receive() = 0;
  virtual int ready_fd() const = 0;
};

}  // namespace dsj::agent
