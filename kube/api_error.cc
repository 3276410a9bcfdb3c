#include "kube/api_error.h"

#include <nlohmann/json.hpp>

#include "common/text.h"

namespace dsj::kube {
namespace {

using Kind = ApiError::Kind;

Kind kind_of(int status, const std::string& reason) {
  switch (status) {
    case 400:
    case 422:
      return Kind::Invalid;
    case 401:
      return Kind::Unauthorized;
    case 403:
      return Kind::Forbidden;
    case 404:
      return Kind::NotFound;
    case 409:
      return reason == "AlreadyExists" ? Kind::AlreadyExists : Kind::Conflict;
    case 410:
      return Kind::Gone;
    case 429:
      return Kind::TooManyRequests;
    case 500:
    case 502:
    case 503:
    case 504:
      return Kind::Unavailable;
    default:
      return Kind::Other;
  }
}

void read_status(ApiError& error, const std::string& body) {
  const auto object = nlohmann::json::parse(body, nullptr, false);
  if (!object.is_object() || object.value("kind", nlohmann::json()) != "Status") {
    error.message = body.substr(0, 300);
    return;
  }
  auto text = [&](const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  error.reason = text("reason");
  error.message = text("message");
  if (const auto code = object.find("code"); code != object.end() && code->is_number_integer()) {
    error.status = *code;
  }
  const auto details = object.find("details");
  if (details != object.end() && details->is_object()) {
    const auto seconds = details->find("retryAfterSeconds");
    if (seconds != details->end() && seconds->is_number_integer()) {
      error.retry_after = std::chrono::seconds(seconds->get<int64_t>());
    }
  }
}

}  // namespace

bool ApiError::passing() const {
  if (kind == Kind::Network) {
    return net != NetError::Kind::Cancelled && net != NetError::Kind::Tls &&
           net != NetError::Kind::Credentials;
  }
  return kind == Kind::TooManyRequests || kind == Kind::Unavailable;
}

std::string ApiError::to_string() const {
  if (status == 0) return message;
  std::string text = message.empty() ? "the API server refused" : message;
  text += " (" + std::to_string(status);
  if (!reason.empty()) text += " " + reason;
  return text + ")";
}

ApiError from_net(const NetError& error) {
  return {.kind = Kind::Network, .message = error.message, .net = error.kind};
}

ApiError from_response(const Response& response) {
  ApiError error{.status = response.status};
  read_status(error, response.body);
  error.kind = kind_of(error.status, error.reason);
  // The header is the server's hint for clients; the body has the same in seconds.
  if (const auto header = response.headers.find("retry-after"); header != response.headers.end()) {
    if (const auto seconds = text::parse_int(header->second); seconds && *seconds >= 0) {
      error.retry_after = std::chrono::seconds(*seconds);
    }
  }
  return error;
}

ApiError from_status_json(const std::string& status_object) {
  ApiError error;
  read_status(error, status_object);
  error.kind = kind_of(error.status, error.reason);
  return error;
}

}  // namespace dsj::kube
