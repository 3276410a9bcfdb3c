#include "engine/aio/requests.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "common/check.h"

namespace dsj::aio {
namespace {

std::string operation(const Block& block) {
  return std::string(block.write ? "writing " : "reading ") + std::to_string(block.bytes) +
         " bytes at " + std::to_string(block.offset);
}

std::string hint_of(int number) {
  if (number == ENOSPC || number == EDQUOT) return "free space there, or use another volume";
  if (number == EIO) return "the device reports a fault: look at the system's log";
  return {};
}

}  // namespace

Result<Next> advance(Block& block, int64_t result, const std::string& path) {
  if (result == -EINTR || result == -EAGAIN) return Next::Again;
  if (result < 0) {
    const int number = static_cast<int>(-result);
    return fail(ErrorKind::Environment, operation(block) + ": " + errno_text(number), path,
                hint_of(number));
  }
  if (result >= block.bytes) return Next::Done;
  // A direct transfer can continue only at a whole unit: a partially moved unit is moved again.
  const int64_t whole = result / kAlign * kAlign;
  if (whole == 0) {
    return fail(ErrorKind::Environment,
                operation(block) + ": " +
                    (block.write ? "the device took " + std::to_string(result) + " of them"
                                 : "the file ends at " + std::to_string(block.offset + result)),
                path, block.write ? "" : "another program has truncated the file");
  }
  block.offset += whole;
  block.data += whole;
  block.bytes -= whole;
  return Next::Again;
}

Requests::Requests(int64_t block_size)
    : block_size_(std::max(kAlign, block_size / kAlign * kAlign)) {}

Ticket Requests::submit(bool write, int64_t offset, std::byte* data, int64_t bytes) {
  DSJ_CHECK(offset % kAlign == 0 && bytes % kAlign == 0 &&
            reinterpret_cast<uintptr_t>(data) % kAlign == 0);
  std::lock_guard lock(mutex_);
  DSJ_CHECK(!closed_);
  const Ticket ticket = ++last_;
  states_[ticket].bytes_left = bytes;
  if (bytes > 0) {
    queue_.push_back({ticket, write, offset, data, bytes});
    work_.notify_all();
  }
  return ticket;
}

Status Requests::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  const auto found = states_.find(ticket);
  DSJ_CHECK(found != states_.end(), "no such ticket, or it was waited for");
  done_.wait(lock, [&] { return found->second.bytes_left == 0; });
  const auto error = std::move(found->second.error);
  states_.erase(found);
  if (error) return std::unexpected(*error);
  return {};
}

std::optional<Block> Requests::take_locked() {
  if (queue_.empty()) return std::nullopt;
  Block& rest = queue_.front();
  Block block = rest;
  block.bytes = std::min(rest.bytes, block_size_);
  rest.offset += block.bytes;
  rest.data += block.bytes;
  rest.bytes -= block.bytes;
  if (rest.bytes == 0) queue_.pop_front();
  return block;
}

std::optional<Block> Requests::take() {
  std::lock_guard lock(mutex_);
  return take_locked();
}

std::optional<Block> Requests::take_or_wait() {
  std::unique_lock lock(mutex_);
  work_.wait(lock, [&] { return closed_ || !queue_.empty(); });
  return take_locked();
}

void Requests::finish(const Block& block, const std::optional<Error>& error) {
  std::lock_guard lock(mutex_);
  State& state = states_.at(block.ticket);
  state.bytes_left -= block.bytes;
  if (error && (!state.error || block.offset < state.error_offset)) {
    state.error = error;
    state.error_offset = block.offset;
  }
  if (state.bytes_left == 0) done_.notify_all();
}

void Requests::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  work_.notify_all();
}

bool Requests::closed() const {
  std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace dsj::aio
