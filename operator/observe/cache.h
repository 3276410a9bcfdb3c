// What the watches have told, slim and per job. Pods of others are not in it: the watches select by
// label. Thread-safe: reflectors write on their threads, workers read.
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

class Cache final : public Writes {
 public:
  /// `changed` is called with the key of every job that may need a pass. It must not call back into
  /// the cache.
  explicit Cache(std::function<void(const std::string&)> changed);
  ~Cache() override;

  /// The sink of one collection: a kind in one namespace, or "" for all. After a new list, what the
  /// list lacks is gone, whoever brought it. Call before any watch begins.
  kube::Sink& sink(const std::string& kind, const std::string& ns = "");
  /// Every sink has been filled once.
  bool synced() const;

  /// Without verdicts, refusal, keys and settings, which the controller fills in.
  Observed observe(const std::string& key) const;
  /// Whether a decision about this view of a job still stands: neither edited nor deleted since.
  bool is_current(const JobView& job) const;
  std::vector<std::string> keys() const;
  size_t jobs() const;
  size_t pods() const;
  std::map<std::string, int64_t> phases() const;

  /// The server's answer to one of our writes. Ignored unless newer than what the watch has told.
  void wrote(const std::string& kind, const Json& object) override;
  void absent(const std::string& kind, const std::string& ns, const std::string& name,
              const std::string& uid) override;
  /// The server says that there is no such job.
  void forget_job(const std::string& key);

 private:
  struct Entry {
    std::optional<JobView> job;
    std::map<std::string, PodView> pods;
    std::map<std::string, ChildView> children;
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
