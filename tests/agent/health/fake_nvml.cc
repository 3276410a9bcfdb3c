// NVML's functions as far as agent/health/nvml.cc calls them. FAKE_NVML says what they do: words
// "gpus=N", "init=CODE", "lost=INDEX", "ecc=N", "pending", "failed", "down=LINKS", "old". With
// "on=NODE" at the end what is broken is broken only where the variable NODE is that.
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

constexpr int kOk = 0, kUnsupported = 3, kLost = 15;
constexpr unsigned kLinks = 4;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

/// The number behind `word=`; 1: the word stands alone; -1: it is not there.
int said(const std::string& name) {
  std::istringstream words(variable("FAKE_NVML"));
  const size_t on = words.str().find("on=");
  const bool here = on == std::string::npos || words.str().substr(on + 3) == variable("NODE");
  if (!here && name != "gpus" && name != "old") return -1;
  for (std::string word; words >> word;) {
    if (word == name) return 1;
    if (word.starts_with(name + "=")) return std::atoi(word.c_str() + name.size() + 1);
  }
  return -1;
}

int index_of(void* device) {
  return static_cast<int>(reinterpret_cast<long>(device)) - 1;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  return said("init") > 0 ? said("init") : kOk;
}
int nvmlShutdown() {
  return kOk;
}
const char* nvmlErrorString(int code) {
  static std::string text;
  text = "error " + std::to_string(code) + " of the fake";
  return text.c_str();
}
int nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::strncpy(version, "570.00", length);
  return kOk;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = said("gpus") > 0 ? said("gpus") : 0;
  return kOk;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  if (said("lost") == static_cast<int>(index)) return kLost;
  *device = reinterpret_cast<void*>(static_cast<long>(index) + 1);
  return kOk;
}
int nvmlDeviceGetTotalEccErrors(void*, int kind, int counter, unsigned long long* errors) {
  if (said("old") > 0 || kind != 1 || counter != 0) return kUnsupported;
  *errors = said("ecc") > 0 ? said("ecc") : 0;
  return kOk;
}
int nvmlDeviceGetRemappedRows(void*, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                              unsigned* failed) {
  if (said("old") > 0) return kUnsupported;
  *corrected = *uncorrected = 0;
  *pending = said("pending") > 0;
  *failed = said("failed") > 0;
  return kOk;
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* active) {
  if (said("old") > 0 || link >= kLinks || index_of(device) < 0) return kUnsupported;
  *active = static_cast<int>(link) >= said("down");
  return kOk;
}

}  // extern "C"
