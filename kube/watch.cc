#include "kube/watch.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "kube/answer_json.h"

namespace dsj::kube {

Result<WatchEvent> parse_watch_event(const std::string& line) {
  auto object = parse_answer(line);
  if (!object.is_object() || !object.contains("type") || !object["type"].is_string() ||
      !object.contains("object") || !object["object"].is_object()) {
    return bad_input("not a watch event: " + line.substr(0, 100));
  }
  static const std::pair<const char*, WatchEvent::Kind> kKinds[] = {
      {"ADDED", WatchEvent::Kind::Added},
      {"MODIFIED", WatchEvent::Kind::Modified},
      {"DELETED", WatchEvent::Kind::Deleted},
      {"BOOKMARK", WatchEvent::Kind::Bookmark},
      {"ERROR", WatchEvent::Kind::Error}};
  for (const auto& [name, kind] : kKinds) {
    if (object["type"] == name) return WatchEvent{kind, std::move(object["object"])};
  }
  return bad_input("unknown watch event " + object["type"].get<std::string>());
}

WatchMachine::Next WatchMachine::next() {
  if (const Milliseconds wait = std::exchange(wait_, Milliseconds(0)); wait.count() > 0) {
    return Wait{wait};
  }
  if (phase_ == Phase::Listing) return List{};
  return Watch{version_};
}

void WatchMachine::listed(std::string version) {
  version_ = std::move(version);
  phase_ = Phase::Watching;
  synced_ = true;
  failures_ = 0;
}

void WatchMachine::failed(const ApiError& error, double random) {
  ++failures_;
  const int row = std::max(failures_, fruitless_);
  wait_ = backoff(row, random, error.retry_after.value_or(Milliseconds(0)));
}

void WatchMachine::brought_nothing() {
  constexpr int kTries = 3;
  if (++fruitless_ % kTries == 0) phase_ = Phase::Listing;
}

void WatchMachine::list_failed(const ApiError& error, double random) {
  failed(error, random);
}

void WatchMachine::opened() {
  progressed_ = false;
}

void WatchMachine::open_failed(const ApiError& error, double random) {
  using enum ApiError::Kind;
  if (error.kind == Gone) phase_ = Phase::Listing;
  // An unreachable or busy server says nothing about the version.
  if (error.kind != Gone && error.kind != Network && error.kind != TooManyRequests) {
    brought_nothing();
  }
  failed(error, random);
}

void WatchMachine::saw(const std::string& version) {
  if (!version.empty()) version_ = version;
  progressed_ = true;
  failures_ = fruitless_ = 0;
}

void WatchMachine::ended(const std::optional<ApiError>& error, double random) {
  if (error && error->kind == ApiError::Kind::Gone) {
    phase_ = Phase::Listing;
    failed(*error, random);
    return;
  }
  if (!progressed_ && !(error && error->cancelled())) brought_nothing();
  // A stream that keeps ending without an event must not be reopened in a tight loop.
  if (error || !progressed_) failed(error.value_or(ApiError{}), random);
}

}  // namespace dsj::kube
