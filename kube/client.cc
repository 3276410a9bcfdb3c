#include "kube/client.h"

#include <utility>

#include "kube/answer_json.h"

namespace dsj::kube {
namespace {

constexpr char kAsTable[] = "application/json;as=Table;v=v1;g=meta.k8s.io, application/json;q=0.5";

std::string query(const ListOptions& options) {
  std::string text;
  auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) text += std::string(text.empty() ? "?" : "&") + name + "=" + escape(value);
  };
  add("labelSelector", options.label_selector);
  add("fieldSelector", options.field_selector);
  add("resourceVersion", options.resource_version);
  return text;
}

/// Whether a retry is safe: nothing was carried out, or repeating it has the same result.
bool may_repeat(const ApiError& error, bool always) {
  if (!error.passing()) return false;
  if (always) return true;
  if (error.kind == ApiError::Kind::TooManyRequests) return true;
  if (error.net == NetError::Kind::Connect) return true;
  return error.kind == ApiError::Kind::Unavailable && error.status == 503 && error.retry_after;
}

/// Replaces bytes that are not UTF-8 (the end of a rank's log), so that the object can be sent.
std::string body_of(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ApiError not_json(const Response& response) {
  return {.kind = ApiError::Kind::Other,
          .status = response.status,
          .message = "the answer is not JSON: " + response.body.substr(0, 100)};
}

}  // namespace

ApiResult<Json> Client::send(Request request, Repeat repeat, const Cancel& cancel, bool* repeated) {
  const Milliseconds end = clock_.monotonic() + options_.deadline;
  bool renewed = false;
  for (int attempt = 1;; ++attempt) {
    request.timeout = options_.request_timeout;
    ++requests_;
    const auto response = transport_.call(request, cancel);
    ApiError error;
    if (!response) {
      error = from_net(response.error());
    } else if (response->status / 100 == 2) {
      if (response->body.empty()) return Json::object();
      Json body = request.with_managers ? Json::parse(response->body, nullptr, false)
                                        : parse_answer(response->body);
      if (body.is_discarded()) return std::unexpected(not_json(*response));
      return body;
    } else {
      error = from_response(*response);
    }
    // One retry after Unauthorized, also after an attempt that failed otherwise: the credential is
    // reread before it.
    const bool once_more =
        error.kind == ApiError::Kind::Unauthorized && !std::exchange(renewed, true);
    if (!once_more &&
        (attempt >= options_.attempts || !may_repeat(error, repeat == Repeat::Always)))
      return std::unexpected(error);
    const Milliseconds wait =
        once_more ? Milliseconds(0)
                  : backoff(attempt, clock_.random(), error.retry_after.value_or(Milliseconds(0)));
    if (clock_.monotonic() + wait > end) return std::unexpected(error);
    if (clock_.sleep(wait, cancel)) {
      return std::unexpected(from_net({NetError::Kind::Cancelled, "cancelled"}));
    }
    if (repeated) *repeated = true;
  }
}

ApiResult<Json> Client::get(const Resource& resource, const std::string& ns,
                            const std::string& name, const Cancel& cancel) {
  return send({.path = resource.object(ns, name)}, Repeat::Always, cancel);
}

ApiResult<Json> Client::get_with_managers(const Resource& resource, const std::string& ns,
                                          const std::string& name, const Cancel& cancel) {
  return send({.path = resource.object(ns, name), .with_managers = true}, Repeat::Always, cancel);
}

ApiResult<std::string> Client::list(const Resource& resource, const std::string& ns,
                                    const ListOptions& options,
                                    const std::function<void(const Json&)>& item,
                                    const Cancel& cancel) {
  std::string next;
  for (;;) {
    ListOptions page = options;
    if (!next.empty()) page.resource_version.clear();  // the token includes it
    std::string path = resource.collection(ns) + query(page);
    path += (path.contains('?') ? "&" : "?") + std::string("limit=") + std::to_string(options.page);
    if (!next.empty()) path += "&continue=" + escape(next);
    auto answer = send({.path = path}, Repeat::Always, cancel);
    if (!answer) return std::unexpected(answer.error());
    const auto items = answer->find("items");
    const auto metadata = answer->find("metadata");
    if (items == answer->end() || !items->is_array() || metadata == answer->end() ||
        !metadata->is_object()) {
      return std::unexpected(ApiError{.message = "the answer is not a list"});
    }
    for (const auto& object : *items) item(object);
    next = metadata->value("continue", "");
    if (next.empty()) return metadata->value("resourceVersion", "");
  }
}

ApiResult<Json> Client::create(const Resource& resource, const std::string& ns, const Json& object,
                               const Cancel& cancel) {
  return send({.method = "POST",
               .path = resource.collection(ns),
               .content_type = "application/json",
               .body = body_of(object)},
              Repeat::WhenNothingWasDone, cancel);
}

ApiResult<Json> Client::try_create(const Resource& resource, const std::string& ns,
                                   const Json& object, const Cancel& cancel) {
  return send({.method = "POST",
               .path = resource.collection(ns) + "?dryRun=All&fieldValidation=Strict",
               .content_type = "application/json",
               .body = body_of(object)},
              Repeat::Always, cancel);
}

ApiResult<Json> Client::apply(const Resource& resource, const std::string& ns, const Json& object,
                              const ApplyOptions& options, const Cancel& cancel) {
  const std::string name = object.at("metadata").at("name");
  return send({.method = "PATCH",
               .path = resource.object(ns, name, options.subresource) + "?fieldManager=" +
                       escape(options.manager) + (options.force ? "&force=true" : ""),
               .content_type = "application/apply-patch+yaml",
               .body = body_of(object)},
              Repeat::Always, cancel);
}

ApiResult<Json> Client::merge_patch(const Resource& resource, const std::string& ns,
                                    const std::string& name, const Json& patch,
                                    const std::string& subresource, const Cancel& cancel) {
  return send({.method = "PATCH",
               .path = resource.object(ns, name, subresource),
               .content_type = "application/merge-patch+json",
               .body = body_of(patch)},
              Repeat::Always, cancel);
}

ApiResult<Json> Client::replace(const Resource& resource, const std::string& ns, const Json& object,
                                const Cancel& cancel) {
  return send({.method = "PUT",
               .path = resource.object(ns, object.at("metadata").at("name")),
               .content_type = "application/json",
               .body = body_of(object)},
              Repeat::WhenNothingWasDone, cancel);
}

ApiResult<void> Client::remove(const Resource& resource, const std::string& ns,
                               const std::string& name, const DeleteOptions& options,
                               const Cancel& cancel) {
  Json body = {
      {"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", options.propagation}};
  if (options.grace_seconds) body["gracePeriodSeconds"] = *options.grace_seconds;
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) {
    body["preconditions"]["resourceVersion"] = options.resource_version;
  }
  bool repeated = false;
  const auto answer = send({.method = "DELETE",
                            .path = resource.object(ns, name),
                            .content_type = "application/json",
                            .body = body_of(body)},
                           Repeat::Always, cancel, &repeated);
  if (!answer && !(repeated && answer.error().kind == ApiError::Kind::NotFound)) {
    return std::unexpected(answer.error());
  }
  return {};
}

ApiResult<std::unique_ptr<LineStream>> Client::watch(const Resource& resource,
                                                     const std::string& ns,
                                                     const ListOptions& options,
                                                     std::chrono::seconds server_timeout,
                                                     const Cancel& cancel) {
  std::string path = resource.collection(ns) + query(options);
  path += (path.contains('?') ? "&" : "?") + std::string("watch=true&allowWatchBookmarks=true") +
          "&timeoutSeconds=" + std::to_string(server_timeout.count());
  return open({.path = path}, cancel);
}

ApiResult<std::unique_ptr<LineStream>> Client::open(Request request, const Cancel& cancel) {
  ++requests_;
  request.timeout = options_.request_timeout;
  auto opened = transport_.open(request, cancel);
  // One retry after Unauthorized, as in send().
  if (opened && opened->head.status == 401) {
    ++requests_;
    opened = transport_.open(request, cancel);
  }
  if (!opened) return std::unexpected(from_net(opened.error()));
  if (opened->head.status != 200) return std::unexpected(from_response(opened->head));
  return std::move(opened->lines);
}

ApiResult<Json> Client::table(const Resource& resource, const std::string& ns,
                              const std::string& name, const Cancel& cancel) {
  return send({.path = name.empty() ? resource.collection(ns) : resource.object(ns, name),
               .accept = kAsTable},
              Repeat::Always, cancel);
}

ApiResult<std::unique_ptr<LineStream>> Client::watch_table(const Resource& resource,
                                                           const std::string& ns,
                                                           const std::string& name,
                                                           const std::string& version,
                                                           const Cancel& cancel) {
  std::string path = resource.collection(ns) + "?watch=true&resourceVersion=" + escape(version);
  if (!name.empty()) path += "&fieldSelector=" + escape("metadata.name=" + name);
  return open({.path = path, .accept = kAsTable}, cancel);
}

ApiResult<std::unique_ptr<LineStream>> Client::pod_log(const std::string& ns,
                                                       const std::string& pod,
                                                       const LogOptions& options,
                                                       const Cancel& cancel) {
  std::string path = resources::pods().object(ns, pod, "log") +
                     "?container=" + escape(options.container) +
                     "&follow=" + (options.follow ? "true" : "false");
  if (options.timestamps) path += "&timestamps=true";
  if (options.tail_lines) path += "&tailLines=" + std::to_string(*options.tail_lines);
  if (options.since_seconds) path += "&sinceSeconds=" + std::to_string(*options.since_seconds);
  return open({.path = path, .accept = "text/plain, application/json;q=0.5, */*;q=0.1"}, cancel);
}

}  // namespace dsj::kube
