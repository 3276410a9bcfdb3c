// The error of a GPU without memory: what asked, for how much, and a change that the memory model
// has tried.
#include "engine/train/inputs/out_of_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dsj::train {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kGiB = int64_t{1} << 30;

plan::FitInput seven_billion() {
  plan::FitInput input;
  input.memory.model = {.model_type = "qwen2",
                        .vocab_size = 152064,
                        .hidden_size = 3584,
                        .intermediate_size = 18944,
                        .num_layers = 28,
                        .num_heads = 28,
                        .num_kv_heads = 4,
                        .head_dim = 128};
  input.memory.config.micro_batch_size = 4;
  input.memory.config.gradient_accumulation_steps = 1;
  input.memory.config.zero.stage = 1;
  input.memory.world = 8;
  input.memory.tokens_per_row = 1024;
  input.ranks_per_host = 8;
  return input;
}

TEST(OutOfMemory, NamesClassBytesAndTheChangeThatMakesItFit) {
  memory::Shortage shortage;
  {
    const memory::MemoryScope scope(memory::Class::Gradients);
    memory::note_shortage(2 * kGiB, 40 * kGiB, kGiB / 2);
    shortage = *memory::last_shortage();
  }
  const Error error = out_of_device_memory(shortage, "ignored", seven_billion());
  EXPECT_EQ(error.kind, ErrorKind::Environment);
  EXPECT_EQ(error.message,
            "out of GPU memory: gradients asked for 2.0 GiB, 512.0 MiB of 40.0 GiB are free");
  EXPECT_THAT(error.hint, StartsWith("dsj plan: "));
  EXPECT_THAT(error.hint, HasSubstr("makes it fit"));
}

TEST(OutOfMemory, SaysWhenTheModelFits) {
  const memory::Shortage shortage{memory::Class::Activations, kGiB, 4096 * kGiB, 0};
  const Error error = out_of_device_memory(shortage, "ignored", seven_billion());
  EXPECT_THAT(error.message, HasSubstr("activations asked for 1.0 GiB, 0 B of 4.0 TiB are free"));
  EXPECT_THAT(error.hint, HasSubstr("the run fits into this GPU alone: end other processes on it"));
}

TEST(OutOfMemory, HasTheLibrarysWordsWhereNothingElseIsKnown) {
  const Error error = out_of_device_memory({}, "CUDA out of memory.", {});
  EXPECT_EQ(error.message, "out of GPU memory: CUDA out of memory.");
  EXPECT_THAT(error.hint, HasSubstr("gradientCheckpointing"));
}

}  // namespace
}  // namespace dsj::train
