// Saves in the background. begin() takes this rank's pieces between two steps; a thread copies them
// and writes the copy during the next steps, and one of rank 0 publishes (writer.h) once every part
// is durable.
//
// Forward and backward only read the state, so a piece that stays is copied during these, and
// settle() is called before the next update. Both the caller and the thread then copy what remains.
// begin() copies pieces that do not stay.
//
// The threads issue no collectives, which would interleave with the steps' own. Instead each rank
// reports its progress between two steps (votes()), a reduction that the step has anyway sums the
// votes, and advance() draws the same conclusion on every rank. So all ranks begin, publish and
// fail at the same step, without waiting.
//
// One save at a time: Idle, Writing (begin to the last part), Publishing (rank 0 publishes), Idle.
// The process may die at any point, as with writer.h. Called by engine/train.
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

/// This rank's progress of the save in flight; summed, that of all ranks.
struct SaveVotes {
  double written = 0;    ///< its part is durable
  double failed = 0;     ///< it failed to write or to publish
  double published = 0;  ///< rank 0: the checkpoint is published
};

/// A published checkpoint.
struct BackgroundSaved {
  int64_t step = 0;
  double seconds = 0;                  ///< from begin() until rank 0 knew of the publication
  double stall = 0;                    ///< seconds of these in begin(), settle(), finish()
  std::optional<Published> published;  ///< rank 0 only
};

/// One thread at a time.
class BackgroundSave {
 public:
  using Produce = std::function<Status(const EmitPiece&)>;
  /// Copies `from` to `to`, which has the same length.
  using Copy = std::function<void(std::span<float> to, std::span<const float> from)>;
  struct Copies {
    Copy waiting;  ///< on the caller's thread while the steps wait; may use all threads
    Copy beside;   ///< on a background thread during a step, which uses the others
  };
  using Saved = Result<std::optional<BackgroundSaved>>;

  /// `buffer` is for the copy, with at least as many elements as this rank's pieces. A thread
  /// touches its pages. `files`, the buffer's memory and pieces that stay must outlive this object.
  BackgroundSave(Files& files, std::span<float> buffer, Copies copies = plain_copies());
  static Copies plain_copies();
  /// Abandons what is not written yet. Waits for a publication that has begun.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;

  bool idle() const { return phase_ == Phase::Idle; }
  /// Takes the pieces of `produce` (write_rank_from) and starts to write them. A failure becomes
  /// this rank's vote. `publication`: on rank 0. Precondition: idle(), and no save has failed.
  void begin(const WriteOptions& options, Publication publication, const Produce& produce);
  /// Returns when every piece is copied. Call it in each step before the update.
  void settle();
  /// Marks the checkpoint in flight as known to be good (confirmed.h) for its publication. Returns
  /// false, and does nothing, once the publication has begun.
  bool confirm();
  /// Never blocks.
  SaveVotes votes();
  /// Takes the sum of all ranks' votes. nullopt: nothing new is published. Error: this rank's own,
  /// or Transient, "another rank failed". The save is then over, and so is the run.
  Saved advance(const SaveVotes& all);
  /// Waits until the save in flight is published; nullopt if there was none. `add` returns the sum
  /// over ranks and is collective. Errors: as advance().
  Saved finish(const std::function<SaveVotes(const SaveVotes&)>& add);
  /// Waits until this rank's own work in this phase is done.
  void wait();

 private:
  enum class Phase { Idle, Writing, Publishing };
  using Clock = std::chrono::steady_clock;
  struct Chunk {
    std::span<float> to;
    std::span<const float> from;
  };
  Status take_pieces(const Produce& produce);
  /// Copies chunks until none is left.
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
  std::vector<Chunk> chunks_;  ///< of pieces that stay
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
