// NCCL 2.28's words for a GPU without memory, and for what is something else.
#include "engine/comm/nccl_words.h"

#include <gtest/gtest.h>

namespace dsj::comm {
namespace {

TEST(NcclWords, SayThatTheGpuHasNoMemoryLeft) {
  const std::string unhandled =
      "ncclGroupEnd: unhandled cuda error (run with NCCL_DEBUG=INFO for details): ";
  EXPECT_EQ(refused_memory(unhandled + "Failed to CUDA calloc 6291456 bytes"), 6291456);
  EXPECT_EQ(refused_memory(unhandled + "Failed to CUDA calloc async 2432 bytes"), 2432);
  EXPECT_EQ(refused_memory(unhandled + "Failed to CUDA malloc 536870912 bytes"), 536870912);
  EXPECT_EQ(refused_memory(unhandled + "Cuda failure 2 'out of memory'"), 0);
}

TEST(NcclWords, OfOtherFailuresAreNotOfMemory) {
  for (const char* text :
       {"", "unhandled cuda error: Cuda failure 700 'an illegal memory access was encountered'",
        "unhandled system error: socketPollConnect: connect to 10.0.0.2<41000> returned",
        "Failed to CUDA host alloc 4096 bytes", "Failed to CUDA calloc "})
    EXPECT_FALSE(refused_memory(text)) << text;
}

}  // namespace
}  // namespace dsj::comm
