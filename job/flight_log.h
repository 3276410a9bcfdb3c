// The flight log of a rank: its phase and its last collectives. It is in memory that the rank
// shares with its agent (kEnvFlightFd), so the agent can read it when the rank no longer answers.
// The rank writes without locks and a frozen rank blocks no reader. Fixed size; the layout has a
// version.
//
// Collectives are recorded per group of ranks: the world, and each group that group() was called
// for. Each group counts its own operations; all its ranks count the same.
//
// While a rank writes, a reader sees stale data at worst. Each record has a checksum, and the
// reader drops a half-written record. Counters are single words and are only compared.
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

/// Environment of a rank, besides the names in contract.h: the descriptor of the inherited memory
/// for its flight log. Only dsj-train gets it.
inline constexpr char kEnvFlightFd[] = "DSJ_FLIGHT_FD";

/// What a rank is doing.
enum class FlightPhase { Starting, Reading, Training, Evaluating, Saving, Exporting };
inline constexpr int kFlightPhases = 6;
/// "starting", "reading rows", "training", ...
const char* name_of(FlightPhase phase);

/// A collective, as a rank records it.
struct FlightOperation {
  enum class State { Issued, Begun, Ended };
  uint64_t sequence = 0;  ///< 1 for the group's first; the same on all ranks
  std::string kind;       ///< "all_gather"; cut to 15 bytes
  std::string unit;       ///< "layer 3"; cut to 47 bytes
  int64_t bytes = 0;      ///< of the whole tensor
  State state = State::Issued;
  int64_t changed_ns = 0;  ///< when it entered this state, by flight_clock()
  bool operator==(const FlightOperation&) const = default;
};

/// A group of ranks whose collectives are recorded apart from the world's.
struct FlightGroup {
  uint64_t id = 0;   ///< not 0; unique to the group, the same on all its ranks
  std::string name;  ///< "rail 1"; cut to 47 bytes
  std::string
      members;  ///< ranks of the world as runs (job/rank_runs.h); empty if longer than 127 bytes
  /// The group whose operations contain this group's; 0 is the world. Unset: no group does.
  std::optional<uint64_t> within;
  bool operator==(const FlightGroup&) const = default;
};

/// A group's part of a flight log.
struct FlightGroupPicture {
  FlightGroup group;
  uint64_t issued = 0, ended = 0;
  int waits_for = -1;                       ///< as in FlightPicture
  std::vector<FlightOperation> operations;  ///< the last ones, by sequence
  bool operator==(const FlightGroupPicture&) const = default;
};

/// The content of a flight log.
struct FlightPicture {
  FlightPhase phase = FlightPhase::Starting;
  int64_t step = 0;     ///< the step that the rank works on; 0 before the first
  uint64_t ticks = 0;   ///< rises with every part of a step or of an evaluation
  uint64_t issued = 0;  ///< collectives so far
  uint64_t ended = 0;
  // Totals over the phases Reading and Training:
  int64_t steps = 0;          ///< completed training steps
  int64_t step_ns = 0;        ///< duration of these phases
  int64_t collective_ns = 0;  ///< of it, while a collective ran or waited for other ranks
  std::vector<FlightOperation> operations;  ///< the last ones, by sequence
  /// The world rank that the running collective waits for; -1 if none or unknown.
  int waits_for = -1;
  std::vector<FlightGroupPicture> groups;
  bool operator==(const FlightPicture&) const = default;
};

struct FlightLayout;

/// Nanoseconds of the machine's monotonic clock, which all its processes share.
int64_t flight_clock();

/// The log of the world or of one group. Calls of issued() and ended() on one log must not overlap;
/// on two logs they may. One thread calls enter(). Any thread may call tick() and waits_for().
class FlightLog {
 public:
  static constexpr size_t kBytes = 36 << 10;
  static constexpr size_t kGroups = 16;

  /// The world's log. `fd`: kBytes of shared memory; the caller may close it afterwards. -1:
  /// private memory without a reader. Errors: Environment if the memory is missing or too small.
  static Result<std::unique_ptr<FlightLog>> open(int fd);
  /// A group's log, in the same memory. Destroying it frees its entry. Null if kGroups logs exist.
  /// Any thread.
  std::unique_ptr<FlightLog> group(const FlightGroup& group);
  ~FlightLog();
  FlightLog(const FlightLog&) = delete;

  /// Sets the rank's phase; the same on every group's log.
  void enter(FlightPhase phase, int64_t step);
  void tick();
  /// Operations begin and end in the order in which they are issued. Each begins when its
  /// predecessor has ended.
  void issued(uint64_t sequence, std::string_view kind, std::string_view unit, int64_t bytes);
  /// Ends the oldest operation that has not ended.
  void ended();
  /// Sets the world rank that the running operation waits for; -1 if none.
  void waits_for(int rank);
  /// The memory of all groups' logs, for flight_picture().
  std::string_view bytes() const;

 private:
  /// State that all logs of a rank share.
  struct Shared;
  /// The part of the memory that one group's log writes.
  struct Place;

  FlightLog(std::shared_ptr<Shared> shared, const Place& place);
  void begin();
  void write(const FlightOperation& operation);

  const std::shared_ptr<Shared> shared_;
  const std::unique_ptr<const Place> place_;
  std::deque<FlightOperation> under_way_;
};

/// While it exists, `log` shows that the rank waits for `rank`. `log` may be null.
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

/// Errors: BadInput if `bytes` are no flight log, are not initialized yet or have another version.
Result<FlightPicture> flight_picture(std::string_view bytes);

}  // namespace dsj
