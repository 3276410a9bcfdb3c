// A block file in memory whose requests take effect only when they are waited for, as on a slow
// device. Memory that is read or reused too early then holds the wrong bytes, every time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/aio/block_file.h"

namespace dsj::testing_support {

/// What a LateFile leaves behind: its content, and what was asked of it.
struct LateDisk {
  explicit LateDisk(int64_t size) : bytes(static_cast<size_t>(size)) {}
  std::vector<std::byte> bytes;
  /// "r 4096": a read at 4096 begins. "w ...": a write begins. "d ...": the oldest request there is
  /// waited for.
  std::vector<std::string> events;
  std::set<int64_t> broken;  ///< offsets where requests fail
  int64_t in_flight = 0;

  /// The events that begin with `what`.
  std::vector<std::string> events_of(char what) const {
    std::vector<std::string> found;
    std::ranges::copy_if(events, std::back_inserter(found),
                         [&](const std::string& event) { return event[0] == what; });
    return found;
  }
};

class LateFile final : public aio::BlockFile {
 public:
  /// `disk` outlives it.
  explicit LateFile(LateDisk& disk) : disk_(disk) {}
  ~LateFile() override {
    while (!requests_.empty()) (void)wait(requests_.begin()->first);
  }

  aio::Ticket read(int64_t offset, std::span<std::byte> out) override {
    std::ranges::fill(out, std::byte{0xEE});
    return begin({'r', offset, out});
  }
  aio::Ticket write(int64_t offset, std::span<const std::byte> bytes) override {
    return begin({'w', offset, {const_cast<std::byte*>(bytes.data()), bytes.size()}});
  }
  Status wait(aio::Ticket ticket) override {
    const auto found = requests_.find(ticket);
    if (found == requests_.end()) return fail(ErrorKind::Internal, "waited for twice", path_);
    const Request request = found->second;
    requests_.erase(found);
    --disk_.in_flight;
    note('d', request.offset);
    if (disk_.broken.contains(request.offset))
      return fail(ErrorKind::Environment, "the device is gone", path_);
    std::byte* at = disk_.bytes.data() + request.offset;
    if (request.what == 'r')
      std::memcpy(request.memory.data(), at, request.memory.size());
    else
      std::memcpy(at, request.memory.data(), request.memory.size());
    return {};
  }
  aio::Counters counters() const override { return {}; }
  const std::string& path() const override { return path_; }
  int64_t size() const override { return static_cast<int64_t>(disk_.bytes.size()); }
  const char* implementation() const override { return "late"; }

 private:
  struct Request {
    char what;
    int64_t offset;
    std::span<std::byte> memory;
  };
  aio::Ticket begin(Request request) {
    const auto size = static_cast<int64_t>(request.memory.size());
    EXPECT_EQ(request.offset % aio::kAlign, 0);
    EXPECT_EQ(size % aio::kAlign, 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(request.memory.data()) % aio::kAlign, 0u);
    EXPECT_LE(request.offset + size, static_cast<int64_t>(disk_.bytes.size()));
    for (const auto& [ticket, other] : requests_) {
      const bool apart =
          other.offset + static_cast<int64_t>(other.memory.size()) <= request.offset ||
          request.offset + size <= other.offset;
      EXPECT_TRUE(apart || (request.what == 'r' && other.what == 'r'))
          << "requests in flight at " << request.offset << " overlap: they have no order";
    }
    note(request.what, request.offset);
    ++disk_.in_flight;
    requests_.emplace(++last_, request);
    return last_;
  }
  void note(char what, int64_t offset) {
    disk_.events.push_back(std::string(1, what) + " " + std::to_string(offset));
  }

  LateDisk& disk_;
  std::map<aio::Ticket, Request> requests_;
  aio::Ticket last_ = 0;
  const std::string path_ = "/nvme/late";
};

}  // namespace dsj::testing_support
