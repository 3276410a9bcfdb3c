// The flight log of a rank: what it is doing and its last collectives, in memory that its agent
// shares (kEnvFlightFd) and can read when the rank does not answer any more. The rank
// writes, the agent reads; neither waits for the other, and a rank that is frozen in the middle of
// a write does no harm. Fixed size; the layout has a version.
//
// Collectives are noted by group of ranks: the world's, and those of each group that group() was
// asked for. Each group counts its own operations, the same on all its ranks.
//
// What can be read of a rank that still writes is at most stale: each record carries a checksum, so
// one that was caught half-written is left out. The counters are single words and only compared.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
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

/// A group of ranks whose collectives are noted apart from the world's.
struct FlightGroup {
  uint64_t id = 0;   ///< not 0; the same on all its ranks, and no other group's
  std::string name;  ///< "rail 1"; cut to 47 bytes
  std::string
      members;  ///< ranks of the world by rule (job/rank_runs.h); empty: longer than 127 bytes
  /// Its operations are parts of those of this group; 0: of the world's. Unset: they are none.
  std::optional<uint64_t> within;
  bool operator==(const FlightGroup&) const = default;
};

/// What is shown of one.
struct FlightGroupPicture {
  FlightGroup group;
  uint64_t issued = 0, ended = 0;
  int waits_for = -1;                       ///< as FlightPicture's
  std::vector<FlightOperation> operations;  ///< the last ones, by sequence
  bool operator==(const FlightGroupPicture&) const = default;
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
  /// The rank of the world without which the running collective cannot go on; -1: none, or not known.
  int waits_for = -1;
  std::vector<FlightGroupPicture> groups;
  bool operator==(const FlightPicture&) const = default;
};

struct FlightLayout;

/// Nanoseconds of the machine's monotonic clock, the same for all of its processes.
int64_t flight_clock();

/// The log of the world, or of one group. One at a time may call issued() and ended() of a log; those
/// of two logs run side by side. One thread calls enter(). tick(), waits_for(): any thread.
class FlightLog {
 public:
  static constexpr size_t kBytes = 36 << 10;
  static constexpr size_t kGroups = 16;

  /// The world's. `fd`: kBytes of memory to share; it may be closed afterwards. -1: memory of its
  /// own, which nobody reads. Environment: there is no such memory.
  static Result<std::unique_ptr<FlightLog>> open(int fd);
  /// A group's, in the same memory; its place is free again when it is destroyed. Null: kGroups are
  /// there. Any thread.
  std::unique_ptr<FlightLog> group(const FlightGroup& group);
  ~FlightLog();
  FlightLog(const FlightLog&) = delete;

  /// Of the rank, whichever group's log is told.
  void enter(FlightPhase phase, int64_t step);
  void tick();
  /// Operations begin and end in the order in which they are issued. Each begins when the one
  /// before it has ended.
  void issued(uint64_t sequence, std::string_view kind, std::string_view unit, int64_t bytes);
  /// The oldest operation that has not ended.
  void ended();
  /// Without this rank of the world the running operation cannot go on; -1: with nobody.
  void waits_for(int rank);
  /// The bytes of all groups, as a reader finds them.
  std::string_view bytes() const;

 private:
  /// What the logs of a rank have in common.
  struct Shared;
  /// Where one group's log writes.
  struct Place;

  FlightLog(std::shared_ptr<Shared> shared, const Place& place);
  void begin();
  void write(const FlightOperation& operation);

  const std::shared_ptr<Shared> shared_;
  const std::unique_ptr<const Place> place_;
  std::deque<FlightOperation> under_way_;
};

/// Notes for whom a rank waits, as long as it lives. `log` may be null.
class FlightWait {
 public:
  FlightWait(FlightLog* log, int rank) : log_(log) {
    if (log_) log_->waits_for(rank);
  }
  ~FlightWait() {
    if (log_) log_->waits_for(-1);
  }
  FlightWait(const FlightWait&) = delete;

 private:
  FlightLog* const log_;
};

/// BadInput: no flight log, one that its rank has not opened yet, or one of another version.
Result<FlightPicture> flight_picture(std::string_view bytes);

}  // namespace dsj
