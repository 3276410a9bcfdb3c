// Keeps a sink in sync with a collection: lists it in pages, watches it, and lists again if the
// server no longer has the version. run() blocks its thread until cancelled.
#pragma once

#include <functional>

#include "kube/client.h"
#include "kube/watch.h"

namespace dsj::kube {

/// Called on the reflector's thread, in the server's order. An implementation should store only the
/// parts of an object that it needs.
class Sink {
 public:
  virtual ~Sink() = default;
  /// A list begins. All existing objects follow before list_done().
  virtual void list_begin() = 0;
  virtual void listed(const Json& object) = 0;
  /// The version of the whole list, right before list_done(): objects written up to it and not in
  /// the list are gone; the watch reports later ones. False: the sink had newer state and has
  /// discarded it: list again.
  virtual bool list_at(const std::string& /*version*/) { return true; }
  virtual void list_done() = 0;
  /// The list failed: discard what came since list_begin().
  virtual void list_aborted() = 0;
  virtual void upserted(const Json& object) = 0;
  virtual void deleted(const Json& object) = 0;
};

struct ReflectorOptions {
  std::string ns;
  ListOptions select;
  std::chrono::seconds server_timeout{300};  ///< the server then ends a watch normally
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
