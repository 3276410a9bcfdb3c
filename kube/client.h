// Typed requests to the API server over a Transport. Retries what is safe to repeat: reads,
// applies, merge patches with a resourceVersion, deletes (NotFound after a retry counts as
// success), and creates if the answer shows that nothing was done (429, 503 with Retry-After) or no
// connection was made. Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kube/api_error.h"
#include "kube/clock.h"
#include "kube/resource.h"

namespace dsj::kube {

using Json = nlohmann::json;

struct ClientOptions {
  int attempts = 5;                      ///< per request
  Milliseconds deadline{60'000};         ///< for a request with all its retries
  Milliseconds request_timeout{30'000};  ///< for one attempt
};

struct ListOptions {
  std::string label_selector;
  std::string field_selector;
  int64_t page = 500;            ///< objects per answer
  std::string resource_version;  ///< "0": from the server's cache; empty: the newest
};

struct DeleteOptions {
  std::optional<int64_t> grace_seconds;  ///< 0: at once, without waiting for the kubelet
  std::string uid;                       ///< delete only this object
  std::string resource_version;          ///< only if it has not changed since
  std::string propagation = "Background";
};

struct ApplyOptions {
  std::string manager;      ///< the field manager
  bool force = true;        ///< takes over fields that another manager owns
  std::string subresource;  ///< "status"
};

/// Options for a container's log.
struct LogOptions {
  std::string container;
  bool follow = false;  ///< the stream continues until the container ends
  bool timestamps = false;
  std::optional<int64_t> tail_lines, since_seconds;
};

class Client {
 public:
  Client(Transport& transport, Clock& clock, ClientOptions options = {})
      : transport_(transport), clock_(clock), options_(options) {}

  ApiResult<Json> get(const Resource& resource, const std::string& ns, const std::string& name,
                      const Cancel& cancel = {});
  /// With metadata.managedFields, which all other answers lack.
  ApiResult<Json> get_with_managers(const Resource& resource, const std::string& ns,
                                    const std::string& name, const Cancel& cancel = {});
  /// Lists page by page. `item` gets each object once and may store a small part of it; a page is
  /// freed before the next request. Returns the resourceVersion to watch from. Gone: the continue
  /// token expired during the list; discard what `item` got.
  ApiResult<std::string> list(const Resource& resource, const std::string& ns,
                              const ListOptions& options,
                              const std::function<void(const Json&)>& item,
                              const Cancel& cancel = {});
  ApiResult<Json> create(const Resource& resource, const std::string& ns, const Json& object,
                         const Cancel& cancel = {});
  /// A dry run of create(): the server checks everything, also for unknown fields, and stores nothing.
  ApiResult<Json> try_create(const Resource& resource, const std::string& ns, const Json& object,
                             const Cancel& cancel = {});
  /// Server-side apply of exactly these fields. Creates the object if it does not exist. With
  /// metadata.uid in `object`: Invalid if another object has the name, Conflict if none has. This
  /// does NOT hold for a status: a server accepts the status of a custom resource with any uid.
  /// There, use metadata.resourceVersion in `object` as the fence: Conflict if the object has
  /// changed since, or is another one.
  ApiResult<Json> apply(const Resource& resource, const std::string& ns, const Json& object,
                        const ApplyOptions& options, const Cancel& cancel = {});
  /// A patch by RFC 7396.
  ApiResult<Json> merge_patch(const Resource& resource, const std::string& ns,
                              const std::string& name, const Json& patch,
                              const std::string& subresource = {}, const Cancel& cancel = {});
  /// Requires the object's metadata.resourceVersion. Conflict if another write came first.
  ApiResult<Json> replace(const Resource& resource, const std::string& ns, const Json& object,
                          const Cancel& cancel = {});
  ApiResult<void> remove(const Resource& resource, const std::string& ns, const std::string& name,
                         const DeleteOptions& options = {}, const Cancel& cancel = {});
  /// Starts a watch; kube/watch.h parses it. Not retried: the reflector decides.
  ApiResult<std::unique_ptr<LineStream>> watch(const Resource& resource, const std::string& ns,
                                               const ListOptions& options,
                                               std::chrono::seconds server_timeout,
                                               const Cancel& cancel);

  /// A meta.k8s.io/v1 Table with the kind's columns, as kubectl shows it: all objects of the
  /// namespace, or the one called `name`.
  ApiResult<Json> table(const Resource& resource, const std::string& ns,
                        const std::string& name = {}, const Cancel& cancel = {});
  /// A watch of such tables, one row each. `version`: from table().
  ApiResult<std::unique_ptr<LineStream>> watch_table(const Resource& resource,
                                                     const std::string& ns, const std::string& name,
                                                     const std::string& version,
                                                     const Cancel& cancel);
  /// The log's lines. Invalid if the container has not started.
  ApiResult<std::unique_ptr<LineStream>> pod_log(const std::string& ns, const std::string& pod,
                                                 const LogOptions& options,
                                                 const Cancel& cancel = {});

  /// The number of requests so far, including retries.
  int64_t requests() const { return requests_; }

 private:
  enum class Repeat { Always, WhenNothingWasDone };
  ApiResult<Json> send(Request request, Repeat repeat, const Cancel& cancel,
                       bool* repeated = nullptr);
  ApiResult<std::unique_ptr<LineStream>> open(Request request, const Cancel& cancel);

  Transport& transport_;
  Clock& clock_;
  const ClientOptions options_;
  std::atomic<int64_t> requests_ = 0;
};

}  // namespace dsj::kube
