#include "engine/zero/storage/tile_cache.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/check.h"
#include "engine/device/host_pages.h"
#include "engine/memory/counting_allocator.h"
#include "engine/zero/storage/storage_error.h"

namespace dsj::zero {

TileCache::TileCache(std::unique_ptr<aio::BlockFile> file, std::vector<TileSpec> tiles,
                     const TileCacheOptions& options)
    : options_(options), tiles_(std::move(tiles)), slots_(options.slots), file_(std::move(file)) {
  const memory::MemoryScope scope(memory::Class::Host);
  for (Slot& slot : slots_) {
    memory_.push_back(
        device::host_memory({options_.slot_bytes + aio::kAlign}, at::kByte, options_.pinned_for));
    const auto address = reinterpret_cast<uintptr_t>(memory_.back().data_ptr());
    const auto skipped = (aio::kAlign - address % aio::kAlign) % aio::kAlign;
    slot.bytes = {reinterpret_cast<std::byte*>(address + skipped),
                  static_cast<size_t>(options_.slot_bytes)};
  }
}

TileCache::~TileCache() = default;

TileCache::Slot* TileCache::find(int tile) {
  const auto found = std::ranges::find_if(
      slots_, [&](const Slot& slot) { return slot.state != State::Free && slot.tile == tile; });
  return found == slots_.end() ? nullptr : &*found;
}

void TileCache::wait(Slot& slot) {
  const Status done = file_->wait(slot.ticket);
  slot.state = State::Free;
  if (done) return;
  Error error = done.error();
  error.message = error.where + ": " + error.message;
  error.where = options_.key;
  throw StorageError(error);
}

TileCache::Slot& TileCache::free_slot() {
  for (const State state : {State::Free, State::Writing, State::Reading}) {
    Slot* oldest = nullptr;
    for (Slot& slot : slots_)
      if (slot.state == state && (!oldest || slot.age < oldest->age)) oldest = &slot;
    if (!oldest) continue;
    if (state != State::Free) wait(*oldest);
    return *oldest;
  }
  DSJ_CHECK(false, "all tiles are held");
}

void TileCache::start_read(Slot& slot, int tile) {
  const TileSpec& spec = tiles_[tile];
  slot.state = State::Reading;
  slot.tile = tile;
  slot.age = ++clock_;
  slot.ticket = file_->read(spec.offset, slot.bytes.first(static_cast<size_t>(spec.bytes)));
}

std::span<std::byte> TileCache::acquire(int tile, bool read) {
  if (next_ < order_.size() && order_[next_] == tile) ++next_;
  Slot* slot = find(tile);
  if (slot) {
    DSJ_CHECK(slot->state != State::Held);
    wait(*slot);  // waits for its read or write; after either the bytes are in memory
  } else {
    slot = &free_slot();
    if (read) {
      start_read(*slot, tile);
      wait(*slot);
    }
  }
  slot->state = State::Held;
  slot->tile = tile;
  return slot->bytes.first(static_cast<size_t>(tiles_[tile].bytes));
}

void TileCache::release(int tile, bool changed) {
  Slot* slot = find(tile);
  DSJ_CHECK(slot && slot->state == State::Held);
  slot->state = State::Free;
  if (!changed) return;
  const TileSpec& spec = tiles_[tile];
  slot->state = State::Writing;
  slot->age = ++clock_;
  slot->ticket = file_->write(spec.offset, slot->bytes.first(static_cast<size_t>(spec.bytes)));
  if (!options_.write_behind) wait(*slot);
}

bool TileCache::prefetch(int tile) {
  if (!options_.read_ahead || tile >= static_cast<int>(tiles_.size())) return false;
  if (find(tile)) return true;
  // If two writes are in flight, the older one is nearly done: the wait is short.
  const auto free = std::ranges::count(slots_, State::Free, &Slot::state);
  const auto writes = std::ranges::count(slots_, State::Writing, &Slot::state);
  if (free == 0 && writes < 2) return false;
  start_read(free_slot(), tile);
  return true;
}

void TileCache::set_order(std::vector<int> tiles) {
  order_ = std::move(tiles);
  next_ = order_.size();
}

void TileCache::rewind() {
  next_ = 0;
}

void TileCache::read_ahead() {
  for (size_t i = next_; i < order_.size() && i < next_ + slots_.size(); ++i) {
    if (find(order_[i])) continue;
    const auto busy = std::ranges::find(slots_, State::Writing, &Slot::state);
    const auto free = std::ranges::find(slots_, State::Free, &Slot::state);
    if (free == slots_.end() && busy != slots_.end()) wait(*busy);
    if (!prefetch(order_[i])) return;
  }
}

}  // namespace dsj::zero
