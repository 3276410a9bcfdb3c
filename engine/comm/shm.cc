// Collectives through shared memory, for ranks on one host.
//
// Work is done in rounds. In a round each rank fills its own slot and reads its peers' slots. It
// may refill a slot once all peers have read its content of kSlots rounds ago. Each number is
// copied into a slot once and used from there. Sums are formed directly from the slots of all
// ranks, in rank order and rounded once, so they do not depend on how the data was cut into chunks.
#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "engine/comm/backends.h"
#include "engine/comm/frame.h"
#include "engine/comm/reduce.h"
#include "engine/comm/shm_segment.h"
#include "engine/comm/slices.h"
#include "job/flight_log.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dsj::comm {
namespace {

constexpr std::size_t kDirectReduce = 64 << 10;  // bytes; up to it, one round: each rank adds all
constexpr int kSpins = 64;                       // few, because compute shares the cores
constexpr std::chrono::milliseconds kNap{50};    // how often a sleeper checks its peers

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

class Shm final : public SliceTransport {
 public:
  Shm(std::unique_ptr<ShmSegment> segment, const Rendezvous& rendezvous)
      : SliceTransport(rendezvous.options().world),
        segment_(std::move(segment)),
        rank_(rendezvous.options().rank),
        world_(rendezvous.options().world),
        flight_(rendezvous.flight()) {
    for (int rank = 0; rank < world_; ++rank) names_.push_back(rendezvous.name(rank));
  }

  std::string_view name() const override { return "shm"; }

  void begin(const Request& request, Clock::time_point deadline) override {
    frame_ = frame_of(request);
    deadline_ = deadline;
    segment_->block(rank_).sequence = request.sequence;
  }

  void gather(const Slices& slices, std::span<const char> in) override {
    const std::size_t longest = slices.front().size();
    rounds((longest + Slot::kBytes - 1) / Slot::kBytes,
           [&](std::size_t i, char* slot) {
             const std::span<const char> part = part_of(in, i, Slot::kBytes);
             std::memcpy(slot, part.data(), part.size());
             char* own = part_of(slices[static_cast<std::size_t>(rank_)], i, Slot::kBytes).data();
             if (own != part.data()) std::memcpy(own, part.data(), part.size());
           },
           [&](std::size_t i, std::uint32_t round) {
             for_peers([&](int peer) {
               const std::span<char> part =
                   part_of(slices[static_cast<std::size_t>(peer)], i, Slot::kBytes);
               std::memcpy(part.data(), filled_slot(peer, round), part.size());
             });
           });
  }

  /// A slot holds one part per peer, in rank order, without the writer's part.
  void reduce(const Slices& slices, char* out, at::ScalarType dtype, Op op) override {
    const std::size_t longest = slices.front().size();
    const std::size_t share = share_of_peer();
    const std::span<char> own = slices[static_cast<std::size_t>(rank_)];
    std::vector<const void*> sources(static_cast<std::size_t>(world_));
    rounds(
        (longest + share - 1) / share,
        [&](std::size_t i, char* slot) {
          for_peers([&](int peer) {
            const std::span<char> part = part_of(slices[static_cast<std::size_t>(peer)], i, share);
            std::memcpy(slot + place_of(peer, rank_) * share, part.data(), part.size());
          });
        },
        [&](std::size_t i, std::uint32_t round) {
          const std::span<char> part = part_of(own, i, share);
          sources[static_cast<std::size_t>(rank_)] = part.data();
          for_peers([&](int peer) {
            sources[static_cast<std::size_t>(peer)] =
                filled_slot(peer, round) + place_of(rank_, peer) * share;
          });
          comm::reduce(out + (part.data() - own.data()), sources,
                       static_cast<std::int64_t>(part.size() / c10::elementSize(dtype)), dtype, op);
        });
  }

  /// Slots as in reduce().
  void all_to_all(const Slices& out, const Slices& in) override {
    const std::size_t share = share_of_peer();
    const auto own = static_cast<std::size_t>(rank_);
    std::ranges::copy(in[own], out[own].begin());
    rounds((in.front().size() + share - 1) / share,
           [&](std::size_t i, char* slot) {
             for_peers([&](int peer) {
               const std::span<char> part = part_of(in[static_cast<std::size_t>(peer)], i, share);
               std::memcpy(slot + place_of(peer, rank_) * share, part.data(), part.size());
             });
           },
           [&](std::size_t i, std::uint32_t round) {
             for_peers([&](int peer) {
               const std::span<char> part = part_of(out[static_cast<std::size_t>(peer)], i, share);
               std::memcpy(part.data(), filled_slot(peer, round) + place_of(rank_, peer) * share,
                           part.size());
             });
           });
  }

  void all_reduce(std::span<char> data, at::ScalarType dtype, Op op) override {
    if (data.size() <= kDirectReduce) return all_reduce_direct(data, dtype, op);
    const Slices slices = cut(data, world_, c10::elementSize(dtype));
    const std::span<char> own = slices[static_cast<std::size_t>(rank_)];
    reduce(slices, own.data(), dtype, op);
    gather(slices, own);
  }

  void broadcast(std::span<char> data, int root) override {
    rounds((data.size() + Slot::kBytes - 1) / Slot::kBytes,
           [&](std::size_t i, char* slot) {
             if (rank_ == root) std::ranges::copy(part_of(data, i, Slot::kBytes), slot);
           },
           [&](std::size_t i, std::uint32_t round) {
             if (rank_ == root) return;
             const std::span<char> part = part_of(data, i, Slot::kBytes);
             std::memcpy(part.data(), filled_slot(root, round), part.size());
           });
  }

  void meet() override {
    rounds(
        1, [](std::size_t, char*) {},
        [&](std::size_t, std::uint32_t round) {
          for_peers([&](int peer) { filled_slot(peer, round); });
        });
  }

  void interrupt() override { interrupted_ = true; }

  void leave(const std::string& reason) override {
    RankBlock& block = segment_->block(rank_);
    block.reason[reason.copy(block.reason, sizeof block.reason - 1)] = '\0';
    block.left = 1;
    block.produced.wake();
    block.consumed.wake();
  }

 private:
  /// Runs `count` rounds. It fills one slot ahead of reading, so that peers rarely wait.
  template <typename Fill, typename Read>
  void rounds(std::size_t count, const Fill& fill, const Read& read) {
    for (std::size_t i = 0; i <= count; ++i) {
      if (i < count) {
        const std::uint32_t round = round_ + static_cast<std::uint32_t>(i);
        wait_for_readers(round);
        Slot& slot = segment_->slot(rank_, round);
        slot.frame = frame_;
        fill(i, slot.data);
        segment_->block(rank_).produced.publish(round + 1);
      }
      if (i > 0) {
        const std::uint32_t round = round_ + static_cast<std::uint32_t>(i - 1);
        read(i - 1, round);
        segment_->block(rank_).consumed.publish(round + 1);
      }
    }
    round_ += static_cast<std::uint32_t>(count);
  }

  void all_reduce_direct(std::span<char> data, at::ScalarType dtype, Op op) {
    rounds(
        1, [&](std::size_t, char* slot) { std::ranges::copy(data, slot); },
        [&](std::size_t, std::uint32_t round) {
          std::vector<const void*> sources(static_cast<std::size_t>(world_), data.data());
          for_peers([&](int peer) {
            sources[static_cast<std::size_t>(peer)] = filled_slot(peer, round);
          });
          comm::reduce(data.data(), sources,
                       static_cast<std::int64_t>(data.size() / c10::elementSize(dtype)), dtype, op);
        });
  }

  int name_of_peer(int peer) const { return names_[static_cast<std::size_t>(peer)]; }

  /// Part number i of size `bytes`; parts at the end may be short or empty.
  template <typename Char>
  static std::span<Char> part_of(std::span<Char> data, std::size_t i, std::size_t bytes) {
    const std::size_t begin = std::min(i * bytes, data.size());
    return data.subspan(begin, std::min(bytes, data.size() - begin));
  }

  /// Bytes of a slot for each peer.
  std::size_t share_of_peer() const {
    const std::size_t share = Slot::kBytes / static_cast<std::size_t>(world_ - 1) / 64 * 64;
    DSJ_CHECK(share > 0, "a world of %d ranks is too large for shm", world_);
    return share;
  }

  /// The index of `reader`'s part in `writer`'s slot.
  static std::size_t place_of(int reader, int writer) {
    return static_cast<std::size_t>(reader < writer ? reader : reader - 1);
  }

  /// Calls `action` for each peer, from the next rank on, so that not all read one slot at once.
  template <typename Do>
  void for_peers(const Do& act) {
    for (int step = 1; step < world_; ++step) act((rank_ + step) % world_);
  }

  /// The peer's data of this round. Waits for it; checks that the operation is the same.
  const char* filled_slot(int peer, std::uint32_t round) {
    wait_until(segment_->block(peer).produced, round + 1, peer);
    const Slot& slot = segment_->slot(peer, round);
    check_frame(frame_, slot.frame, name_of_peer(peer));
    return slot.data;
  }

  void wait_for_readers(std::uint32_t round) {
    for_peers([&](int peer) {
      wait_until(segment_->block(peer).consumed, round + 1 - ShmSegment::kSlots, peer);
    });
  }

  void wait_until(Counter& counter, std::uint32_t target, int peer) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (counter.reached(target)) return;
      pause_briefly();
    }
    const FlightWait noted(flight_.get(), name_of_peer(peer));
    while (true) {
      const std::uint32_t seen = counter.value.load();
      if (counter.reached(target)) return;
      give_up_if_hopeless(counter, target, peer);
      counter.sleep(seen, kNap);
    }
  }

  void give_up_if_hopeless(const Counter& counter, std::uint32_t target, int peer) {
    if (interrupted_) throw TransportError("interrupted");
    const std::string who = "rank " + std::to_string(name_of_peer(peer));
    const RankBlock& block = segment_->block(peer);
    const bool left = block.left != 0;
    const bool died = !left && !segment_->alive(peer);
    if ((left || died) && !counter.reached(target)) {  // it may have filled its last slot in time
      if (died) throw TransportError(who + " died");
      const std::string reason = block.reason;
      throw TransportError(who + " left the group" + (reason.empty() ? "" : ": " + reason));
    }
    if (Clock::now() < deadline_) return;
    const std::uint64_t sequence = block.sequence;
    throw TransportTimeout("waiting for " + who + ", which " +
                           (sequence == frame_.sequence ? "is in it too"
                            : sequence == 0             ? "has not started any operation"
                                                        : "came to #" + std::to_string(sequence)));
  }

  const std::unique_ptr<ShmSegment> segment_;
  const int rank_;
  const int world_;
  const std::shared_ptr<FlightLog> flight_;
  std::vector<int> names_;   // the ranks' numbers in messages
  std::uint32_t round_ = 0;  // the same on all ranks between operations
  Frame frame_;
  Clock::time_point deadline_;
  std::atomic<bool> interrupted_ = false;
};

}  // namespace

Result<std::unique_ptr<SliceTransport>> make_shm(Rendezvous& rendezvous) {
  DSJ_TRY(std::unique_ptr<ShmSegment> segment, ShmSegment::open(rendezvous));
  return std::make_unique<Shm>(std::move(segment), rendezvous);
}

}  // namespace dsj::comm
