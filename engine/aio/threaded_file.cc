#include "engine/aio/threaded_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/check.h"

namespace dsj::aio {
namespace {

class Descriptor final : public RawFile {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() override { ::close(number_); }
  int64_t read(int64_t offset, std::byte* out, int64_t bytes) override {
    const ssize_t got = ::pread(number_, out, static_cast<size_t>(bytes), offset);
    return got < 0 ? -errno : got;
  }
  int64_t write(int64_t offset, const std::byte* data, int64_t bytes) override {
    const ssize_t put = ::pwrite(number_, data, static_cast<size_t>(bytes), offset);
    return put < 0 ? -errno : put;
  }

 private:
  const int number_;
};

}  // namespace

std::unique_ptr<RawFile> raw_descriptor(int descriptor) {
  return std::make_unique<Descriptor>(descriptor);
}

ThreadedFile::ThreadedFile(std::unique_ptr<RawFile> raw, std::string path, int64_t size,
                           const Options& options, const char* implementation)
    : raw_(std::move(raw)),
      path_(std::move(path)),
      size_(size),
      implementation_(implementation),
      requests_(options.block_size) {
  const int count = std::clamp(options.queue_depth * options.thread_count, 1, 64);
  for (int i = 0; i < count; ++i) threads_.emplace_back([this] { work(); });
}

ThreadedFile::~ThreadedFile() {
  requests_.close();
  for (auto& thread : threads_) thread.join();
}

Ticket ThreadedFile::read(int64_t offset, std::span<std::byte> out) {
  DSJ_CHECK(offset >= 0 && offset + static_cast<int64_t>(out.size()) <= size_);
  return requests_.submit(false, offset, out.data(), static_cast<int64_t>(out.size()));
}

Ticket ThreadedFile::write(int64_t offset, std::span<const std::byte> bytes) {
  DSJ_CHECK(offset >= 0 && offset + static_cast<int64_t>(bytes.size()) <= size_);
  return requests_.submit(true, offset, const_cast<std::byte*>(bytes.data()),
                          static_cast<int64_t>(bytes.size()));
}

void ThreadedFile::work() {
  while (const auto taken = requests_.take_or_wait()) {
    Block block = *taken;
    std::optional<Error> error;
    if (under_way_++ > 0) ++mixed_;
    for (;;) {
      ++calls_;
      const int64_t result = block.write ? raw_->write(block.offset, block.data, block.bytes)
                                         : raw_->read(block.offset, block.data, block.bytes);
      const auto next = advance(block, result, path_);
      if (!next) error = next.error();
      if (!next || *next == Next::Done) break;
    }
    --under_way_;
    requests_.finish(*taken, error);
  }
}

}  // namespace dsj::aio
