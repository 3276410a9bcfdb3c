// A Transport that reports every request with its verb and the answer's code.
#pragma once

#include <functional>
#include <string>

#include "kube/http.h"

namespace dsj::op {

class CountedTransport final : public kube::Transport {
 public:
  /// verb: "GET", "PATCH", ..., or "WATCH" for a stream. code: "200", "409", ..., or "error" if no
  /// answer came. Called on the thread of the request.
  using Tell = std::function<void(const std::string& verb, const std::string& code)>;
  CountedTransport(kube::Transport& inner, Tell tell) : inner_(inner), tell_(std::move(tell)) {}

  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel& cancel) override {
    auto answer = inner_.call(request, cancel);
    tell_(request.method, answer ? std::to_string(answer->status) : "error");
    return answer;
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request& request,
                                                           const kube::Cancel& cancel) override {
    auto answer = inner_.open(request, cancel);
    tell_("WATCH", answer ? std::to_string(answer->head.status) : "error");
    return answer;
  }

 private:
  kube::Transport& inner_;
  const Tell tell_;
};

}  // namespace dsj::op
