// As much of a CUDA driver as dsj-train looks at before it opens the plugin: FAKE_GPUS devices;
// FAKE_CUINIT is what its start returns; FAKE_CAPABILITY, 90 for 9.0, of each device; FAKE_DRIVER, 13000 for
// CUDA 13.0. It is also a plugin of another build. For open_test.cc and tests/run/train_run_test.cc.
#include <cstddef>
#include <cstdlib>

namespace {
int number(const char* name, int otherwise = 0) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
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
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal + 100;  // what it means is the driver's own affair
  return ordinal < number("FAKE_GPUS") ? 0 : 101;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const int capability = number("FAKE_CAPABILITY", 90);
  *value = attribute == 75 ? capability / 10 : capability % 10;
  return device >= 100 && (attribute == 75 || attribute == 76) ? 0 : 1;
}
/// FAKE_MEMORY: MiB of the first device; the next has one less.
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  *bytes = static_cast<size_t>(number("FAKE_MEMORY") - (device - 100)) << 20;
  return number("FAKE_MEMORY") > 0 ? 0 : 1;
}
int cuDriverGetVersion(int* version) {
  *version = number("FAKE_DRIVER", 13000);
  return 0;
}
const void* dsj_cuda_plugin() {
  return &plugin;
}
}
