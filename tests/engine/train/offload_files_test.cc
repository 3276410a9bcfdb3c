// Offload's files: where they lie, in which order they are read and written, and what a faulty or
// missing disk leads to.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "engine/zero/storage/storage_error.h"
#include "job/plan/zero_plan.h"
#include "tests/engine/train/offload_support.h"

namespace dsj::train {
namespace {

namespace fs = std::filesystem;
using FileEvents = RecordingFile::Events;

TEST(OffloadFiles, LieUnderNvmePath) {
  const ScratchRoot root;
  SmallRun run = offloaded(3, OffloadDevice::Nvme, OffloadDevice::Nvme, root.path(), 1);
  run.config.offload.param.nvme_path = root.path() + "/parameters";
  run.host.job = "a job";
  run.host.attempt = 7;
  std::vector<std::string> notes;
  run.host.note = [&](const std::string& note) { notes.push_back(note); };
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    const auto plan = plan::plan_offload(rank.state.plan(), run.config, 1);
    EXPECT_EQ(fs::file_size(root.path() + "/dsj_a-job_7_0/optimizer.swap"),
              static_cast<uintmax_t>(plan.optimizer_file_bytes));
    EXPECT_EQ(fs::file_size(root.path() + "/parameters/dsj_a-job_7_0/parameters.swap"),
              static_cast<uintmax_t>(plan.parameter_file_bytes));
    rank.load(run.model);
    rank.step(0);
  });
  EXPECT_TRUE(fs::is_empty(root.path())) << "removed with the directory that was made";
  // What is used, and why nothing better, is said once.
  EXPECT_EQ(std::ranges::count_if(
                notes, [](const auto& note) { return note.find("on NVMe: ") != note.npos; }),
            2);
  EXPECT_EQ(
      std::ranges::count_if(
          notes, [](const auto& note) { return note.starts_with("pin_memory has no effect"); }),
      1);
}

/// The files of `run` add what is done with them to `events`.
void record(SmallRun& run, FileEvents& events) {
  run.host.open = [&](const std::string&, int64_t bytes) {
    return std::make_unique<RecordingFile>(bytes, events);
  };
}

/// The events of the second step's update on the optimizer's file, one rank.
FileEvents events_of(bool pipeline_read, bool pipeline_write) {
  SmallRun run = offloaded(2, OffloadDevice::Nvme, OffloadDevice::None, "unused", 1);
  run.config.offload.optimizer.pipeline_read = pipeline_read;
  run.config.offload.optimizer.pipeline_write = pipeline_write;
  run.config.offload.sub_group_size = 2048;
  FileEvents events;
  record(run, events);
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    rank.load(run.model);
    rank.step(0);
    events.clear();
    rank.step(1);
  });
  return events;
}

TEST(OffloadFiles, PipelineOverlaps) {
  for (const bool read : {false, true}) {
    for (const bool write : {false, true}) {
      const FileEvents events = events_of(read, write);
      std::vector<int64_t> reads, writes;
      size_t read_before_write = 0, waited_at_once = 0;
      for (size_t i = 0; i < events.size(); ++i) {
        if (events[i].what == 'r') reads.push_back(events[i].offset);
        if (events[i].what != 'w') continue;
        writes.push_back(events[i].offset);
        // The next tile's read is under way when this one's computation is over.
        read_before_write += reads.size() > writes.size();
        waited_at_once += i + 1 < events.size() && events[i + 1].what == 'd' &&
                          events[i + 1].ticket == events[i].ticket;
      }
      ASSERT_GT(writes.size(), 4u);
      EXPECT_EQ(reads, writes) << "every tile once, in order";
      EXPECT_EQ(read_before_write, read ? writes.size() - 1 : 0);
      EXPECT_EQ(waited_at_once, write ? 0 : writes.size());
    }
  }
}

TEST(OffloadFiles, ParametersAreReadAheadInTheOrderOfTheSchedule) {
  SmallRun run = offloaded(3, OffloadDevice::None, OffloadDevice::Nvme, "unused", 1);
  run.config.offload.param.buffer_count = 4;
  FileEvents events;
  record(run, events);
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    rank.load(run.model);
    rank.step(0);
    events.clear();
    rank.state.begin_step();
    const size_t ahead = events.size();
    EXPECT_EQ(ahead, 0u) << "the step before has begun to read the first tiles already";
    rank.state.gather(rank.stepper.schedule().actions.front().flat);
    // Of the tiles that the gather wanted none was read when it was asked for: all were ahead.
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.front().what, 'd');
  });
}

TEST(OffloadFiles, ADeviceFaultMidRunNamesKeyPathAndBytes) {
  for (const bool write : {true, false}) {
    SmallRun run = offloaded(2, OffloadDevice::Nvme, OffloadDevice::None, "unused", 1);
    FileEvents events;
    std::atomic<bool> broken{false};
    run.host.open = [&](const std::string&, int64_t bytes) {
      return std::make_unique<RecordingFile>(
          bytes, events, [&](const aio::RawCall& call) -> std::optional<int64_t> {
            if (broken && call.write == write) return write ? -ENOSPC : -EIO;
            return std::nullopt;
          });
    };
    testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
      Rank rank(run, collectives);
      rank.load(run.model);
      rank.step(0);
      broken = true;
      try {
        rank.step(1);
        FAIL() << "the fault went unnoticed";
      } catch (const zero::StorageError& error) {
        EXPECT_EQ(error.error().kind, ErrorKind::Environment);
        EXPECT_EQ(error.error().where, "zero_optimization.offload_optimizer.nvme_path");
        for (const std::string& part : {std::string("/nvme/file: "), std::string(" bytes at "),
                                        std::string(std::strerror(write ? ENOSPC : EIO))})
          EXPECT_NE(error.error().message.find(part), std::string::npos) << error.what();
      }
    });
  }
}

TEST(OffloadFiles, AWrongPathIsBadInputBeforeAnyStep) {
  const ScratchRoot root;
  for (const bool param : {false, true}) {
    SmallRun run =
        offloaded(3, param ? OffloadDevice::None : OffloadDevice::Nvme,
                  param ? OffloadDevice::Nvme : OffloadDevice::None, root.path() + "/no/such", 1);
    testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
      try {
        Rank rank(run, collectives);
        FAIL() << "a directory was made out of nothing";
      } catch (const zero::StorageError& error) {
        EXPECT_EQ(error.error().kind, ErrorKind::BadInput);
        EXPECT_EQ(error.error().where, param ? "zero_optimization.offload_param.nvme_path"
                                             : "zero_optimization.offload_optimizer.nvme_path");
      }
    });
  }
}

}  // namespace
}  // namespace dsj::train
