// The flight log of a rank: what it is doing and its last collectives, in memory that its agent
// shares (kEnvFlightFd) and can read when the rank does not answer any more. The rank
// writes, the agent reads; neither waits for the other, and a rank that is frozen in the middle of
// a write does no harm. Fixed size; the layout has a version.
//
// What can be read of a rank that still writes is at most stale: each record carries a checksum, so
// one that was caught half-written is left out. The counters are single words and only compared.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace dsj {

/// Environment of a rank, as the names in contract.h: the number of the inherited memory for its
/// flight log. Only for ranks that are dsj-train.
inline constexpr char kEnvFlightFd[] = "DSJ_FLIGHT_FD";

/// What a rank is doing.
enum class FlightPhase { Starting, Reading, Training, Evaluating, Saving, Exporting };
inline constexpr int kFlightPhases = 6;
/// "starting", "reading rows", "training", ...
const char* name_of(FlightPhase phase);

/// A collective, as a rank notes it.
struct FlightOperation {
  enum class State { Issued, Begun, Ended };
  uint64_t sequence = 0;  ///< 1 for the group's first; the same on all ranks
  std::string kind;       ///< "all_gather"; cut to 15 bytes
  std::string unit;       ///< "layer 3"; cut to 47 bytes
  int64_t bytes = 0;      ///< of the whole tensor
  State state = State::Issued;
  int64_t changed_ns = 0;  ///< when it came into this state, by flight_clock()
  bool operator==(const FlightOperation&) const = default;
};

/// What a flight log shows.
struct FlightPicture {
  FlightPhase phase = FlightPhase::Starting;
  int64_t step = 0;     ///< the step that the rank works on; 0: before the first
  uint64_t ticks = 0;   ///< rises with every part of a step or an evaluation
  uint64_t issued = 0;  ///< collectives so far
  uint64_t ended = 0;
  // Totals, of reading rows and training alone:
  int64_t steps = 0;          ///< that were trained to their end
  int64_t step_ns = 0;        ///< what these phases took
  int64_t collective_ns = 0;  ///< of it, how long a collective ran or waited for other ranks
  std::vector<FlightOperation> operations;  ///< the last ones, by sequence
  bool operator==(const FlightPicture&) const = default;
};

struct FlightLayout;

/// Nanoseconds of the machine's monotonic clock, the same for all of its processes.
int64_t flight_clock();

/// One at a time may call issued() and ended(); one thread calls enter(). tick(): any thread.
class FlightLog {
 public:
  static constexpr size_t kBytes = 16 << 10;

  /// `fd`: kBytes of memory to share; it may be closed afterwards. -1: memory of its own, which
  /// nobody reads. Environment: there is no such memory.
  static Result<std::unique_ptr<FlightLog>> open(int fd);
  ~FlightLog();
  FlightLog(const FlightLog&) = delete;

  void enter(FlightPhase phase, int64_t step);
  void tick();
  /// Operations begin and end in the order in which they are issued. Each begins when the one
  /// before it has ended.
  void issued(uint64_t sequence, std::string_view kind, std::string_view unit, int64_t bytes);
  /// The oldest operation that has not ended.
  void ended();
  /// The bytes as a reader finds them.
  std::string_view bytes() const;

 private:
  FlightLog(FlightLayout* layout, bool mapped);
  void begin();
  void write(const FlightOperation& operation);

  FlightLayout* const layout_;
  const bool mapped_;
  std::deque<FlightOperation> under_way_;
  FlightPhase phase_ = FlightPhase::Starting;
  int64_t entered_ns_ = 0;                 ///< the phase
  std::atomic<int64_t> step_began_ns_{0};  ///< 0: in no step
};

/// BadInput: no flight log, one that its rank has not opened yet, or one of another version.
Result<FlightPicture> flight_picture(std::string_view bytes);

}  // namespace dsj
