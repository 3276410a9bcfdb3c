// How beats travel between agents: the port, implemented over HTTP (http_transport.h) and by a fake
// in memory for tests; how often an agent sends; and which beats are in order. The agent's only
// thread polls both sides of the port; neither blocks it.
//
// One thread answers all agents of a gang, so each agent sends less often in a larger gang: the
// total number of beats and tries per second has a bound that does not depend on the number of
// workers, up to 6,000 of them.
//
// A beat that was overtaken by a newer one must not count. But no sequence number may lock out a
// worker: an attacker with its token could send a huge one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "agent/wire/messages.h"
#include "common/result.h"

namespace dsj::agent {

/// The answers of worker 0's agent (board_of() in agent/gang/session.h). Built once per turn, read
/// by the transport's threads.
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
  /// The beats since the last call, in order of arrival.
  virtual std::vector<WorkerReport> take() = 0;
  /// Sets the answers to beats from now on. Before the first call, beats wait or fail.
  virtual void publish(Board board) = 0;
  /// Readable if take() has something; -1 if there is no descriptor.
  virtual int ready_fd() const = 0;
};

/// The side of the other workers. At most one beat is in flight.
class BeatClient {
 public:
  virtual ~BeatClient() = default;
  virtual void send(const WorkerReport& report) = 0;
  /// The answer to the last beat, returned once. An error means that no answer will come.
  virtual std::optional<Result<Directive>> receive() = 0;
  virtual int ready_fd() const = 0;
};

/// The most beats per second while an attempt begins or ends, the most while it runs, and the most
/// tries of workers without an answer: each of those looks up a name and opens a connection.
inline constexpr int kSoonBeatsMax = 4'000, kSteadyBeatsMax = 2'000, kTriesMax = 500;

/// The time between the beats of each of `workers` while an attempt begins or ends: 100 ms up to
/// 400 workers, one second at 4,096.
Time soon_beat(int workers);
/// The same while the ranks run: 500 ms up to 1,000 workers, two seconds at 4,096.
Time steady_beat(int workers);
/// The wait before the next try of `worker` after `failures` (1, 2, ...) consecutive beats without
/// an answer: 200 ms, doubled each time, up to 500 ms or to what kTriesMax requires. Scaled by a
/// factor in [1/2, 1] that depends on the worker, so that not all try at once.
Time next_try(int worker, int workers, int failures);
/// The timeout of a try: `first`, doubled for each of the last `late` consecutive tries that
/// reached worker 0's machine but got no answer in time, up to four times `first`. So a slow worker
/// 0 is reached eventually, and an absent one is not waited for longer.
Time patience(Time first, int late);
/// The minimum time between two turns of worker 0's agent that beats cause. A turn visits every
/// worker, so this keeps the share of time in turns constant for any gang.
Time turn_pause(int workers);

/// How far a beat may be ahead of the previous one. Years of beats at any rate stay far below the
/// largest number, so there is always a next one.
inline constexpr int64_t kSequenceStepMax = 1 << 20;

/// Worker 0's side. One thread at a time.
class Sequences {
 public:
  /// nullopt if the beat is in order, or a repetition, which changes nothing. Otherwise the newest
  /// number accepted from this incarnation (-1 if none): its next beat must use a higher one.
  std::optional<int64_t> refuse(const WorkerReport& report);

 private:
  struct Newest {
    int64_t incarnation = 0, sequence = -1;
  };
  std::map<int, Newest> newest_;  ///< [worker]
};

}  // namespace dsj::agent
