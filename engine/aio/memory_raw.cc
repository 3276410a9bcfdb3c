#include "engine/aio/memory_raw.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dsj::aio {
namespace {

class Memory final : public RawFile {
 public:
  Memory(int64_t size, RawFault fault) : bytes_(size), fault_(std::move(fault)) {}

  int64_t read(int64_t offset, std::byte* out, int64_t bytes) override {
    const int64_t moved = allowed(false, offset, bytes);
    if (moved > 0) std::memcpy(out, bytes_.data() + offset, static_cast<size_t>(moved));
    return moved;
  }
  int64_t write(int64_t offset, const std::byte* data, int64_t bytes) override {
    const int64_t moved = allowed(true, offset, bytes);
    if (moved > 0) std::memcpy(bytes_.data() + offset, data, static_cast<size_t>(moved));
    return moved;
  }

 private:
  int64_t allowed(bool write, int64_t offset, int64_t bytes) {
    const RawCall call{calls_++, write, offset, bytes};
    const auto forced = fault_ ? fault_(call) : std::nullopt;
    const int64_t there = std::max<int64_t>(0, static_cast<int64_t>(bytes_.size()) - offset);
    return std::min(forced.value_or(bytes), there);
  }

  std::vector<std::byte> bytes_;
  const RawFault fault_;
  std::atomic<int64_t> calls_{0};
};

}  // namespace

std::unique_ptr<RawFile> raw_memory(int64_t size, RawFault fault) {
  return std::make_unique<Memory>(size, std::move(fault));
}

}  // namespace dsj::aio
