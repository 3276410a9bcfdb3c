#include "tests/engine/simulated/late_queues.h"

#include <sys/mman.h>

#include <cstdlib>

namespace dsj::simulated {
namespace {

struct News {
  std::mutex mutex;
  std::condition_variable changed;
  uint64_t count = 0;
};
News& all_news() {
  static auto* instance = new News;
  return *instance;
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

void LateQueues::forget_counts() {
  const Lock lock(mutex_);
  stops_ = reads_ = host_waits_ = 0;
  beside_ = {};
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

/// On CUDA a thread begins with GPU 0. Work on another one gives the process a context on GPU 0, too.
void LateQueues::expect_own() {
  const int index = here_of_thread().index;
  if (index == index_) return;
  const Lock lock(mutex_);
  tell("a thread uses a device that it has not made its own", place_here("here"),
       std::make_shared<const std::function<std::string()>>([index, own = index_] {
         return "its own is " + std::to_string(index) + ", the device's number " +
                std::to_string(own);
       }));
}

void LateQueues::enqueue(int stream, const std::string& name, const std::vector<Touch>& touches,
                         Item item) {
  expect_own();
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
  expect_own();
  const Lock lock(mutex_);
  auto event = std::make_shared<Happened>();
  event->queues = this;
  event->stream = stream;
  event->clock = tails_[static_cast<size_t>(stream)];
  event->clock.join(here());
  queues_[static_cast<size_t>(stream)].push_back({.run = [event] { event->done = true; }});
  return event;
}

void LateQueues::hold(int stream, const HappenedPtr& event) {
  expect_own();
  const Lock lock(mutex_);
  if (left_out_now("hold")) return;
  Clock& tail = tails_[static_cast<size_t>(stream)];
  if (stream == kComputeStream && event->stream != stream) {
    int64_t& most = beside_[static_cast<size_t>(event->stream)];
    most = std::max(
        most, static_cast<int64_t>(tail.done[kComputeStream] - event->clock.done[kComputeStream]));
  }
  tail.join(event->clock);
  queues_[static_cast<size_t>(stream)].push_back({.waits_for = event});
}

void LateQueues::wait(const HappenedPtr& event, bool asked) {
  expect_own();
  Lock lock(mutex_);
  host_waits_ += asked;
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
  expect_own();
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

// ---- for the device

void submit(LateQueues& queues, const std::string& name, std::vector<Touch> touches,
            std::function<void()> run) {
  queues.enqueue(here_of_thread().stream, name, touches, {.run = std::move(run)});
}
void wait_for_stream(LateQueues& queues) {
  queues.stop(here_of_thread().stream);
}

}  // namespace dsj::simulated
