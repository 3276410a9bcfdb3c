// An API server in memory, as a Transport: resourceVersions, conflicts, server-side apply with
// field owners, status subresources, finalizers, pages, tables, watches with bookmarks and a
// bounded history, logs of pods; and the faults of the world. The contract cases (contract_cases.h)
// run against it and against a real server. Thread-safe.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "kube/client.h"

namespace dsj::kube::testing {

/// What befalls a request.
struct Fault {
  enum class Kind {
    None,
    Refuse,      ///< answered with `status` (and Retry-After), nothing is done
    LoseAnswer,  ///< carried out, but the connection ends before the answer
    LoseRequest  ///< the connection ends before anything is done
  } kind = Kind::None;
  int status = 503;
  int retry_after_seconds = 0;
};

class FakeApiServer final : public Transport {
 public:
  FakeApiServer();

  std::expected<Response, NetError> call(const Request& request, const Cancel& cancel) override;
  std::expected<StreamResponse, NetError> open(const Request& request,
                                               const Cancel& cancel) override;

  /// A kind that objects can be made of; `status`: it has the status subresource. Creating a
  /// CustomResourceDefinition serves its kind, too.
  void serve(const Resource& resource, bool status);

  // ---- the world
  /// Asked before every request; a watch's opening, too.
  void set_fault(std::function<Fault(const Request&)> fault);
  /// Changes objects that clients create or replace, as a cluster's policies do.
  void set_admission(std::function<void(Json&)> admit);
  /// What objects are stamped with; without it all are made and deleted at one moment.
  void set_wall(std::function<std::chrono::sys_seconds()> wall);
  /// What GET of the pod's log answers; without one: the container has not started.
  void set_log(const std::string& ns, const std::string& pod, std::vector<std::string> lines);
  /// Ends every open watch, as a server that stops does.
  void cut_watches();
  /// Forgets the history up to now: older versions are Gone.
  void compact();
  void send_bookmarks();
  /// Open watches.
  int watches() const;
  /// Each open watch has told all that has happened and was asked for more.
  bool watches_have_told() const;
  int64_t requests(const std::string& method) const;

  // ---- the truth, past the client
  std::vector<Json> objects(const Resource& resource) const;
  /// The same without copies, for who looks every turn: what changes becomes another object.
  std::vector<std::shared_ptr<const Json>> shown(const Resource& resource) const;
  /// One of them; null: there is none.
  std::shared_ptr<const Json> shown(const Resource& resource, const std::string& ns,
                                    const std::string& name) const;
  /// Changes an object as another client would; the version moves.
  void edit(const Resource& resource, const std::string& ns, const std::string& name,
            const std::function<void(Json&)>& change);
  int64_t version() const;

 private:
  struct Served {
    Resource resource;
    bool status = false;
    Json columns = Json::array();  ///< additionalPrinterColumns
  };
  struct Change {
    int64_t version;
    std::string collection;  ///< of all namespaces
    std::string type;
    std::shared_ptr<const Json> object;
    std::shared_ptr<const Json> before = nullptr;  ///< of a change
  };
  /// What a request's path and query mean.
  struct Target {
    const Served* served = nullptr;
    std::string ns, name, subresource;
    std::map<std::string, std::string> query;
  };
  class Stream;
  class Lines;

  std::optional<Target> target_of(const std::string& path) const;
  Response handle(const Request& request);
  Response list(const Target& target) const;
  Response create(const Target& target, const Json& body);
  Response replace(const Target& target, const Json& body);
  Response patch(const Target& target, const Request& request);
  Response apply(const Target& target, const Json& body, const Json* current);
  void serve_definition(const Json& definition);
  Json table_of(const Served& served, const std::vector<Json>& objects,
                const std::string& version) const;
  std::expected<StreamResponse, NetError> open_log(const Target& target) const;
  Response remove(const Target& target, const Json& body);
  Response store(const Target& target, Json object, const Json* before);
  std::shared_ptr<const Json> find(const Target& target) const;
  void erase(const Target& target);
  void record(const Target& target, const std::string& type, std::shared_ptr<const Json> object,
              std::shared_ptr<const Json> before = nullptr);
  static std::string key(const Target& target);
  std::string stamp(std::chrono::seconds later) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Served> served_;  ///< targets point into it
  /// collection → ns/name → object, which never changes: what it becomes is another.
  std::map<std::string, std::map<std::string, std::shared_ptr<const Json>>> objects_;
  /// Object's key → field manager → paths it owns.
  std::map<std::string, std::map<std::string, std::set<std::string>>> owners_;
  std::deque<Change> history_;
  int64_t version_ = 100, compacted_ = 100, uids_ = 0, bookmark_ = 0, cuts_ = 0;
  int watches_ = 0;
  std::map<const Stream*, int64_t> told_;  ///< the version up to which an open watch has told all
  std::function<Fault(const Request&)> fault_;
  std::function<void(Json&)> admit_;
  std::function<std::chrono::sys_seconds()> wall_;
  std::map<std::string, int64_t> requests_;
  std::map<std::string, std::vector<std::string>> logs_;  ///< ns/pod → lines
};

}  // namespace dsj::kube::testing
