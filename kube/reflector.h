// Keeps a sink in step with a collection: lists it in pages, watches it, lists again when the
// server has forgotten the version. Blocks its thread in run() until cancelled.
#pragma once

#include <functional>

#include "kube/client.h"
#include "kube/watch.h"

namespace dsj::kube {

/// Called on the reflector's thread, in the server's order. Whoever implements it keeps of an
/// object only what it needs.
class Sink {
 public:
  virtual ~Sink() = default;
  /// A list begins: the objects that come before list_done() are all there are.
  virtual void list_begin() = 0;
  virtual void listed(const Json& object) = 0;
  virtual void list_done() = 0;
  /// The list broke off: what came since list_begin() is void.
  virtual void list_aborted() = 0;
  virtual void upserted(const Json& object) = 0;
  virtual void deleted(const Json& object) = 0;
};

struct ReflectorOptions {
  std::string ns;
  ListOptions select;
  std::chrono::seconds server_timeout{300};  ///< the server ends a watch in good order after it
  Milliseconds idle{90'000};                 ///< without even a bookmark: the connection is dead
  std::function<void(const ApiError&)> on_failure = {};  ///< for logs and counters
};

class Reflector {
 public:
  Reflector(Client& client, Clock& clock, Resource resource, ReflectorOptions options, Sink& sink)
      : client_(client),
        clock_(clock),
        resource_(std::move(resource)),
        options_(std::move(options)),
        sink_(sink) {}

  void run(const Cancel& cancel);

 private:
  void list(const Cancel& cancel);
  void watch(const std::string& version, const Cancel& cancel);
  std::optional<ApiError> consume(LineStream& lines, const Cancel& cancel);
  void report(const ApiError& error) const;

  Client& client_;
  Clock& clock_;
  const Resource resource_;
  const ReflectorOptions options_;
  Sink& sink_;
  WatchMachine machine_;
};

}  // namespace dsj::kube
