// A save that nobody waits for. begin() takes this rank's pieces between two steps; a thread copies
// them, writes the copy behind the next steps, and one of rank 0 publishes (writer.h) once every
// part is durable.
//
// Forward and backward only read a state. So a piece that stays is copied beside them, and settle()
// is called before the next update. What is not copied by then is copied by both. A piece that does
// not stay is copied by begin().
//
// The threads issue no collectives: those would interleave with the steps' own. Between two steps
// each rank says what it has done so far (votes()), the votes of all ranks are added by the
// reduction that a step has anyway, and advance() draws the same conclusion on every rank. So all
// ranks begin, publish and fail at the same step, and none of them waits.
//
// One save at a time: Idle, Writing (begin to the last part), Publishing (rank 0 publishes), Idle.
// A process may die at any point, as with writer.h. Called by engine/train.
// Tested by: tests/engine/checkpoint/background_save_test.cc, tests/engine/checkpoint/death_test.cc
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/checkpoint/writer.h"

namespace dsj::checkpoint {

/// What this rank has done for the save in flight; added up, what all ranks have.
struct SaveVotes {
  double written = 0;    ///< its part is durable
  double failed = 0;     ///< it could not write, or not publish
  double published = 0;  ///< rank 0: the checkpoint has its name
};

/// A checkpoint that is published.
struct BackgroundSaved {
  int64_t step = 0;
  double seconds = 0;  ///< from begin() until rank 0 knew that it was published
  double stall = 0;    ///< seconds of these that the caller spent in begin(), settle(), finish()
  std::optional<Published> published;  ///< rank 0 only
};

/// One thread at a time.
class BackgroundSave {
 public:
  using Produce = std::function<Status(const EmitPiece&)>;
  /// Copies `from` to `to`, which is as long.
  using Copy = std::function<void(std::span<float> to, std::span<const float> from)>;
  struct Copies {
    Copy waiting;  ///< on the caller's thread, while the steps wait: with all threads of a step
    Copy beside;   ///< on a thread beside a step, which has the others
  };
  using Saved = Result<std::optional<BackgroundSaved>>;

  /// `buffer` takes the copy: at least as many elements as this rank's pieces have. Its pages are
  /// touched on a thread. `files`, the buffer's memory and pieces that stay must outlive it.
  BackgroundSave(Files& files, std::span<float> buffer, Copies copies = plain_copies());
  static Copies plain_copies();
  /// Gives up what is not written yet. Waits for a publication that has begun.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;

  bool idle() const { return phase_ == Phase::Idle; }
  /// Takes what `produce` emits (write_rank_from) and starts to write it. A failure is this rank's
  /// vote. `publication`: rank 0's. Precondition: idle(), and no save has failed.
  void begin(const WriteOptions& options, Publication publication, const Produce& produce);
  /// Returns when every piece is copied. Call it in each step before the update.
  void settle();
  /// The checkpoint in flight will be published as one that is known to be good (confirmed.h). Does
  /// nothing once its publication has begun; false then.
  bool confirm();
  /// Never blocks.
  SaveVotes votes();
  /// Takes the sum of the votes that all ranks gave. nullopt: nothing is published yet. Error: this
  /// rank's own, or Transient, "another rank failed". The save is over then, and so is the run.
  Saved advance(const SaveVotes& all);
  /// Waits until the save in flight is published. `add` returns the sum over ranks, and is
  /// collective. nullopt: there was none. Errors: advance's.
  Saved finish(const std::function<SaveVotes(const SaveVotes&)>& add);
  /// Waits until this rank's own work of this phase is done.
  void wait();

 private:
  enum class Phase { Idle, Writing, Publishing };
  using Clock = std::chrono::steady_clock;
  struct Chunk {
    std::span<float> to;
    std::span<const float> from;
  };
  Status take_pieces(const Produce& produce);
  /// Copies chunks until none is left to begin.
  void copy_chunks(const Copy& copy);
  void wait_for_chunks();
  Result<int64_t> write();

  Files& files_;
  const std::span<float> buffer_;
  const Copies copies_;
  std::future<void> warm_;  ///< touches the buffer's pages
  Phase phase_ = Phase::Idle;
  WriteOptions options_;
  Publication publication_;
  std::vector<Piece> pieces_;  ///< in the buffer
  std::vector<Chunk> chunks_;  ///< of the pieces that stay
  std::atomic<size_t> begun_chunks_ = 0, copied_chunks_ = 0;
  bool settled_ = true;
  std::future<Result<int64_t>> writing_;
  std::future<Result<Published>> publishing_;
  std::optional<Result<int64_t>> written_;
  std::optional<Result<Published>> published_;
  std::atomic<bool> given_up_ = false;
  Clock::time_point begun_;
  Clock::duration stall_{};
};

}  // namespace dsj::checkpoint
