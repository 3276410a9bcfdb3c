// The objects that the watches reported, reduced to the fields that decisions need, grouped by job.
// Pods that belong to no job are not cached: the watches select by label. Thread-safe: reflectors
// write on their threads, workers read.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "kube/reflector.h"
#include "operator/observe/observed.h"
#include "operator/observe/writes.h"

namespace dsj::op {

/// "NAMESPACE/NAME" of a job.
std::string key_of(const std::string& ns, const std::string& name);
std::pair<std::string, std::string> split_key(const std::string& key);

/// More pods of a job than these are not followed when they leave the watch.
inline constexpr size_t kStrayedMax = 16;

class Cache final : public Writes {
 public:
  /// `changed` is called with the key of every job that may need a pass. It must not call back into
  /// the cache.
  explicit Cache(std::function<void(const std::string&)> changed);
  ~Cache() override;

  /// The sink for one collection: a kind in one namespace, or in all if `ns` is "". A new list
  /// removes every object that it lacks, also those that wrote() added. Call before any watch
  /// begins.
  kube::Sink& sink(const std::string& kind, const std::string& ns = "");
  /// True once every sink has received its first list.
  bool synced() const;

  /// The view of one job. The controller fills in verdicts, refusal, keys and settings.
  Observed observe(const std::string& key) const;
  /// Whether a decision based on this view is still valid: the job was neither edited nor deleted
  /// since.
  bool is_current(const JobView& job) const;
  std::vector<std::string> keys() const;
  size_t jobs() const;
  size_t pods() const;
  std::map<std::string, int64_t> phases() const;

  /// Stores the server's answer to one of our writes. Ignored unless it is newer than what the
  /// watch delivered.
  void wrote(const std::string& kind, const Json& object) override;
  void absent(const std::string& kind, const std::string& ns, const std::string& name,
              const std::string& uid) override;
  /// Removes a job after the server answered that it does not exist.
  void forget_job(const std::string& key);
  /// Forgets that a pod left the watch (observed.h): the server has it no longer.
  void forget_strayed(const std::string& key, const std::string& pod);

 private:
  struct Entry {
    std::optional<JobView> job;
    std::map<std::string, PodView> pods;
    std::map<std::string, ChildView> children;
    std::set<std::string> strayed;
    bool empty() const { return !job && pods.empty() && children.empty(); }
  };
  class KindSink;

  void upsert(const std::string& kind, const Json& object);
  std::optional<std::string> put(const std::string& kind, const Json& object);
  template <typename IsIt>
  static bool erase(Entry& entry, const std::string& kind, const std::string& name,
                    const IsIt& is_it);
  void remove(const std::string& kind, const Json& object);
  std::map<std::string, std::string> names(const std::string& kind, const std::string& ns) const;
  std::string newer_than(const std::string& kind, const Json& object) const;
  void forget_versions(const std::string& kind, const std::string& ns);
  void drop(const std::string& kind, const std::string& ns_and_name, const std::string& version);
  void upsert_node(const Json& object);
  void tell_node(const std::string& node);

  const std::function<void(const std::string&)> changed_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, NodeView> nodes_;
  std::vector<std::unique_ptr<KindSink>> sinks_;
};

}  // namespace dsj::op
