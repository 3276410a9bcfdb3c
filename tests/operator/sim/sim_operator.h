// One operator process in the simulation: its caches filled by the pure watch machine, its
// controller stepped by hand, its requests through a transport that fails, kills and lags.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "kube/lease.h"
#include "kube/watch.h"
#include "operator/observe/pace.h"
#include "operator/serve/controller.h"
#include "tests/operator/sim/bugs.h"
#include "tests/operator/sim/chance.h"
#include "tests/operator/sim/clock.h"

namespace dsj::op::sim {

struct ApiFaults {
  double refuse = 0;  ///< 429, 500, 503 or a conflict out of nowhere
  double lose_request = 0;
  double lose_answer = 0;                  ///< carried out, no answer
  double kill_before = 0, kill_after = 0;  ///< of the process, around a write
  double kill_after_key = 0;  ///< around a Secret instead: no pod has its authority yet
};

/// The process died at a request.
struct Killed {};

class FaultyTransport final : public kube::Transport {
 public:
  FaultyTransport(kube::Transport& inner, Chance& chance, const Bug* bug)
      : inner_(inner), chance_(chance), bug_(bug) {}
  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel& cancel) override;
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request& request,
                                                           const kube::Cancel& cancel) override;
  ApiFaults faults;
  /// No request arrives.
  bool cut = false;
  /// Reflectors and other threads of the process run while a pass writes.
  std::function<void()> meanwhile;
  int64_t conflicts = 0;
  /// Kills at the n-th write from now, before or after it; negative: never.
  int kill_at_write = -1;
  bool kill_after_it = false;
  int64_t writes = 0;
  std::function<void(const kube::Request&)> watch_writes;

 private:
  kube::Transport& inner_;
  Chance& chance_;
  const Bug* bug_;
};

class SimOperator {
 public:
  SimOperator(kube::Transport& server, SimClock& clock, Chance& chance, const Bug* bug,
              std::string default_template = "");
  ~SimOperator();

  /// Takes in what the watches have and works off the queue. Throws Killed.
  void turn();
  /// The cache without the controller, as a standby.
  void look();
  /// From now on it leads only while it holds the Lease.
  void take_part_in_election(const std::string& identity);
  bool may_write() const;
  /// A pass of it failed, and its next try is to come.
  bool will_try_again() const { return may_write() && queue_.failing() > 0; }
  /// All its watches are open: none waits for its next try, and none is in the middle of a list.
  bool listens() const;
  /// Its cache has the job at this version, and as many pods of it.
  bool has_seen(const std::string& key, const std::string& version, size_t pods) const {
    const Observed observed = cache_.observe(key);
    return observed.job && observed.job->resource_version == version &&
           observed.pods.size() == pods;
  }

  bool leads = true;
  bool deaf = false;  ///< its watches bring nothing
  /// The watches of different kinds lag behind each other, and lists come piece by piece, as on
  /// threads of their own.
  bool scattered = false;
  Milliseconds cut_until{0};  ///< none of its requests arrive before
  Milliseconds skew{0};       ///< of its clock
  FaultyTransport transport;
  std::vector<std::string> told;  ///< events
  std::function<void(const JobView&, const Event&)> watch_events;

 private:
  struct Watching {
    kube::Resource resource;
    kube::Sink* sink;
    kube::WatchMachine machine;
    std::unique_ptr<kube::LineStream> lines;
    Milliseconds not_before{0};
    struct Listing {
      std::vector<Json> items;
      size_t next = 0;
      std::string version;
    };
    std::optional<Listing> listing;
  };
  class PlantedSink;
  class PlantedWrites;
  struct Sink final : EventSink {
    explicit Sink(SimOperator& op) : op_(op) {}
    void tell(const JobView& job, const Event& event) override {
      op_.told.push_back(event.type + " " + event.reason);
      if (op_.watch_events) op_.watch_events(job, event);
    }
    SimOperator& op_;
  };

  void changed(const std::string& key);
  kube::Sink* sink_of(const kube::Resource& resource);
  ControllerOptions options();
  CarryOut carry_out();
  void crew(int at_once, const ClaimTask& claim, const CarryTask& carry);
  void pump(Watching& watching);
  void list(Watching& watching);
  bool deliver(Watching& watching);
  void elect();
  bool read(Watching& watching);

  const std::string default_template_;
  SimClock& clock_;
  Chance& chance_;
  const Bug bug_;
  kube::Client client_;
  Queue queue_;
  Cache cache_;
  Sink events_;
  Watcher watcher_;
  std::map<std::string, kube::Sink*> sinks_;  ///< the cache's own, by kind
  std::vector<std::unique_ptr<PlantedSink>> planted_;
  std::unique_ptr<PlantedWrites> writes_;
  Controller controller_;
  std::vector<Watching> watches_;
  bool in_pass_ = false;
  kube::LeaseOptions lease_;
  std::optional<kube::Election> election_;
  Milliseconds elects_at_{0};
};

}  // namespace dsj::op::sim
