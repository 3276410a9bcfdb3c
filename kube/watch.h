// List and watch as a state machine: the next action, given the results so far. Pure: no thread, no
// clock, no connection. kube/reflector.h runs it.
//
//   Listing ──listed──► Watching ──cut or ended by server──► Watching again from the last version
//      ▲                   │
//      └──── 410 Gone ─────┘ (in the stream, in its head, or in a page), or three watches in a row
//                            that the server refused or that had no event: it may not know the
//                            version, as after a restore from a backup
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "kube/api_error.h"
#include "kube/clock.h"

namespace dsj::kube {

/// One line of a watch.
struct WatchEvent {
  enum class Kind { Added, Modified, Deleted, Bookmark, Error } kind = Kind::Bookmark;
  nlohmann::json object;
};

/// Errors: BadInput if the line is not an event.
Result<WatchEvent> parse_watch_event(const std::string& line);

class WatchMachine {
 public:
  struct List {};
  struct Watch {
    std::string resource_version;
  };
  struct Wait {
    Milliseconds time{0};
  };
  using Next = std::variant<List, Watch, Wait>;

  /// The next action. After a Wait, call again.
  Next next();

  /// The whole list was read; the watch begins at `version`.
  void listed(std::string version);
  void list_failed(const ApiError& error, double random);
  /// The stream is open.
  void opened();
  void open_failed(const ApiError& error, double random);
  /// An event of the stream other than an Error event: advances the version.
  void saw(const std::string& version);
  /// The stream ended: normally (no error), by an Error event, cut off, or silent for too long.
  void ended(const std::optional<ApiError>& error, double random);

  /// Whether the listed state is still valid; false before the first list.
  bool synced() const { return synced_; }
  int failures() const { return failures_; }

 private:
  void failed(const ApiError& error, double random);
  void brought_nothing();
  enum class Phase { Listing, Watching } phase_ = Phase::Listing;
  std::string version_;
  Milliseconds wait_{0};
  int failures_ = 0;
  int fruitless_ = 0;  ///< watches in a row without an event, counted across lists
  bool synced_ = false;
  bool progressed_ = false;  ///< the open stream has had an event
};

}  // namespace dsj::kube
