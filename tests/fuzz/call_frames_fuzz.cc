// Frame information of a program: the input is its image, which begins with the table of frames.
#include "agent/stacks/call_frames.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dsj::agent;
  const std::string image = dsj::fuzz::text_of(data, size);
  const auto read = [&](uint64_t at, size_t most) {
    return at < image.size() ? image.substr(at, most) : std::string();
  };
  const auto memory = [](uint64_t at) {
    return at % 5 == 0 ? std::nullopt : std::optional<uint64_t>(at ^ 0x5a5a);
  };
  FrameRegisters registers;
  for (uint64_t i = 0; i < registers.size(); ++i) registers[i] = 4096 + 8 * i;
  for (const uint64_t address : {0x1000ULL, 0x1004ULL, 0x1010ULL, 0x7fffffffULL}) {
    (void)caller_of(read, 0, address, registers, memory);
  }
  return 0;
}
