// Who is ordered before whom, and what that leaves unordered: vector clocks over a device's streams,
// and the accesses of each block of memory. Pure; device-free; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dsj::simulated {

inline constexpr int kStreams = 8, kComputeStream = 0;

/// How many operations of each stream are known to be done before.
struct Clock {
  std::array<uint64_t, kStreams> done{};
  void join(const Clock& other) {
    for (size_t i = 0; i < done.size(); ++i) done[i] = std::max(done[i], other.done[i]);
  }
};

/// Who did something: told only when it is needed.
using Place = std::shared_ptr<const std::function<std::string()>>;

struct Access {
  const char *begin, *end;
  bool writes;
  int stream;
  uint64_t number;  ///< of its stream
  Place place;
  bool before(const Clock& clock) const { return number <= clock.done[size_t(stream)]; }
};

struct Block {
  const char *begin, *end;
  int stream;  ///< that may use it again at once
  bool host = false;
  bool live = true;
  Place freed{};
  std::vector<Access> accesses{};
};

/// The blocks of a device and what happened to them.
class Order {
 public:
  using Tell =
      std::function<void(const std::string& what, const Place& first, const Place& second)>;
  explicit Order(Tell tell) : tell_(std::move(tell)) {}

  Block& add(const char* begin, size_t bytes, int stream, bool host) {
    Block& block = blocks_[begin];
    block = {begin, begin + bytes, stream, host};
    return block;
  }
  void forget(const char* begin) { blocks_.erase(begin); }
  /// Null: not memory that is watched.
  Block* find(const void* at) {
    auto after = blocks_.upper_bound(static_cast<const char*>(at));
    if (after == blocks_.begin()) return nullptr;
    Block& block = std::prev(after)->second;
    return static_cast<const char*>(at) < block.end ? &block : nullptr;
  }

  /// An operation that knows `clock`, itself included, touches memory.
  void touch(Block& block, Access access, const Clock& clock) {
    if (!block.live) tell_("freed, then used", block.freed, access.place);
    std::erase_if(block.accesses, [&](const Access& earlier) {
      const bool apart = earlier.end <= access.begin || access.end <= earlier.begin;
      if (apart) return false;
      if ((earlier.writes || access.writes) && !earlier.before(clock))
        tell_(conflict(earlier, access), earlier.place, access.place);
      const bool covered = access.begin <= earlier.begin && earlier.end <= access.end;
      const bool replaces = access.writes || (!earlier.writes && earlier.stream == access.stream);
      return covered && replaces && earlier.before(clock);
    });
    block.accesses.push_back(std::move(access));
  }

  /// The host frees a block. Its stream may use it again at once.
  void free(Block& block, const Clock& stream, const Clock& host, const Place& place) {
    Clock known = stream;
    known.join(host);
    for (const Access& access : block.accesses)
      if (!access.before(known)) tell_("freed while an operation is pending", access.place, place);
    std::erase_if(block.accesses, [&](const Access& access) { return access.before(host); });
    block.live = false;
    block.freed = place;
  }

  /// What the host must not do with the block yet: nothing at all, or not write. Null: it may.
  const Access* pending(const Block& block, const Clock& host) const {
    const Access* found = nullptr;
    for (const Access& access : block.accesses)
      if (!access.before(host) && (!found || access.writes)) found = &access;
    return found;
  }

 private:
  static const char* conflict(const Access& earlier, const Access& later) {
    if (!earlier.writes) return "written while a read of it is pending, no event orders them";
    return later.writes ? "written twice, no event orders them"
                        : "read, and no event orders it after its write";
  }
  const Tell tell_;
  std::map<const char*, Block> blocks_;
};

}  // namespace dsj::simulated
