// How beats travel between agents: the port, over HTTP (http_transport.h) or by the tests' full fake in memory; how often
// an agent speaks; which beats are in order. The agent's one thread polls both sides of the port; neither blocks it.
//
// One thread answers all agents of a gang, so the more they are, the more rarely each of them speaks: the beats and tries
// of all together in a second stay below a bound that the number of workers does not change, up to 6,000 of them.
//
// A beat that another one overtook must not count, but no number may shut out the worker either: somebody who stole its
// token could send a huge one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "agent/wire/messages.h"
#include "common/result.h"

namespace dsj::agent {

/// The answers of worker 0's agent (board_of() in agent/gang/session.h). Made once per turn; read by the transport's threads.
struct Board {
  struct Answers {
    int64_t incarnation;
    Directive current;
    Directive successor;  ///< for a later incarnation
  };
  std::vector<Answers> answers;  ///< [worker]
  Directive replaced, unknown;

  Directive answer(int worker, int64_t incarnation) const;
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

/// The most beats in a second while something is to happen, while nothing does, and the most tries of
/// workers whom nobody answers: each looks up a name and opens a connection.
inline constexpr int kSoonBeatsMax = 4'000, kSteadyBeatsMax = 2'000, kTriesMax = 500;

/// The wait between the beats of one of `workers` while an attempt begins or ends. 100 ms up to 400
/// workers, a second at 4,096.
Time soon_beat(int workers);
/// The same while the ranks run. 500 ms up to 1,000 workers, two seconds at 4,096.
Time steady_beat(int workers);
/// The wait before the next try of `worker` after `failures` (1, 2, ...) beats in a row without an
/// answer: 200 ms, doubled with each, up to 500 ms or what kTriesMax asks for; spread over [1/2, 1] of
/// itself by the worker's number, so that not all come at once.
Time next_try(int worker, int workers, int failures);
/// How long a try waits, `first` if the last one was not `late`: doubled with each try in a row that reached
/// worker 0's machine and had no answer in time, up to four times. A worker 0 that is slow gets to it in the end;
/// one that is not there is not waited for any longer.
Time patience(Time first, int late);
/// The least time between two turns of worker 0's agent that beats cause. A turn looks at every worker,
/// so what turns take of a second stays the same for any gang.
Time turn_pause(int workers);

/// The furthest that one beat may be ahead of the one before it. Years of beats at any rate stay far
/// below the largest number, so there is always a next one.
inline constexpr int64_t kSequenceStepMax = 1 << 20;

/// Worker 0's side. One thread at a time.
class Sequences {
 public:
  /// nullopt: in order, or a repetition, which changes nothing. Else the newest number that was taken
  /// in this life of the worker (-1: none): its next beat goes on above that.
  std::optional<int64_t> refuse(const WorkerReport& report);

 private:
  struct Newest {
    int64_t incarnation = 0, sequence = -1;
  };
  std::map<int, Newest> newest_;  ///< [worker]
};

}  // namespace dsj::agent
