// A Transport that lets only the leader write: it checks the leadership before every write,
// including the client's retries.
#pragma once

#include <functional>

#include "kube/http.h"

namespace dsj::op {

class LeaderTransport final : public kube::Transport {
 public:
  LeaderTransport(kube::Transport& inner, std::function<bool()> may_write)
      : inner_(inner), may_write_(std::move(may_write)) {}

  /// NetError::Cancelled if the request is a write and this process no longer leads.
  std::expected<kube::Response, kube::NetError> call(const kube::Request& request,
                                                     const kube::Cancel& cancel) override {
    if (request.method != "GET" && !may_write_()) {
      return std::unexpected(kube::NetError{kube::NetError::Kind::Cancelled, "not the leader"});
    }
    return inner_.call(request, cancel);
  }
  std::expected<kube::StreamResponse, kube::NetError> open(const kube::Request& request,
                                                           const kube::Cancel& cancel) override {
    return inner_.open(request, cancel);
  }

 private:
  kube::Transport& inner_;
  const std::function<bool()> may_write_;
};

}  // namespace dsj::op
