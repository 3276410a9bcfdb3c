#include "agent/health/nvml.h"

#include <dlfcn.h>

#include <map>
#include <utility>

namespace dsj::agent {
namespace {

// From nvml.h's documented ABI: result codes, enumerators, structures, and handles that are pointers.
using Device = void*;
using EventSet = void*;
constexpr int kOk = 0, kGpuIsLost = 15, kUncorrected = 1, kVolatile = 0, kLinkRecovery = 1;
constexpr unsigned kLinksMax = 18, kRecoveryField = 230;
constexpr unsigned long long kXidEvents = 8;
/// Limit for drivers that keep reporting events.
constexpr int kEventsTaken = 1000;

struct EventData {
  Device device = nullptr;
  unsigned long long type = 0, data = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};
struct FieldValue {
  unsigned id = 0, scope = 0;
  long long timestamp = 0, latency = 0;
  unsigned type = 0;
  int result = 0;
  union {
    unsigned number;
    unsigned long long longest = 0;
  };
};

using Library = std::unique_ptr<void, int (*)(void*)>;

template <typename... Parameters>
class Function {
 public:
  Function(const Library& library, const char* name)
      : call_(reinterpret_cast<int (*)(Parameters...)>(dlsym(library.get(), name))) {}
  /// The library's result; -1 if it has no such function.
  int operator()(Parameters... parameters) const { return call_ ? call_(parameters...) : -1; }

 private:
  int (*call_)(Parameters...);
};

std::string why(const Library& library, int result) {
  const auto text = reinterpret_cast<const char* (*)(int)>(dlsym(library.get(), "nvmlErrorString"));
  const char* found = text ? text(result) : nullptr;
  return found ? found : "error " + std::to_string(result);
}

void read_links(const Library& library, Device device, GpuFacts& gpu) {
  const Function<Device, unsigned, int*> state(library, "nvmlDeviceGetNvLinkState");
  const Function<Device, unsigned, int, unsigned long long*> errors(
      library, "nvmlDeviceGetNvLinkErrorCounter");
  for (unsigned link = 0; link < kLinksMax; ++link) {
    int active = 0;
    if (state(device, link, &active) != kOk) continue;
    gpu.links_up = gpu.links_up.value_or(0) + (active != 0);
    gpu.links_down = gpu.links_down.value_or(0) + (active == 0);
    unsigned long long count = 0;
    if (errors(device, link, kLinkRecovery, &count) != kOk) continue;
    gpu.link_recoveries = gpu.link_recoveries.value_or(0) + static_cast<int64_t>(count);
  }
}

std::optional<GpuRecovery> read_recovery(const Library& library, Device device) {
  FieldValue value{.id = kRecoveryField};
  const int told =
      Function<Device, int, FieldValue*>(library, "nvmlDeviceGetFieldValues")(device, 1, &value);
  const bool known = told == kOk && value.result == kOk &&
                     value.number <= static_cast<unsigned>(GpuRecovery::DrainAndReset);
  return known ? std::optional(static_cast<GpuRecovery>(value.number)) : std::nullopt;
}

GpuFacts read_gpu(const Library& library, Device device, int index) {
  GpuFacts gpu{.index = index};
  unsigned long long errors = 0;
  const int told = Function<Device, int, int, unsigned long long*>(
      library, "nvmlDeviceGetTotalEccErrors")(device, kUncorrected, kVolatile, &errors);
  if (told == kOk) gpu.uncorrected = static_cast<int64_t>(errors);
  gpu.lost = told == kGpuIsLost;
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  const int remapped = Function<Device, unsigned*, unsigned*, unsigned*, unsigned*>(
      library, "nvmlDeviceGetRemappedRows")(device, &corrected, &uncorrected, &pending, &failed);
  if (remapped == kOk) {
    gpu.remap_pending = pending != 0;
    gpu.remap_failed = failed != 0;
  }
  gpu.lost |= remapped == kGpuIsLost;
  gpu.recovery = read_recovery(library, device);
  read_links(library, device, gpu);
  return gpu;
}

}  // namespace

struct Nvml::State {
  std::string name;
  Library library{nullptr, dlclose};
  bool begun = false, listens = false;
  EventSet events = nullptr;
  std::map<int, std::set<int>> xids;             ///< [GPU]
  std::map<int, int64_t> link_recoveries_first;  ///< [GPU]: count at the first look

  void listen(Device device);
  void hear();
  void add_history(GpuFacts& gpu);
};

void Nvml::State::listen(Device device) {
  if (events == nullptr) {
    const int made = Function<EventSet*>(library, "nvmlEventSetCreate")(&events);
    if (made != kOk) events = nullptr;
  }
  if (events == nullptr) return;
  Function<Device, unsigned long long, EventSet>(library, "nvmlDeviceRegisterEvents")(
      device, kXidEvents, events);
}

/// Receives the events since the last call.
void Nvml::State::hear() {
  if (events == nullptr) return;
  const Function<EventSet, EventData*, unsigned> wait(library, "nvmlEventSetWait_v2");
  const Function<Device, unsigned*> index_of(library, "nvmlDeviceGetIndex");
  EventData event;
  for (int i = 0; i < kEventsTaken && wait(events, &event, 0) == kOk; ++i) {
    unsigned index = 0;
    if (event.type != kXidEvents || index_of(event.device, &index) != kOk) continue;
    xids[static_cast<int>(index)].insert(static_cast<int>(event.data));
  }
}

void Nvml::State::add_history(GpuFacts& gpu) {
  if (const auto told = xids.find(gpu.index); told != xids.end()) gpu.xids = told->second;
  if (!gpu.link_recoveries) return;
  const auto [first, none] = link_recoveries_first.try_emplace(gpu.index, *gpu.link_recoveries);
  if (*gpu.link_recoveries < first->second) first->second = 0;  // the GPU was reset
  *gpu.link_recoveries -= first->second;
}

Nvml::Nvml(std::string library) : state_(std::make_unique<State>()) {
  state_->name = std::move(library);
}

Nvml::~Nvml() {
  if (state_->events) Function<EventSet>(state_->library, "nvmlEventSetFree")(state_->events);
  if (state_->begun) Function<>(state_->library, "nvmlShutdown")();
}

std::optional<DriverFacts> Nvml::read() {
  State& s = *state_;
  if (!s.library) s.library.reset(dlopen(s.name.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!s.library) return std::nullopt;
  DriverFacts facts;
  if (!s.begun) {
    const int begun = Function<>(s.library, "nvmlInit_v2")();
    if (begun != kOk) {
      facts.problem = why(s.library, begun);
      return facts;
    }
    s.begun = true;
  }
  char version[96] = "";
  if (Function<char*, unsigned>(s.library, "nvmlSystemGetDriverVersion")(version, sizeof version) ==
      kOk) {
    facts.version = version;
  }
  s.hear();
  unsigned count = 0;
  const int counted = Function<unsigned*>(s.library, "nvmlDeviceGetCount_v2")(&count);
  if (counted != kOk) facts.problem = why(s.library, counted);
  const Function<unsigned, Device*> by_index(s.library, "nvmlDeviceGetHandleByIndex_v2");
  for (unsigned i = 0; counted == kOk && i < count; ++i) {
    Device device = nullptr;
    const int found = by_index(i, &device);
    GpuFacts gpu{.index = static_cast<int>(i), .lost = found == kGpuIsLost};
    if (found != kOk && !gpu.lost) continue;
    if (found == kOk) {
      if (!s.listens) s.listen(device);
      gpu = read_gpu(s.library, device, gpu.index);
    }
    s.add_history(gpu);
    facts.gpus.push_back(std::move(gpu));
  }
  s.listens |= counted == kOk;
  return facts;
}

}  // namespace dsj::agent
