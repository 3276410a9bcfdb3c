// The port through which ranks exchange tensors: all_gather, reduce_scatter, all_reduce, broadcast,
// barrier.
//
// Called by: engine/zero and engine/train. Behind it: one backend per file (single, gloo, ring,
// shm, nccl), chosen once by make_collectives() and the same on every rank.
//
// Rules
// - Collective: every rank issues the same operations, with the same sizes and dtypes, in the same
//   order. Issue from one thread at a time. Backends that can see a mismatch report it.
// - Asynchronous: an issuing call returns at once; the operation runs on the backend's own thread
//   (or CUDA stream) after all operations issued before it. Tensors are kept alive until it is
//   done. Do not write to its tensors, nor read its outputs, before wait() has returned.
// - Tensors are contiguous, on the device of Options::device, of dtype float32, bfloat16, float16,
//   float64 or int64. Anything else, and sizes that do not fit the world, is a defect of the
//   caller and stops the process (DSJ_CHECK). Tensors may be empty.
// - Sums of 16-bit types are accumulated in float32 and rounded per hop (ring, nccl, gloo) or once
//   (shm). The order of summation is fixed: same world, backend and chunking give the same bits.
//   All ranks get the same bits from all_reduce.
// - Autograd is not involved: pass detached tensors.
// - World 1: no bytes move; outputs are copies of inputs.
// - Every operation has a timeout, counted from when the backend starts it. The first failure
//   poisons the group: every operation not yet done, and every later one, fails with it. Recovery
//   is a restart of the attempt.
//
// Leaves out: subgroups, uneven slices, sparse and complex tensors, averaging (scale yourself).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace dsj::comm {

/// What the bytes are, for the counters.
enum class Traffic { Gradients, Parameters, Moments, Control };
inline constexpr int kTrafficCount = 4;
/// How elements of different ranks become one.
enum class Op { Sum, Max };
enum class Kind { AllGather, ReduceScatter, AllReduce, Broadcast, Barrier };
inline constexpr int kKindCount = 5;

/// "gradients", "parameters", ...
const char* name_of(Traffic traffic);
/// "all_gather", "reduce_scatter", ...
const char* name_of(Kind kind);

/// What an operation is for: the counters' class and the unit's name ("layer 3") for error
/// messages; the name is copied.
struct Label {
  Traffic traffic = Traffic::Control;
  std::string_view unit = {};
};

/// One chunk of an all_gather or reduce_scatter; see there for the sizes.
struct ChunkPair {
  at::Tensor out;
  at::Tensor in;
};

/// Why an operation failed; what() is "rank 1: all_gather #412 (layer 3) timed out after 30.0 s".
class CollectiveError : public std::runtime_error {
 public:
  struct Facts {
    int rank = 0;
    Kind kind = Kind::Barrier;
    std::uint64_t sequence = 0;  ///< 1 for a group's first operation; equal on all ranks
    std::string unit;            ///< may be empty
    double seconds = 0;          ///< from start to failure
    std::string reason;          ///< "timed out after 30.0 s", "rank 0 closed the connection"
  };
  explicit CollectiveError(Facts facts);
  const Facts& facts() const { return facts_; }

 private:
  Facts facts_;
};

/// One operation under way. Dropping it without wait() is allowed: the operation still runs.
class Work {
 public:
  virtual ~Work() = default;
  /// Returns when the outputs may be used. CPU: blocks until done. CUDA: makes the current stream
  /// wait and returns (the host does not block). Throws CollectiveError. May be called again, and
  /// from any thread.
  virtual void wait() = 0;
  /// True when done or failed; never blocks, never throws.
  virtual bool done() = 0;
};
using WorkPtr = std::shared_ptr<Work>;

/// What this rank sent, by the ring formulas, whatever the backend really did. World W, n total
/// elements: all_gather, reduce_scatter and broadcast n (W-1)/W; all_reduce 2 n (W-1)/W; barrier 0.
struct Counters {
  struct Cell {
    std::int64_t calls = 0;     ///< operations: a batch of chunks is one
    std::int64_t chunks = 0;    ///< chunks of these operations
    std::int64_t elements = 0;  ///< by the formulas above
    std::int64_t bytes = 0;
  };
  std::array<Cell, kTrafficCount> by_traffic{};
  std::array<Cell, kKindCount> by_kind{};
  std::int64_t in_flight_max = 0;  ///< operations issued and not done, at most

  const Cell& of(Traffic traffic) const { return by_traffic[static_cast<int>(traffic)]; }
  const Cell& of(Kind kind) const { return by_kind[static_cast<int>(kind)]; }
  std::int64_t bytes() const;  ///< over all classes
};

struct Request;  // transport.h

class Collectives {
 public:
  /// Abandons what is under way (see abort) and frees connections and threads.
  virtual ~Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  /// "single", "gloo", "ring", "shm" or "nccl": the same on every rank.
  virtual std::string_view backend() const = 0;

  /// out [world * n] = every rank's in [n], in rank order. `in` may be out's own slice
  /// (out.narrow(0, rank * n, n)): in place, no copy. Any other overlap is not allowed.
  WorkPtr all_gather(at::Tensor out, at::Tensor in, Label label);
  /// The same for several chunks as one operation: one sequence number, one Work.
  WorkPtr all_gather(std::span<const ChunkPair> chunks, Label label);

  /// out [n] = sum or max over ranks of in [world * n], slice number rank().
  /// CLOBBERS `in`: its contents are undefined afterwards (backends reduce in place, which saves a
  /// copy of the gradients). `out` may be in's own slice (in.narrow(0, rank * n, n)).
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Op op, Label label);
  /// The same for several chunks as one operation.
  WorkPtr reduce_scatter(std::span<const ChunkPair> chunks, Op op, Label label);

  /// tensor [n] = sum or max over ranks, in place; the same bits on every rank.
  WorkPtr all_reduce(at::Tensor tensor, Op op, Label label);
  /// tensor [n] of every rank = that of `root`.
  WorkPtr broadcast(at::Tensor tensor, int root, Label label);
  /// Done when every rank has issued it. Its wait() blocks the host, also with CUDA.
  WorkPtr barrier(Label label);

  /// Local: waits until everything issued is done or failed, then closes. Throws the group's
  /// CollectiveError if there is one. No operation may be issued afterwards. Idempotent.
  virtual void shutdown() = 0;
  /// Fails everything under way and everything later with `reason`, at once; peers see this rank's
  /// connections close. Any thread. For the way out after an error or a signal.
  virtual void abort(const std::string& reason) = 0;

  /// Since the start or the last reset. Any thread.
  Counters counters() const;
  void reset_counters();

 protected:
  Collectives(int rank, int world, at::Device device);
  /// Queues the operation. Must call operation_done() once for each, done or failed.
  virtual WorkPtr issue(Request request) = 0;
  void operation_done();

 private:
  WorkPtr submit(Request request, Traffic traffic);
  void count(const Request& request, Traffic traffic);

  const int rank_;
  const int world_;
  const at::Device device_;
  mutable std::mutex mutex_;
  std::uint64_t sequence_ = 0;
  std::int64_t in_flight_ = 0;
  Counters counters_;
};

/// How a rank joins its group. Rank, world, address and port are torchrun's environment.
struct Options {
  int rank = 0;
  int world = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  /// Rank 0 only: a listening socket on master_port to serve the store on (inherited from the
  /// agent; owned from here on). -1: rank 0 binds the port itself.
  int store_listen_fd = -1;
  /// Of joining, and of every operation.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// "auto": CUDA: nccl. CPU: shm when every rank can map rank 0's memory, else ring; decided from
  /// facts that all ranks exchange, so it is the same everywhere. Or: gloo, ring, shm, nccl.
  std::string backend = "auto";
  at::Device device = at::kCPU;
};

/// Joins the group. Collective: returns when all ranks have joined.
/// Failures: BadInput (options), Environment (the backend is not in this build or not possible
/// here; the port cannot be bound), Transient ("ranks 2, 3 did not join within 30.0 s").
/// From here on the process ignores SIGPIPE, unless it handles it: with gloo and c10d's store a
/// peer's death would otherwise kill this rank without a word.
Result<std::unique_ptr<Collectives>> make_collectives(Options options);

}  // namespace dsj::comm
