// NVML's functions as far as agent/health/nvml.cc calls them. FAKE_NVML says what they do: words
// "gpus=N", "init=CODE", "lost=INDEX", "ecc=N", "pending", "failed", "down=LINKS", "recoveries=N" (of each
// link), "recovery=N" (what the driver asks for), "xid=N" (told once to those who listen, of the last GPU),
// "old". With "on=NODE" at the end what is broken is broken only where the variable NODE is that.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

constexpr int kOk = 0, kUnsupported = 3, kTimeout = 10, kLost = 15;
constexpr unsigned kLinks = 4;
constexpr unsigned long long kXidEvents = 8;

int listened_to = 0;  // the last GPU whose events are wanted, from 1
int told_xid = 0;

// As nvml.h lays them out.
struct EventData {
  void* device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
struct FieldValue {
  unsigned id, scope;
  long long timestamp, latency;
  unsigned type;
  int result;
  union {
    double real;
    unsigned number;
    unsigned long long longest;
  } value;
};
static_assert(sizeof(EventData) == 32 && sizeof(FieldValue) == 40);

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

int nvmlDeviceGetNvLinkErrorCounter(void*, unsigned, int counter, unsigned long long* errors) {
  if (said("old") > 0 || counter != 1) return kUnsupported;
  *errors = said("recoveries") > 0 ? said("recoveries") : 0;
  return kOk;
}
int nvmlDeviceGetFieldValues(void*, int count, FieldValue* values) {
  if (said("old") > 0) return kUnsupported;
  for (int i = 0; i < count; ++i) {
    values[i].result = values[i].id == 230 ? kOk : kUnsupported;
    values[i].value.number = said("recovery") > 0 ? said("recovery") : 0;
  }
  return kOk;
}
int nvmlDeviceGetIndex(void* device, unsigned* index) {
  *index = index_of(device);
  return kOk;
}
int nvmlEventSetCreate(void** set) {
  if (said("old") > 0) return kUnsupported;
  *set = &listened_to;
  return kOk;
}
int nvmlEventSetFree(void*) {
  listened_to = told_xid = 0;
  return kOk;
}
int nvmlDeviceRegisterEvents(void* device, unsigned long long types, void* set) {
  if (set != &listened_to || types != kXidEvents) return kUnsupported;
  listened_to = std::max(listened_to, index_of(device) + 1);
  return kOk;
}
int nvmlEventSetWait_v2(void* set, EventData* event, unsigned milliseconds) {
  if (set != &listened_to || milliseconds > 0) return kUnsupported;
  const int xid = said("xid");
  if (listened_to == 0 || xid <= 0 || xid == told_xid) return kTimeout;
  told_xid = xid;
  *event = {reinterpret_cast<void*>(static_cast<long>(listened_to)), kXidEvents,
            static_cast<unsigned long long>(xid), 0, 0};
  return kOk;
}

}  // extern "C"
