// An API server that answers reviews of tokens and of their owners' rights, and passes on all else.
#pragma once

#include <set>
#include <string>

#include "kube/client.h"

namespace dsj::op::testing {

class ReviewingServer final : public kube::Transport {
 public:
  explicit ReviewingServer(kube::Transport* inner = nullptr) : inner_(inner) {}

  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel& cancel) override {
    const bool token = request.path == "/apis/authentication.k8s.io/v1/tokenreviews";
    if (!token && request.path != "/apis/authorization.k8s.io/v1/subjectaccessreviews") {
      return inner_->call(request, cancel);
    }
    ++asked;
    if (!answers)
      return std::unexpected(kube::NetError{kube::NetError::Kind::Timeout, "no answer"});
    kube::Json object = kube::Json::parse(request.body);
    const kube::Json spec = object["spec"];
    if (token) {
      const std::string name = spec["token"];
      object["status"] = {{"authenticated", known.contains(name)}};
      if (known.contains(name))
        object["status"]["user"] = {
            {"username", name}, {"groups", {"g"}}, {"extra", {{"k", {"v"}}}}};
    } else {
      questions.push_back(spec);
      object["status"] = {{"allowed", allowed.contains(spec["user"].get<std::string>())}};
    }
    return kube::Response{.status = 201, .body = object.dump()};
  }

  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request& request,
                                                           const kube::Cancel& cancel) override {
    return inner_->open(request, cancel);
  }

  std::set<std::string> known, allowed;  ///< tokens, which are their owners' names
  bool answers = true;
  int asked = 0;
  std::vector<kube::Json> questions;

 private:
  kube::Transport* inner_;
};

}  // namespace dsj::op::testing
