// Ranks that cannot share memory: all are told why, by the numbers of the world. What the memory is for:
// contract_test.cc; the death of a peer: failure_test.cc.
#include "engine/comm/shm_segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tests/engine/comm/ranks.h"

namespace dsj::comm {
namespace {

using testing_support::kNever;
using testing_support::require;
using testing_support::run_ranks;
using testing_support::Seat;

/// From now on the calling thread can map no MiB at once. (A limit of the process's whole memory would be another one
/// as soon as its heap shrinks.)
bool forbid_large_maps() {
  constexpr auto kLength = offsetof(seccomp_data, args) + sizeof(uint64_t);  // the low half of it
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kLength),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 1 << 20, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = std::size(program), .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// The host of ranks 4 to 7, of which one has no memory left.
TEST(ShmSegment, ARankWithoutMemoryIsNamedByItsNumberInTheWorld) {
  for (const std::string& text : run_ranks(4, [](const Seat& seat) {
         const Options options = seat.options("shm", kNever);
         const auto world = Rendezvous::open(options);
         require(world.has_value(), "no store");
         Rendezvous host(options, (*world)->store(), (*world)->local_address(), {4, 5, 6, 7});
         // A segment takes a MiB and more for each rank.
         require(seat.rank != 2 || forbid_large_maps(), "no filter of system calls");
         const auto segment = ShmSegment::open(host);
         require((*world)->finish().has_value(), "the others are gone");
         require(!segment, "it has the memory");
         throw std::runtime_error(segment.error().message);
       }))
    EXPECT_EQ(text,
              "ranks cannot share memory: cannot map the memory: Cannot allocate memory (rank 6)");
}

}  // namespace
}  // namespace dsj::comm
