#include "tests/engine/kernels/emulated/watch.h"

#include <cstring>
#include <map>

namespace dsj::emulated {
namespace {

/// Begin → end of every Buffer.
std::map<uintptr_t, uintptr_t>& buffers() {
  static std::map<uintptr_t, uintptr_t> all;
  return all;
}

bool in_a_buffer(uintptr_t at, std::size_t bytes) {
  const auto next = buffers().upper_bound(at);
  return next != buffers().begin() && at + bytes <= std::prev(next)->second;
}

}  // namespace

Buffer::Buffer(std::size_t bytes) : data_(new unsigned char[bytes]) {
  if (bytes > 0) std::memset(data_.get(), 0xff, bytes);
  const auto at = reinterpret_cast<uintptr_t>(data_.get());
  buffers()[at] = at + bytes;
}

Buffer::~Buffer() {
  buffers().erase(reinterpret_cast<uintptr_t>(data_.get()));
}

bool Watch::add_shared(const void* at, std::size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  for (const Range& range : shared_) {
    if (range.at == begin) return false;
  }
  shared_.push_back({begin, bytes});
  return true;
}

bool Watch::is_shared(uintptr_t at) const {
  for (const Range& range : shared_) {
    if (at - range.at < range.bytes) return true;
  }
  return false;
}

Watch::Page& Watch::page(uintptr_t number) {
  if (number != last_number_) {
    auto& page = pages_[number];
    if (!page) page = std::make_unique<Page>();
    last_number_ = number;
    last_ = page.get();
  }
  return *last_;
}

/// Whether an access is ordered before one that happens now. Blocks have no order, but each has a
/// shared memory of its own.
bool Watch::ordered(const Moment& before, const Moment& now, bool shared) const {
  if (before.epoch < launch_ || before.epoch == 0) return true;
  if (before.epoch < block_) return shared;
  if (before.thread == now.thread || before.epoch != now.epoch) return true;
  return before.thread / 32 == now.thread / 32 && before.warp_epoch != now.warp_epoch;
}

std::optional<std::string> Watch::touch_byte(Cell& cell, bool write, const Moment& now,
                                             bool shared) {
  const char* does = write ? " writes what " : " reads what ";
  if (!ordered(cell.writer, now, shared))
    return "a race: " + thread_name(now.thread) + does + thread_name(cell.writer.thread) + " wrote";
  if (write) {
    for (const Moment& reader : cell.readers) {
      if (!ordered(reader, now, shared))
        return "a race: " + thread_name(now.thread) + does + thread_name(reader.thread) + " read";
    }
    cell.writer = now;
    return {};
  }
  if (shared && cell.writer.epoch < block_)
    return thread_name(now.thread) + " reads shared memory that no thread has written";
  // Two unordered readers are enough: a writer is at most one of them.
  Moment* slot = nullptr;
  for (Moment& reader : cell.readers) {
    if (reader.thread == now.thread && reader.epoch == now.epoch) slot = &reader;
  }
  for (Moment& reader : cell.readers) {
    if (!slot && ordered(reader, now, shared)) slot = &reader;
  }
  if (slot) *slot = now;
  return {};
}

std::optional<std::string> Watch::touch(uintptr_t at, std::size_t bytes, bool write,
                                        const Moment& now) {
  const bool shared = is_shared(at) && is_shared(at + bytes - 1);
  if (!shared && !buffers().empty() && !in_a_buffer(at, bytes))
    return thread_name(now.thread) + (write ? " writes " : " reads ") + std::to_string(bytes) +
           " bytes outside of every buffer";
  for (std::size_t i = 0; i < bytes; ++i) {
    if (auto wrong = touch_byte(page((at + i) >> 12).cells[(at + i) & 4095], write, now, shared))
      return wrong;
  }
  return {};
}

}  // namespace dsj::emulated
