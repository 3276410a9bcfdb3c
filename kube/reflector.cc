#include "kube/reflector.h"

namespace dsj::kube {
namespace {

std::string version_of(const Json& object) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return {};
  return metadata->value("resourceVersion", "");
}

}  // namespace

void Reflector::run(const Cancel& cancel) {
  while (!cancel.cancelled()) {
    const auto next = machine_.next();
    if (const auto* wait = std::get_if<WatchMachine::Wait>(&next)) {
      clock_.sleep(wait->time, cancel);
    } else if (const auto* watching = std::get_if<WatchMachine::Watch>(&next)) {
      watch(watching->resource_version, cancel);
    } else {
      list(cancel);
    }
  }
}

void Reflector::report(const ApiError& error) const {
  if (options_.on_failure && !error.cancelled()) options_.on_failure(error);
}

void Reflector::list(const Cancel& cancel) {
  sink_.list_begin();
  auto version = client_.list(
      resource_, options_.ns, options_.select, [&](const Json& object) { sink_.listed(object); },
      cancel);
  if (!version) {
    sink_.list_aborted();
    report(version.error());
    machine_.list_failed(version.error(), clock_.random());
    return;
  }
  if (!sink_.list_at(*version)) return sink_.list_aborted();  // the machine lists again
  sink_.list_done();
  machine_.listed(std::move(*version));
}

void Reflector::watch(const std::string& version, const Cancel& cancel) {
  ListOptions select = options_.select;
  select.resource_version = version;
  auto lines = client_.watch(resource_, options_.ns, select, options_.server_timeout, cancel);
  if (!lines) {
    report(lines.error());
    machine_.open_failed(lines.error(), clock_.random());
    return;
  }
  machine_.opened();
  const auto error = consume(**lines, cancel);
  if (error) report(*error);
  machine_.ended(error, clock_.random());
}

std::optional<ApiError> Reflector::consume(LineStream& lines, const Cancel& cancel) {
  while (!cancel.cancelled()) {
    auto line = lines.next(options_.idle);
    if (!line) return from_net(line.error());
    if (!*line) return std::nullopt;
    if ((*line)->empty()) continue;
    auto event = parse_watch_event(**line);
    if (!event) return ApiError{.message = event.error().message};
    switch (event->kind) {
      case WatchEvent::Kind::Added:
      case WatchEvent::Kind::Modified:
        sink_.upserted(event->object);
        break;
      case WatchEvent::Kind::Deleted:
        sink_.deleted(event->object);
        break;
      case WatchEvent::Kind::Bookmark:
        break;
      case WatchEvent::Kind::Error:
        return from_status_json(event->object.dump());
    }
    machine_.saw(version_of(event->object));
  }
  return from_net({NetError::Kind::Cancelled, "cancelled"});
}

}  // namespace dsj::kube
