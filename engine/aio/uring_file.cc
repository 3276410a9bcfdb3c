#include "engine/aio/uring_file.h"

#ifdef DSJ_URING
#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "common/check.h"
#include "engine/aio/requests.h"
#endif

namespace dsj::aio {

#ifdef DSJ_URING
namespace {

class UringFile final : public BlockFile {
 public:
  UringFile(io_uring ring, int descriptor, int wake, std::string path, int64_t size,
            const Options& options, int depth)
      : ring_(ring),
        descriptor_(descriptor),
        wake_(wake),
        path_(std::move(path)),
        size_(size),
        options_(options),
        requests_(options.block_size),
        slots_(depth) {
    for (int i = depth; i-- > 0;) free_.push_back(i);
    pump_ = std::thread([this] { pump(); });
  }
  ~UringFile() override {
    requests_.close();
    poke();
    pump_.join();
    io_uring_queue_exit(&ring_);
    ::close(wake_);
    ::close(descriptor_);
  }

  Ticket read(int64_t offset, std::span<std::byte> out) override {
    return submit(false, offset, out.data(), static_cast<int64_t>(out.size()));
  }
  Ticket write(int64_t offset, std::span<const std::byte> bytes) override {
    return submit(true, offset, const_cast<std::byte*>(bytes.data()),
                  static_cast<int64_t>(bytes.size()));
  }
  Status wait(Ticket ticket) override { return requests_.wait(ticket); }
  Counters counters() const override { return {blocks_, submissions_, mixed_}; }
  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  const char* implementation() const override { return "io_uring"; }

 private:
  static constexpr uint64_t kWake = UINT64_MAX;
  struct Slot {
    Block taken, now;  ///< as handed out; the rest
  };

  Ticket submit(bool write, int64_t offset, std::byte* data, int64_t bytes) {
    DSJ_CHECK(offset >= 0 && offset + bytes <= size_);
    const Ticket ticket = requests_.submit(write, offset, data, bytes);
    poke();
    return ticket;
  }
  void poke() { eventfd_write(wake_, 1); }

  // ---- the pump thread only
  void arm_wake() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    io_uring_prep_read(entry, wake_, &wake_value_, sizeof wake_value_, 0);
    io_uring_sqe_set_data64(entry, kWake);
  }
  void prepare(int slot) {
    const Block& block = slots_[slot].now;
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    const auto bytes = static_cast<unsigned>(block.bytes);
    const auto offset = static_cast<uint64_t>(block.offset);
    if (block.write)
      io_uring_prep_write(entry, descriptor_, block.data, bytes, offset);
    else
      io_uring_prep_read(entry, descriptor_, block.data, bytes, offset);
    io_uring_sqe_set_data64(entry, static_cast<uint64_t>(slot));
    ++blocks_;
    if (!options_.single_submit) return;
    ++submissions_;
    io_uring_submit(&ring_);
  }
  /// Fills free slots; without overlap_events only once all are free.
  void refill() {
    const bool idle = free_.size() == slots_.size();
    if (!options_.overlap_events && !idle) return;
    const int64_t before = blocks_;
    while (!free_.empty()) {
      const auto block = requests_.take();
      if (!block) break;
      const int slot = free_.back();
      free_.pop_back();
      slots_[slot] = {*block, *block};
      prepare(slot);
    }
    if (blocks_ > before && !idle) ++mixed_;
  }
  void completed(int slot, int64_t result) {
    const auto next = advance(slots_[slot].now, result, path_);
    if (next && *next == Next::Again) return prepare(slot);
    requests_.finish(slots_[slot].taken, next ? std::nullopt : std::optional<Error>(next.error()));
    free_.push_back(slot);
  }
  void pump() {
    arm_wake();
    for (;;) {
      const bool closed = requests_.closed();
      refill();
      if (closed && free_.size() == slots_.size()) return;
      submissions_ += io_uring_sq_ready(&ring_) > 0;
      const int waited = io_uring_submit_and_wait(&ring_, 1);
      // EAGAIN, EBUSY: the kernel is short of memory now; queued entries stay queued.
      DSJ_CHECK(waited >= 0 || waited == -EINTR || waited == -EAGAIN || waited == -EBUSY,
                "io_uring_submit_and_wait: %d", waited);
      io_uring_cqe* event = nullptr;
      while (io_uring_peek_cqe(&ring_, &event) == 0) {
        const uint64_t what = io_uring_cqe_get_data64(event);
        const int64_t result = event->res;
        io_uring_cqe_seen(&ring_, event);
        what == kWake ? arm_wake() : completed(static_cast<int>(what), result);
      }
    }
  }

  io_uring ring_;
  const int descriptor_, wake_;
  const std::string path_;
  const int64_t size_;
  const Options options_;
  Requests requests_;
  std::vector<Slot> slots_;
  std::vector<int> free_;
  uint64_t wake_value_ = 0;
  std::atomic<int64_t> blocks_{0}, submissions_{0}, mixed_{0};
  std::thread pump_;
};

}  // namespace

Result<std::unique_ptr<BlockFile>> make_uring_file(int descriptor, const std::string& path,
                                                   int64_t size, const Options& options) {
  const int depth = std::clamp(options.queue_depth * options.thread_count, 1, 1024);
  io_uring ring{};
  const int failed = io_uring_queue_init(static_cast<unsigned>(depth) + 1, &ring, 0);
  if (failed != 0) {
    return fail(ErrorKind::Environment, "io_uring: " + errno_text(-failed), path);
  }
  const int wake = eventfd(0, EFD_CLOEXEC);
  if (wake < 0) {
    const int number = errno;
    io_uring_queue_exit(&ring);
    return fail(ErrorKind::Environment, "eventfd: " + errno_text(number), path);
  }
  return std::make_unique<UringFile>(ring, descriptor, wake, path, size, options, depth);
}
#else
Result<std::unique_ptr<BlockFile>> make_uring_file(int, const std::string& path, int64_t,
                                                   const Options&) {
  return fail(ErrorKind::Environment, "this build has no io_uring (liburing was not found)", path);
}
#endif

}  // namespace dsj::aio
