// The port for exchanging tensors between ranks: all_gather, reduce_scatter, all_reduce,
// all_to_all, broadcast, barrier. engine/zero and engine/train call it. Each backend is one file
// (single, gloo, ring, shm, nccl); make_collectives() chooses one, the same on every rank.
//
// Rules
// - Collective: every rank issues the same operations, with the same sizes and dtypes, in the same
//   order. Issue from one thread at a time. Backends that can see a mismatch report it.
// - Asynchronous: an issuing call returns at once. The operation runs on the backend's own thread
//   (or lanes of a device, streamed.h), after all earlier operations. It keeps its tensors alive
//   until it is done or, on a device, waited for. Before wait() returns, do not write to its
//   tensors and do not read its outputs.
// - Tensors are contiguous, on Options::device, of dtype float32, bfloat16, float16, float64 or
//   int64. They may be empty. Other tensors, and sizes that do not fit the world size, are a bug
//   of the caller and abort the process (DSJ_CHECK).
// - Sums of 16-bit types are accumulated in float32. They are rounded per hop (ring, nccl, gloo) or
//   once (shm). The order of summation is fixed: the same world size, backend and chunks give the
//   same bits. all_reduce gives all ranks the same bits.
// - Autograd is not involved: pass detached tensors.
// - World size 1: no bytes move; outputs are copies of inputs.
// - Each operation has a timeout, counted from its start in the backend. After the first failure of
//   a group, every unfinished and every later operation of it fails with the same error.
//   Recovery is a new attempt.
//
// Groups: split() makes groups of some of a group's ranks. Each has its own order, sequence
// numbers, timeout and first failure; operations of two groups run in parallel. To avoid deadlocks,
// ranks that share several groups must issue operations on these in the same order.
//
// Not supported: uneven slices, sparse and complex tensors, averaging (the caller scales).
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace dsj {
class FlightLog;
}

namespace dsj::comm {

/// The class of traffic, for the counters.
enum class Traffic { Gradients, Parameters, Moments, Heads, Control };
inline constexpr int kTrafficCount = 5;
/// The reduction over ranks.
enum class Op { Sum, Max };
enum class Kind { AllGather, ReduceScatter, AllReduce, Broadcast, Barrier, AllToAll };
inline constexpr int kKindCount = 6;

/// "gradients", "parameters", ...
const char* name_of(Traffic traffic);
/// "all_gather", "reduce_scatter", ...
const char* name_of(Kind kind);

/// What an operation is for: its traffic class, and the unit's name ("layer 3") in error messages.
/// The name is copied.
struct Label {
  Traffic traffic = Traffic::Control;
  std::string_view unit = {};
};

/// One chunk of an all_gather or reduce_scatter; these document its sizes.
struct ChunkPair {
  at::Tensor out;
  at::Tensor in;
};

/// Why an operation failed; what() is "rank 1: all_gather #412 (layer 3) timed out after 30.0 s".
class CollectiveError : public std::runtime_error {
 public:
  struct Facts {
    int rank = 0;  ///< in the world
    Kind kind = Kind::Barrier;
    std::uint64_t sequence = 0;  ///< 1 for the group's first operation; the same on all ranks
    std::string unit;            ///< may be empty
    double seconds = 0;          ///< from start to failure
    std::string group;           ///< the split's name; empty for the world
    std::string reason;          ///< "timed out after 30.0 s", "rank 0 closed the connection"
    bool out_of_memory = false;  ///< this rank's device is out of memory; no peer is to blame
  };
  explicit CollectiveError(Facts facts);
  const Facts& facts() const { return facts_; }

 private:
  Facts facts_;
};

/// This rank's device is out of memory, for a group or for an operation. No peer is to blame.
class DeviceMemoryError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An operation in flight. It still runs if it is destroyed without wait().
class Work {
 public:
  virtual ~Work() = default;
  /// Returns when the outputs may be used. CPU: blocks until the operation is done. CUDA: only the
  /// current stream waits; after the host has read the outputs, a second call reports whether they
  /// are valid (agree.h: on_host). Throws CollectiveError. Any thread; may be called again.
  virtual void wait() = 0;
  /// Whether the operation is done or failed. Never blocks, never throws.
  virtual bool done() = 0;
};
using WorkPtr = std::shared_ptr<Work>;

/// What this rank sent, by the formulas of a ring for every backend. With world size W and n
/// elements in total: all_gather, reduce_scatter, all_to_all and broadcast n (W-1)/W; all_reduce 2
/// n (W-1)/W; barrier 0. (In an all_to_all the TCP ring forwards other ranks' data, so each of its
/// links carries W/2 times that.)
struct Counters {
  struct Cell {
    std::int64_t calls = 0;     ///< operations; one may have several chunks
    std::int64_t chunks = 0;    ///< chunks of these operations
    std::int64_t elements = 0;  ///< by the formulas above
    std::int64_t bytes = 0;
  };
  std::array<Cell, kTrafficCount> by_traffic{};
  std::array<Cell, kKindCount> by_kind{};
  std::int64_t in_flight_max = 0;  ///< maximum of operations in flight

  const Cell& of(Traffic traffic) const { return by_traffic[static_cast<int>(traffic)]; }
  const Cell& of(Kind kind) const { return by_kind[static_cast<int>(kind)]; }
  std::int64_t bytes() const;  ///< sum over all classes
};

/// One operation, validated and numbered. AllReduce and Broadcast have one chunk with out == in;
/// Barrier has no chunk.
struct Request {
  Kind kind = Kind::Barrier;
  Op op = Op::Sum;
  int root = 0;
  std::vector<ChunkPair> chunks;
  std::uint64_t sequence = 0;
  std::string unit;
};

/// The part of a group that a rank joins (Collectives::split).
struct Part {
  static constexpr int kNone = -1;
  std::string name;    ///< for messages ("host"), the same on all ranks; may be empty
  int colour = kNone;  ///< ranks of one colour form a group; negative: no group
  int key = 0;         ///< the order in the part; ties: by rank in the group
};

class Collectives {
 public:
  /// Aborts operations in flight (see abort) and frees connections and threads.
  virtual ~Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  int rank() const { return rank_; }
  int world() const { return world_; }
  /// The world ranks of this group's ranks, by rank; empty if this is the world.
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  int world_rank() const;
  /// The name of the split that made this group; empty if this is the world.
  const std::string& group() const { return group_; }
  /// "single", "gloo", "ring", "shm", "hierarchical" or "nccl": the same on every rank.
  virtual std::string_view backend() const = 0;

  /// out [world * n] = `in` [n] of every rank, in rank order. `in` may be out's own slice
  /// (out.narrow(0, rank * n, n)), which saves a copy. No other overlap is allowed.
  WorkPtr all_gather(at::Tensor out, at::Tensor in, Label label);
  /// The same for several chunks, as one operation: one sequence number, one Work.
  WorkPtr all_gather(std::span<const ChunkPair> chunks, Label label);

  /// out [n] = sum or max over ranks of `in` [world * n], slice number rank(). OVERWRITES `in`: its
  /// content is undefined afterwards, because backends reduce in place to save a copy of the
  /// gradients. `out` may be in's own slice (in.narrow(0, rank * n, n)).
  WorkPtr reduce_scatter(at::Tensor out, at::Tensor in, Op op, Label label);
  /// The same for several chunks, as one operation.
  WorkPtr reduce_scatter(std::span<const ChunkPair> chunks, Op op, Label label);

  /// tensor [n] = sum or max over ranks, in place. Every rank gets the same bits.
  WorkPtr all_reduce(at::Tensor tensor, Op op, Label label);
  /// out [world * n]: slice s is slice number rank() of rank s's `in` [world * n]. The tensors must
  /// not overlap.
  WorkPtr all_to_all(at::Tensor out, at::Tensor in, Label label);
  /// tensor [n] of every rank = the root's.
  WorkPtr broadcast(at::Tensor tensor, int root, Label label);
  /// Done when every rank has issued it. wait() blocks the host, also with CUDA.
  WorkPtr barrier(Label label);

  /// Makes the group of the ranks with this rank's colour; null if the colour is negative. This
  /// group must have been made with Options::splits. Collective: all ranks, splits in the same
  /// order; returns when the part's ranks have joined. Options are inherited; "auto" chooses the
  /// backend for each part. Parts live, fail, shut down and abort independently. This group may
  /// have operations in flight during the call. Errors: as make_collectives; BadInput if names
  /// differ.
  Result<std::unique_ptr<Collectives>> split(const Part& part);

  /// Bytes that this rank has sent on network connections. Counted by ring and hierarchical; 0 for
  /// other backends. Any thread, until shutdown.
  virtual std::int64_t socket_bytes() const { return 0; }

  /// Waits until every issued operation is done or failed, then closes. Local: not collective.
  /// Throws the group's CollectiveError if there is one. Issue nothing afterwards. Idempotent.
  virtual void shutdown() = 0;
  /// Fails all operations in flight and all later ones with `reason`, at once; peers see this
  /// rank's connections close. Any thread. Call it when exiting after an error or a signal.
  virtual void abort(const std::string& reason) = 0;

  /// Records all further operations in `flight`, which must outlive the group; null stops it.
  void note_in(FlightLog* flight);

  /// For makers of groups: how to split the group, and its name and ranks in the world.
  using Splitter = std::function<Result<std::unique_ptr<Collectives>>(const Part&)>;
  void split_by(Splitter splitter);
  void is_part(std::string name, std::vector<int> world_ranks);

  /// Counts since the start or the last reset. Any thread.
  Counters counters() const;
  void reset_counters();

 protected:
  Collectives(int rank, int world, at::Device device);
  /// Queues the operation. The backend must call operation_done() for each, done or failed.
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
  FlightLog* flight_ = nullptr;
  Splitter splitter_;
  std::string group_;
  std::vector<int> world_ranks_;
};

/// How a rank joins its group. torchrun's environment provides rank, world size, address and port.
struct Options {
  int rank = 0;
  int world = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  /// Rank 0 only: a listening socket on master_port for the store, inherited from the agent; the
  /// callee owns it. If -1, rank 0 binds the port itself.
  int store_listen_fd = -1;
  /// For the join, and for each operation. dsj-train reads it from DSJ_COLLECTIVE_TIMEOUT_SECONDS
  /// (engine/train/run.h).
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// gloo, ring, shm, hierarchical, nccl or auto. "auto" is nccl for CUDA. For CPU it is shm on one
  /// host; hierarchical if all hosts have the same number (two or more) of consecutive ranks; else
  /// ring. It is also ring if ranks of a host cannot share memory. The ranks exchange these facts,
  /// so that all choose the same. A single rank uses no backend, except nccl if it is named.
  std::string backend = "auto";
  at::Device device = at::kCPU;
  /// Whether the group can be split. If so, rank 0 serves the store as long as its group lives.
  bool splits = false;
  /// This rank's host name; empty: the kernel's. Ranks with equal names are on one host.
  std::string host = {};
  /// Where this rank records its operations; must outlive the group. May be null.
  FlightLog* flight = nullptr;
};

/// Joins the group. Collective: returns when all ranks have joined. Errors: BadInput (options),
/// Environment (the backend is missing in this build or impossible here, or the port cannot be
/// bound), Transient ("ranks 2, 3 did not join within 30.0 s"). The process ignores SIGPIPE
/// afterwards unless it handles it: in gloo and in c10d's store a dead peer would otherwise kill
/// this rank silently.
Result<std::unique_ptr<Collectives>> make_collectives(Options options);

}  // namespace dsj::comm
