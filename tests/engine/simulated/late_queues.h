// The streams of a late device: what is queued, in which order it runs, what orders it. Internal to
// the simulated device.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/simulated/order.h"

namespace dsj::simulated {

class LateQueues;

/// Bytes that an operation reads or writes.
struct Touch {
  const void* begin = nullptr;
  size_t bytes = 0;
  bool writes = false;
};

/// An event, each time that it is recorded.
struct Happened {
  LateQueues* queues = nullptr;
  int stream = 0;
  Clock clock;
  std::atomic<bool> done{false};
};
using HappenedPtr = std::shared_ptr<Happened>;

/// Something that runs when its stream's turn comes.
struct Item {
  std::function<bool()> ready = {};  ///< empty: always. May do a part of the work
  std::function<void()> run = {};
  HappenedPtr waits_for = {};
  std::vector<const char*> host_blocks = {};  ///< that it touches
};

class LateQueues {
 public:
  LateQueues(int index, uint64_t seed);
  ~LateQueues();
  int index() const { return index_; }

  void enqueue(int stream, const std::string& name, const std::vector<Touch>& touches, Item item);
  HappenedPtr record(int stream);
  void hold(int stream, const HappenedPtr& event);
  /// `asked`: by the engine, so that it may be left out.
  void wait(const HappenedPtr& event, bool asked = true);
  bool query(const Happened& event);
  void drain();

  void* allocate(size_t bytes, int stream);
  void free(void* block);
  void add_host(void* block, size_t bytes);
  void remove_host(void* block);
  bool is_host(const void* at);
  /// The host touched page-locked memory that it must not touch. False: it is not ours.
  bool host_touched(void* at);

  void reseed(uint64_t seed);
  void run_at_once() { chance_ = 1; }
  std::vector<std::string> findings() const;
  void leave_out(int64_t n);
  int64_t waits() const { return waits_; }
  std::string left_out() const { return left_out_; }
  void stop(int stream) { ++stops_, wait(record(stream), /*asked=*/false); }
  int64_t stops() const { return stops_; }
  void count_read() { ++reads_; }
  int64_t reads() const { return reads_; }
  int64_t host_waits() const { return host_waits_; }
  int64_t beside(int stream) const { return beside_[static_cast<size_t>(stream)]; }
  void forget_counts();

 private:
  using Lock = std::unique_lock<std::recursive_mutex>;
  Clock& here() { return hosts_[std::this_thread::get_id()]; }
  void expect_own();
  bool left_out_now(const char* what);
  bool step();
  void run(Item& item);
  void by_chance();
  void protect(Block& block);
  void protect_all();
  void tell(const std::string& what, const Place& first, const Place& second);

  const int index_;
  mutable std::recursive_mutex mutex_;
  std::mt19937_64 random_;
  double chance_ = 0;
  std::array<double, kStreams> weights_{};
  std::array<std::deque<Item>, kStreams> queues_;
  std::array<Clock, kStreams> tails_{};
  std::map<std::thread::id, Clock> hosts_;
  const std::thread::id owner_ = std::this_thread::get_id();
  Order order_;
  std::map<std::pair<int, size_t>, std::vector<void*>> free_;  ///< by stream and bytes
  std::vector<void*> all_;
  std::set<Block*> host_blocks_;
  std::map<Block*, int> protected_;
  std::vector<std::string> findings_;
  int64_t leave_out_ = -1, waits_ = 0;
  std::atomic<int64_t> stops_ = 0, reads_ = 0, host_waits_ = 0;
  std::array<int64_t, kStreams> beside_{};
  std::string left_out_;
};

/// What the calling thread works on.
struct Here {
  LateQueues* queues = nullptr;
  int index = 0, stream = 0;
};
Here& here_of_thread();

/// The place that calls: `name`, and the function of the engine that it serves.
Place place_here(std::string name);

/// The calling thread's late device; null: everything runs at once.
LateQueues* queues_here();
/// Queues `run` on the calling thread's stream.
void submit(LateQueues& queues, const std::string& name, std::vector<Touch> touches,
            std::function<void()> run);
/// The host waits for the calling thread's stream.
void wait_for_stream(LateQueues& queues);
at::DataPtr allocate(LateQueues& queues, size_t bytes);

/// Page-locked memory of this process, whoever uses it.
struct Pages {
  std::mutex mutex;
  std::map<void*, size_t> bytes;
};
Pages& all_pages();
bool is_page_locked(LateQueues& queues, const void* at);

/// Wakes a device that waits for another rank. `seen`: what news() gave before.
uint64_t news();
void tell_news();
/// False: nothing came in a long time.
bool wait_for_news(uint64_t seen);

}  // namespace dsj::simulated
