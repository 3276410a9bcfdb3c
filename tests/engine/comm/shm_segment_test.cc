// Ranks that cannot share memory: all are told why, by the numbers of the world. What the memory is for:
// contract_test.cc; the death of a peer: failure_test.cc.
#include "engine/comm/shm_segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tests/engine/comm/ranks.h"

namespace dsj::comm {
namespace {

using testing_support::kNever;
using testing_support::require;
using testing_support::run_ranks;
using testing_support::Seat;

/// While it lives, the process can map no more than `more` bytes.
class NoMoreMemory {
 public:
  explicit NoMoreMemory(std::size_t more) {
    getrlimit(RLIMIT_AS, &before_);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit now = before_;
    now.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + more;
    setrlimit(RLIMIT_AS, &now);
  }
  ~NoMoreMemory() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

/// The host of ranks 4 to 7, of which one has no memory left.
TEST(ShmSegment, ARankWithoutMemoryIsNamedByItsNumberInTheWorld) {
  for (const std::string& text : run_ranks(4, [](const Seat& seat) {
         const Options options = seat.options("shm", kNever);
         const auto world = Rendezvous::open(options);
         require(world.has_value(), "no store");
         Rendezvous host(options, (*world)->store(), (*world)->local_address(), {4, 5, 6, 7});
         std::string problem;
         {
           // A segment takes a MiB and more for each rank.
           const auto limit = seat.rank == 2 ? std::make_unique<NoMoreMemory>(1 << 20) : nullptr;
           const auto segment = ShmSegment::open(host);
           if (!segment) problem = segment.error().message;
         }
         require((*world)->finish().has_value(), "the others are gone");
         require(!problem.empty(), "it has the memory");
         throw std::runtime_error(problem);
       }))
    EXPECT_EQ(text,
              "ranks cannot share memory: cannot map the memory: Cannot allocate memory (rank 6)");
}

}  // namespace
}  // namespace dsj::comm
