#include "engine/zero/storage/tile_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/memory/counting_allocator.h"
#include "engine/zero/storage/storage_error.h"
#include "tests/engine/support/late_file.h"

namespace dsj::zero {
namespace {

using testing_support::LateDisk;
using testing_support::LateFile;
using Events = std::vector<std::string>;

constexpr int64_t kBlock = aio::kAlign;

/// `count` tiles of one and two blocks in turn, one after the other. Tile 0 is at 0, 1 at 4096, 2 at
/// 12288, 3 at 16384.
std::vector<TileSpec> tiles_of(int count) {
  std::vector<TileSpec> tiles;
  int64_t end = 0;
  for (int i = 0; i < count; ++i) {
    tiles.push_back({end, kBlock * (1 + i % 2)});
    end += tiles.back().bytes;
  }
  return tiles;
}

std::byte byte_of(int stamp, size_t at) {
  return static_cast<std::byte>(stamp * 31 + at / 64 * 7);
}
void fill(std::span<std::byte> bytes, int stamp) {
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_of(stamp, i);
}
bool holds(std::span<const std::byte> bytes, int stamp) {
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != byte_of(stamp, i)) return false;
  return true;
}

/// A cache over a late file, in which tile i holds stamp i.
struct CachedTiles {
  std::vector<TileSpec> tiles;
  LateDisk disk;
  std::unique_ptr<TileCache> cache;

  CachedTiles(int count, TileCacheOptions options)
      : tiles(tiles_of(count)), disk(tiles.back().offset + tiles.back().bytes) {
    options.slot_bytes = 2 * kBlock;
    options.key = "the.key";
    for (int i = 0; i < count; ++i) fill(on_disk(i), i);
    cache = std::make_unique<TileCache>(std::make_unique<LateFile>(disk), tiles, options);
  }
  std::span<std::byte> on_disk(int tile) {
    return std::span(disk.bytes)
        .subspan(static_cast<size_t>(tiles[tile].offset), static_cast<size_t>(tiles[tile].bytes));
  }
  void rewrite(int tile, int stamp) {
    fill(cache->acquire(tile, false), stamp);
    cache->release(tile, true);
  }
};

TEST(TileCacheTest, ATileIsReadBeforeItIsHandedOut) {
  CachedTiles f(3, {.slots = 1});
  for (const int tile : {2, 0, 1}) {
    const auto bytes = f.cache->acquire(tile, true);
    EXPECT_EQ(bytes.size(), f.tiles[tile].bytes);
    EXPECT_TRUE(holds(bytes, tile));
    f.cache->release(tile, false);
  }
  EXPECT_EQ(f.disk.events_of('w'), Events());
}

TEST(TileCacheTest, WhatIsNotAskedForIsNotRead) {
  CachedTiles f(2, {.slots = 1});
  f.rewrite(0, 50);
  f.rewrite(1, 51);
  EXPECT_EQ(f.disk.events_of('r'), Events());
  f.cache.reset();
  EXPECT_TRUE(holds(f.on_disk(0), 50));
  EXPECT_TRUE(holds(f.on_disk(1), 51));
}

TEST(TileCacheTest, ASlotIsReusedOnlyWhenItsWriteIsDone) {
  CachedTiles f(4, {.slots = 2});
  for (int tile = 0; tile < 4; ++tile) f.rewrite(tile, 50 + tile);
  for (int tile = 0; tile < 4; ++tile) {
    EXPECT_TRUE(holds(f.cache->acquire(tile, true), 50 + tile)) << tile;
    f.cache->release(tile, false);
  }
}

TEST(TileCacheTest, ATileThatIsBeingWrittenIsStillInMemory) {
  CachedTiles f(2, {.slots = 2});
  f.rewrite(0, 50);
  EXPECT_TRUE(holds(f.cache->acquire(0, true), 50));
  EXPECT_EQ(f.disk.events, Events({"w 0", "d 0"})) << "no read";
  f.cache->release(0, false);
}

TEST(TileCacheTest, ReleaseWaitsForTheWriteWithoutWriteBehind) {
  for (const bool behind : {false, true}) {
    CachedTiles f(2, {.slots = 2, .write_behind = behind});
    f.rewrite(0, 50);
    EXPECT_EQ(f.disk.in_flight, behind ? 1 : 0);
    EXPECT_EQ(holds(f.on_disk(0), 50), !behind);
  }
}

TEST(TileCacheTest, APrefetchedTileIsReadOnce) {
  CachedTiles f(3, {.slots = 2});
  EXPECT_TRUE(f.cache->prefetch(1));
  EXPECT_TRUE(f.cache->prefetch(1)) << "on its way";
  EXPECT_EQ(f.disk.in_flight, 1);
  EXPECT_TRUE(holds(f.cache->acquire(1, true), 1));
  EXPECT_TRUE(f.cache->prefetch(1)) << "held";
  EXPECT_EQ(f.disk.events, Events({"r 4096", "d 4096"}));
  f.cache->release(1, false);
}

TEST(TileCacheTest, ThereIsNoTileBeyondTheLast) {
  CachedTiles f(3, {.slots = 2});
  EXPECT_FALSE(f.cache->prefetch(3));
  EXPECT_TRUE(f.cache->prefetch(2));
}

TEST(TileCacheTest, WithoutReadAheadPrefetchDoesNothing) {
  CachedTiles f(3, {.slots = 2, .read_ahead = false});
  EXPECT_FALSE(f.cache->prefetch(1));
  f.cache->set_order({0, 1});
  f.cache->rewind();
  f.cache->read_ahead();
  EXPECT_EQ(f.disk.events, Events());
}

TEST(TileCacheTest, APrefetchTakesNoHeldTileAndNoSingleWrite) {
  CachedTiles f(4, {.slots = 2});
  const auto held = f.cache->acquire(3, true);
  f.rewrite(0, 50);
  EXPECT_FALSE(f.cache->prefetch(1)) << "one slot is held, the other is being written";
  EXPECT_EQ(f.disk.in_flight, 1) << "and nobody waited for the write";
  EXPECT_TRUE(holds(held, 3));
  f.cache->release(3, false);
}

TEST(TileCacheTest, OfTwoWritesAPrefetchWaitsForTheOlder) {
  CachedTiles f(4, {.slots = 2});
  f.rewrite(1, 51);
  f.rewrite(0, 50);
  EXPECT_TRUE(f.cache->prefetch(2));
  EXPECT_EQ(f.disk.events, Events({"w 4096", "w 0", "d 4096", "r 12288"}));
}

TEST(TileCacheTest, AnAcquireTakesWritesBeforeTilesReadAhead) {
  CachedTiles f(4, {.slots = 3});
  f.cache->prefetch(1);
  f.rewrite(3, 53);
  f.cache->acquire(0, true);
  f.cache->acquire(2, true);
  EXPECT_EQ(f.disk.events_of('d'), Events({"d 0", "d 16384", "d 12288"}))
      << "the write is waited for, the tile read ahead stays";
  f.cache->release(0, false);
  f.cache->release(2, false);
}

TEST(TileCacheTest, ReadAheadFollowsTheOrderAndBeginsAgainWithEachStep) {
  CachedTiles f(4, {.slots = 2});
  f.cache->set_order({2, 0, 3});
  f.cache->read_ahead();
  EXPECT_EQ(f.disk.events, Events()) << "no step has begun";
  for (int step = 0; step < 2; ++step) {
    f.disk.events.clear();
    f.cache->rewind();
    f.cache->read_ahead();
    EXPECT_EQ(f.disk.events_of('r'), Events({"r 12288", "r 0"})) << "as many as there are slots";
    for (const int tile : {2, 0, 3}) {
      EXPECT_TRUE(holds(f.cache->acquire(tile, true), tile));
      f.cache->release(tile, false);
      f.cache->read_ahead();
    }
    EXPECT_EQ(f.disk.events_of('r'), Events({"r 12288", "r 0", "r 16384"})) << "each once";
  }
}

TEST(TileCacheTest, AnErrorNamesTheKeyAndThePath) {
  CachedTiles f(3, {.slots = 1});
  f.disk.broken.insert(0);
  try {
    f.cache->acquire(0, true);
    ADD_FAILURE() << "it must throw";
  } catch (const StorageError& error) {
    EXPECT_EQ(error.error().kind, ErrorKind::Environment);
    EXPECT_EQ(error.error().to_string(), "the.key: /nvme/late: the device is gone");
  }
  f.rewrite(0, 50);
  EXPECT_THROW(f.cache->acquire(2, true), StorageError) << "the write that failed is not lost";
  EXPECT_TRUE(holds(f.cache->acquire(1, true), 1)) << "its slot is free again";
  f.cache->release(1, false);
}

TEST(TileCacheTest, ItsSlotsAreAllTheMemoryItTakes) {
  memory::install();
  memory::Ledger ledger;
  {
    const memory::MemoryScope scope(memory::Class::Activations, ledger);
    CachedTiles f(6, {.slots = 3});
    for (int tile = 0; tile < 6; ++tile) f.rewrite(tile, tile);
    f.cache->prefetch(0);
  }
  EXPECT_EQ(ledger.peak(memory::Class::Host), 3 * (2 * kBlock + kBlock));
  EXPECT_EQ(ledger.live(), 0);
}

/// What a tile was given last is what it gives back, whatever is read ahead, written behind and
/// evicted in between.
class RandomUse {
 public:
  explicit RandomUse(unsigned seed)
      : random_(seed),
        slots_(1 + below(4)),
        f_(2 + below(6),
           {.slots = slots_, .read_ahead = below(4) > 0, .write_behind = below(4) > 0}),
        tiles_(static_cast<int>(f_.tiles.size())) {
    for (int i = 0; i < tiles_; ++i) stamps_.push_back(i);
  }

  void run(int operations) {
    for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) one();
    while (!held_.empty()) release();
    f_.cache.reset();
    for (int tile = 0; tile < tiles_; ++tile)
      EXPECT_TRUE(holds(f_.on_disk(tile), stamps_[tile])) << "tile " << tile << " in the file";
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

  void one() {
    switch (below(6)) {
      case 0:
      case 1:
        return acquire();
      case 2:
      case 3:
        return release();
      case 4:
        (void)f_.cache->prefetch(below(tiles_));
        return;
      default:
        if (below(3) == 0) {
          std::vector<int> order;
          for (int i = 0; i < tiles_; ++i) order.push_back(below(tiles_));
          f_.cache->set_order(order);
          f_.cache->rewind();
        }
        f_.cache->read_ahead();
    }
  }
  void acquire() {
    const int tile = below(tiles_);
    if (held_.contains(tile) || static_cast<int>(held_.size()) == slots_) return;
    const bool read = below(3) > 0;
    const auto bytes = f_.cache->acquire(tile, read);
    if (read) {
      EXPECT_TRUE(holds(bytes, stamps_[tile])) << "tile " << tile;
    }
    const bool changed = !read || below(2) > 0;
    if (changed) fill(bytes, stamps_[tile] = ++last_stamp_);
    held_[tile] = {bytes, changed};
  }
  void release() {
    if (held_.empty()) return;
    const auto at = std::next(held_.begin(), below(static_cast<int>(held_.size())));
    EXPECT_TRUE(holds(at->second.bytes, stamps_[at->first])) << "held tile " << at->first;
    f_.cache->release(at->first, at->second.changed);
    held_.erase(at);
  }

  struct Held {
    std::span<std::byte> bytes;
    bool changed;
  };
  std::mt19937 random_;
  const int slots_;
  CachedTiles f_;
  const int tiles_;
  std::vector<int> stamps_;  ///< [tile]
  std::map<int, Held> held_;
  int last_stamp_ = 100;
};

TEST(TileCacheTest, RandomUseLosesNothing) {
  for (unsigned seed = 0; seed < 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomUse(seed).run(120);
  }
}

}  // namespace
}  // namespace dsj::zero
