// Small runs with offload, and a file in memory that remembers what was asked of it.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/aio/memory_raw.h"
#include "tests/engine/train/support.h"

namespace dsj::train {

using dsconfig::OffloadDevice;
using dsconfig::Precision;

/// A fresh directory that is gone afterwards.
class ScratchRoot {
 public:
  ScratchRoot()
      : path_(testing::TempDir() + "offload_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + "_" +
              std::to_string(getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~ScratchRoot() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Tiles much smaller than a unit, all pipelines on.
inline SmallRun offloaded(int stage, OffloadDevice optimizer, OffloadDevice param,
                          const std::string& root, int world = 2) {
  SmallRun run{.world = world, .config = small_config(stage, 2, 2)};
  auto& offload = run.config.offload;
  offload.optimizer.device = optimizer;
  offload.optimizer.nvme_path = offload.param.nvme_path = root;
  offload.optimizer.pipeline_read = offload.optimizer.pipeline_write = true;
  offload.sub_group_size = 30'000;
  offload.param.device = param;
  offload.param.buffer_size = 4096;
  offload.param.buffer_count = 3;
  offload.param.max_in_cpu = 0;
  return run;
}

inline void make_bf16(SmallRun& run) {
  run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype =
      Precision::Bf16;
}

/// A block file whose requests are written down in order.
class RecordingFile final : public aio::BlockFile {
 public:
  struct Event {
    char what;  ///< 'r' read begins, 'w' write begins, 'd' waited for
    int64_t offset;
    aio::Ticket ticket;
  };
  using Events = std::vector<Event>;

  RecordingFile(int64_t bytes, Events& events, aio::RawFault fault = {})
      : inner_(aio::raw_memory(bytes, std::move(fault)), "/nvme/file", bytes, {}, "memory"),
        events_(events) {}
  aio::Ticket read(int64_t offset, std::span<std::byte> out) override {
    events_.push_back({'r', offset, inner_.read(offset, out)});
    return events_.back().ticket;
  }
  aio::Ticket write(int64_t offset, std::span<const std::byte> bytes) override {
    events_.push_back({'w', offset, inner_.write(offset, bytes)});
    return events_.back().ticket;
  }
  Status wait(aio::Ticket ticket) override {
    events_.push_back({'d', 0, ticket});
    return inner_.wait(ticket);
  }
  aio::Counters counters() const override { return inner_.counters(); }
  const std::string& path() const override { return inner_.path(); }
  int64_t size() const override { return inner_.size(); }
  const char* implementation() const override { return inner_.implementation(); }

 private:
  aio::ThreadedFile inner_;
  Events& events_;
};

}  // namespace dsj::train
