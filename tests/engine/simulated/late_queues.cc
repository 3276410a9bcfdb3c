#include "tests/engine/simulated/late_queues.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace dsj::simulated {
namespace {

constexpr auto kKind = at::DeviceType::PrivateUse1;

struct News {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t count = 0;
};
News& all_news() {
  static auto* instance = new News;
  return *instance;
}

/// "dsj::zero::Flat::release()", or "" for what is no function of the engine's own.
std::string engine_function(void* frame) {
  Dl_info info{};
  void* extra = nullptr;
  auto* const at = static_cast<char*>(frame) - 1;
  if (dladdr1(at, &info, &extra, RTLD_DL_SYMENT) == 0 || info.dli_sname == nullptr) return {};
  const auto* symbol = static_cast<const ElfW(Sym)*>(extra);
  if (at >= static_cast<char*>(info.dli_saddr) + symbol->st_size) return {};
  int status = 0;
  char* const shown = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  std::string name = status == 0 ? shown : "";
  std::free(shown);
  name.resize(std::min(name.size(), name.find('(')));
  if (!name.starts_with("dsj::")) return {};
  for (const char* inner : {"dsj::simulated::", "dsj::device::"})
    if (name.starts_with(inner)) return {};
  return name;
}

}  // namespace

uint64_t news() {
  const std::lock_guard lock(all_news().mutex);
  return all_news().count;
}
void tell_news() {
  const std::lock_guard lock(all_news().mutex);
  ++all_news().count;
  all_news().changed.notify_all();
}
bool wait_for_news(uint64_t seen) {
  std::unique_lock lock(all_news().mutex);
  return all_news().changed.wait_for(lock, std::chrono::minutes(5),
                                     [&] { return all_news().count != seen; });
}

Here& here_of_thread() {
  thread_local Here here;
  return here;
}

LateQueues* queues_here() {
  return here_of_thread().queues;
}
Pages& all_pages() {
  static auto* instance = new Pages;
  return *instance;
}

Place place_here(std::string name) {
  std::array<void*, 20> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  return std::make_shared<const std::function<std::string()>>(
      [name = std::move(name), frames, count] {
        std::string shown = name;
        int told = 0;
        for (int i = 0; i < count && told < 2; ++i) {
          const std::string function = engine_function(frames[static_cast<size_t>(i)]);
          if (!function.empty()) shown += (told++ == 0 ? " in " : " of ") + function;
        }
        return shown;
      });
}

LateQueues::LateQueues(int index, uint64_t seed)
    : index_(index),
      order_([this](const std::string& what, const Place& first, const Place& second) {
        tell(what, first, second);
      }) {
  reseed(seed);
}

LateQueues::~LateQueues() {
  drain();
  for (void* block : all_) std::free(block);
}

void LateQueues::reseed(uint64_t seed) {
  const Lock lock(mutex_);
  random_.seed(seed);
  constexpr std::array kChances = {0.0, 0.05, 0.5, 0.95};
  chance_ = kChances[random_() % kChances.size()];
  for (double& weight : weights_) weight = random_() % 2 == 0 ? 1 : 0.02;
}

void LateQueues::tell(const std::string& what, const Place& first, const Place& second) {
  const std::string text = what + ": " + (*first)() + " | " + (*second)();
  if (std::ranges::find(findings_, text) == findings_.end()) findings_.push_back(text);
}

std::vector<std::string> LateQueues::findings() const {
  const Lock lock(mutex_);
  return findings_;
}

void LateQueues::leave_out(int64_t n) {
  const Lock lock(mutex_);
  leave_out_ = n;
  waits_ = 0;
  left_out_.clear();
}

bool LateQueues::left_out_now(const char* what) {
  if (waits_++ != leave_out_) return false;
  left_out_ = (*place_here(what))();
  return true;
}

void LateQueues::enqueue(int stream, const std::string& name, const std::vector<Touch>& touches,
                         Item item) {
  const Lock lock(mutex_);
  Clock& clock = tails_[static_cast<size_t>(stream)];
  clock.join(here());
  const uint64_t number = ++clock.done[static_cast<size_t>(stream)];
  const Place place = place_here(name);
  for (const Touch& touch : touches) {
    Block* const block = touch.bytes > 0 ? order_.find(touch.begin) : nullptr;
    if (!block) continue;
    const auto* begin = static_cast<const char*>(touch.begin);
    order_.touch(*block, {begin, begin + touch.bytes, touch.writes, stream, number, place}, clock);
    if (!block->host) continue;
    item.host_blocks.push_back(block->begin);
    protect(*block);
  }
  queues_[static_cast<size_t>(stream)].push_back(std::move(item));
  by_chance();
}

HappenedPtr LateQueues::record(int stream) {
  const Lock lock(mutex_);
  auto event = std::make_shared<Happened>();
  event->queues = this;
  event->clock = tails_[static_cast<size_t>(stream)];
  event->clock.join(here());
  queues_[static_cast<size_t>(stream)].push_back({.run = [event] { event->done = true; }});
  return event;
}

void LateQueues::hold(int stream, const HappenedPtr& event) {
  const Lock lock(mutex_);
  if (left_out_now("hold")) return;
  tails_[static_cast<size_t>(stream)].join(event->clock);
  queues_[static_cast<size_t>(stream)].push_back({.waits_for = event});
}

void LateQueues::wait(const HappenedPtr& event, bool asked) {
  Lock lock(mutex_);
  if (asked && left_out_now("wait of the host")) return;
  while (!event->done) {
    const uint64_t seen = news();
    if (step()) continue;
    lock.unlock();
    const bool came = wait_for_news(seen);
    lock.lock();
    if (!came) throw std::runtime_error("the simulated device is stuck: a wait that never ends");
  }
  here().join(event->clock);
  protect_all();
}

bool LateQueues::query(const Happened& event) {
  if (!event.done) return false;
  const Lock lock(mutex_);
  here().join(event.clock);
  protect_all();
  return true;
}

void LateQueues::drain() {
  for (int stream = 0; stream < kStreams; ++stream) {
    wait(record(stream), /*asked=*/false);
  }
}

bool LateQueues::step() {
  std::array<double, kStreams> weights{};
  double sum = 0;
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i].empty()) continue;
    Item& front = queues_[i].front();
    if (front.waits_for && !front.waits_for->done) continue;
    if (front.ready && !front.ready()) continue;
    sum += weights[i] = weights_[i];
  }
  if (sum == 0) return false;
  double at = std::uniform_real_distribution<double>(0, sum)(random_);
  size_t chosen = 0;
  while (weights[chosen] == 0 || (at -= weights[chosen]) > 0) {
    if (++chosen < weights.size()) continue;
    for (chosen = 0; weights[chosen] == 0;) ++chosen;  // rounding
    break;
  }
  Item item = std::move(queues_[chosen].front());
  queues_[chosen].pop_front();
  run(item);
  return true;
}

void LateQueues::run(Item& item) {
  if (!item.run) return;
  for (const char* begin : item.host_blocks)
    if (const Block* block = order_.find(begin))
      mprotect(const_cast<char*>(begin), size_t(block->end - begin), PROT_READ | PROT_WRITE);
  item.run();
  for (const char* begin : item.host_blocks) {
    Block* const block = order_.find(begin);
    if (!block) continue;
    protected_.erase(block);
    protect(*block);
  }
}

void LateQueues::by_chance() {
  while (std::uniform_real_distribution<double>(0, 1)(random_) < chance_ && step()) {
  }
}

// ---- memory

void* LateQueues::allocate(size_t bytes, int stream) {
  const Lock lock(mutex_);
  auto& kept = free_[{stream, bytes}];
  void* block = nullptr;
  if (!kept.empty()) {
    block = kept.back();
    kept.pop_back();
    Block* const known = order_.find(block);
    known->live = true;
  } else {
    block = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    std::memset(block, 0xFF, bytes);  // NaN in every type
    all_.push_back(block);
    order_.add(static_cast<const char*>(block), bytes, stream, false);
  }
  c10::reportMemoryUsageToProfiler(block, static_cast<int64_t>(bytes), 0, 0,
                                   {at::DeviceType::PrivateUse1, at::DeviceIndex(index_)});
  return block;
}

void LateQueues::free(void* data) {
  const Lock lock(mutex_);
  Block& block = *order_.find(data);
  const auto bytes = static_cast<size_t>(block.end - block.begin);
  c10::reportMemoryUsageToProfiler(data, -static_cast<int64_t>(bytes), 0, 0,
                                   {at::DeviceType::PrivateUse1, at::DeviceIndex(index_)});
  order_.free(block, tails_[static_cast<size_t>(block.stream)], here(), place_here("free"));
  free_[{block.stream, bytes}].push_back(data);
}

void LateQueues::add_host(void* data, size_t bytes) {
  const Lock lock(mutex_);
  host_blocks_.insert(&order_.add(static_cast<const char*>(data), bytes, 0, true));
}

void LateQueues::remove_host(void* data) {
  const Lock lock(mutex_);
  Block* const block = order_.find(data);
  if (const Access* access = order_.pending(*block, hosts_[owner_]))
    tell("page-locked memory is freed while a copy is pending", access->place, place_here("free"));
  mprotect(data, size_t(block->end - block->begin), PROT_READ | PROT_WRITE);
  host_blocks_.erase(block);
  protected_.erase(block);
  order_.forget(static_cast<const char*>(data));
}

bool LateQueues::is_host(const void* at) {
  const Lock lock(mutex_);
  const Block* const block = order_.find(at);
  return block && block->host;
}

void LateQueues::protect(Block& block) {
  const Access* const access = order_.pending(block, hosts_[owner_]);
  const int allowed = !access ? PROT_READ | PROT_WRITE : access->writes ? PROT_NONE : PROT_READ;
  const auto known = protected_.find(&block);
  const int before = known == protected_.end() ? -1 : known->second;
  if (before == allowed) return;
  mprotect(const_cast<char*>(block.begin), size_t(block.end - block.begin), allowed);
  protected_[&block] = allowed;
}

void LateQueues::protect_all() {
  if (std::this_thread::get_id() != owner_) return;
  for (Block* block : host_blocks_) protect(*block);
}

bool LateQueues::host_touched(void* at) {
  const Lock lock(mutex_);
  Block* const block = order_.find(at);
  if (!block || !block->host) return false;
  const Access* const access = order_.pending(*block, hosts_[owner_]);
  if (!access) return false;
  tell(access->writes ? "the host touches a value before it is there"
                      : "the host writes what a copy has yet to read",
       access->place, place_here("host"));
  mprotect(const_cast<char*>(block->begin), size_t(block->end - block->begin),
           PROT_READ | PROT_WRITE);
  protected_[block] = PROT_READ | PROT_WRITE;
  return true;
}

// ---- for the device

void submit(LateQueues& queues, const std::string& name, std::vector<Touch> touches,
            std::function<void()> run) {
  queues.enqueue(here_of_thread().stream, name, touches, {.run = std::move(run)});
}
void wait_for_stream(LateQueues& queues) {
  queues.wait(queues.record(here_of_thread().stream), /*asked=*/false);
}
bool is_page_locked(LateQueues& queues, const void* at) {
  if (queues.is_host(at)) return true;
  const std::lock_guard lock(all_pages().mutex);
  const auto after = all_pages().bytes.upper_bound(const_cast<void*>(at));
  if (after == all_pages().bytes.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  if (static_cast<const char*>(at) >= static_cast<const char*>(begin) + bytes) return false;
  queues.add_host(begin, bytes);  // kept by the engine from an earlier device
  return true;
}

namespace {
struct Owner {
  LateQueues* queues;
  void* block;
};
}  // namespace

at::DataPtr allocate(LateQueues& queues, size_t bytes) {
  const at::Device place(kKind, static_cast<at::DeviceIndex>(queues.index()));
  if (bytes == 0) return {nullptr, place};
  void* const block = queues.allocate(bytes, here_of_thread().stream);
  return {block, new Owner{&queues, block},
          [](void* context) {
            const std::unique_ptr<Owner> owner(static_cast<Owner*>(context));
            owner->queues->free(owner->block);
          },
          place};
}

}  // namespace dsj::simulated
