#include "engine/zero/storage/shard_store.h"

#include <ATen/ATen.h>

#include "common/check.h"
#include "engine/device/host_pages.h"

namespace dsj::zero {

using layout::Place;

ShardStore::ShardStore(ShardStoreOptions options)
    : options_(std::move(options)),
      tile_index_(options_.parts.size(), -1),
      memory_(options_.parts.size()),
      fresh_(options_.parts.size(), true) {
  int tiles = 0;
  for (size_t i = 0; i < options_.parts.size(); ++i)
    if (in_file(static_cast<int>(i))) tile_index_[i] = tiles++;
  DSJ_CHECK(tiles == 0 || options_.tiles);
}

std::vector<at::Tensor>& ShardStore::memory(int part) {
  auto& tensors = memory_[part];
  if (!tensors.empty()) return tensors;
  const layout::Part& where = options_.parts[part];
  const bool host = where.place == Place::Host;
  const memory::MemoryScope scope(host ? memory::Class::Host : options_.on_device);
  const auto kind =
      at::TensorOptions(options_.type).device(host ? at::Device(at::kCPU) : options_.device);
  for (const double initial : options_.initial) {
    tensors.push_back(host && options_.pinned
                          ? device::host_memory({where.numel}, options_.type, options_.device)
                          : at::empty({where.numel}, kind));
    tensors.back().fill_(initial);
  }
  return tensors;
}

at::Tensor ShardStore::whole(int vector) {
  if (options_.parts.size() != 1 || in_file(0)) return {};
  return memory(0)[vector];
}

std::vector<at::Tensor> ShardStore::open(int part, Access access, bool read_next) {
  if (!in_file(part)) return memory(part);
  const layout::Part& where = options_.parts[part];
  // A tile that was never written is not read, so that a new run starts without disk I/O.
  const bool fresh = fresh_[part] && access != Access::Write;
  const auto bytes = options_.tiles->acquire(tile_of(part), !fresh && access != Access::Write);
  if (read_next) options_.tiles->prefetch(tile_of(part) + 1);
  const int64_t stride =
      layout::file_bytes(where.numel, 1, static_cast<int64_t>(c10::elementSize(options_.type)));
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < vectors(); ++i) {
    tensors.push_back(
        at::from_blob(bytes.data() + i * stride, {where.numel}, at::TensorOptions(options_.type)));
    if (fresh) tensors.back().fill_(options_.initial[i]);
  }
  return tensors;
}

void ShardStore::close(int part, Access access) {
  if (!in_file(part)) return;
  if (access != Access::Read) fresh_[part] = false;
  options_.tiles->release(tile_of(part), access != Access::Read);
}

std::vector<int> ShardStore::tiles() const {
  std::vector<int> tiles;
  for (size_t i = 0; i < tile_index_.size(); ++i)
    if (tile_index_[i] >= 0) tiles.push_back(tile_of(static_cast<int>(i)));
  return tiles;
}

}  // namespace dsj::zero
