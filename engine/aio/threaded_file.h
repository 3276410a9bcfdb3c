// A block file with threads and blocking calls: one thread per block in flight.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/aio/block_file.h"
#include "engine/aio/requests.h"

namespace dsj::aio {

/// Positioned blocking I/O, used by ThreadedFile. Any thread.
class RawFile {
 public:
  virtual ~RawFile() = default;
  /// Returns the bytes moved, perhaps fewer than requested, or -errno.
  virtual int64_t read(int64_t offset, std::byte* out, int64_t bytes) = 0;
  virtual int64_t write(int64_t offset, const std::byte* data, int64_t bytes) = 0;
};

/// Owns an open descriptor.
std::unique_ptr<RawFile> raw_descriptor(int descriptor);

class ThreadedFile final : public BlockFile {
 public:
  /// `implementation`: a string literal. Runs queue_depth x thread_count threads, at most 64.
  /// Ignores overlap_events and single_submit: each thread submits its block and waits for it.
  ThreadedFile(std::unique_ptr<RawFile> raw, std::string path, int64_t size, const Options& options,
               const char* implementation);
  ~ThreadedFile() override;

  Ticket read(int64_t offset, std::span<std::byte> out) override;
  Ticket write(int64_t offset, std::span<const std::byte> bytes) override;
  Status wait(Ticket ticket) override { return requests_.wait(ticket); }
  Counters counters() const override { return {calls_, calls_, mixed_}; }
  const std::string& path() const override { return path_; }
  int64_t size() const override { return size_; }
  const char* implementation() const override { return implementation_; }

 private:
  void work();

  const std::unique_ptr<RawFile> raw_;
  const std::string path_;
  const int64_t size_;
  const char* const implementation_;
  Requests requests_;
  std::atomic<int64_t> calls_{0}, mixed_{0}, under_way_{0};
  std::vector<std::thread> threads_;
};

}  // namespace dsj::aio
