// As much of a CUDA driver as dsj-train looks at before it opens the plugin: FAKE_GPUS devices;
// FAKE_CUINIT is what its start returns. It is also a plugin of another build. For open_test.cc and
// tests/run/train_run_test.cc.
#include <cstdlib>

namespace {
int number(const char* name) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : 0;
}
struct {
  const char* interface = "another build";
} plugin;
}  // namespace

extern "C" {
int cuInit(unsigned) {
  return number("FAKE_CUINIT");
}
int cuDeviceGetCount(int* count) {
  *count = number("FAKE_GPUS");
  return 0;
}
const void* dsj_cuda_plugin() {
  return &plugin;
}
}
