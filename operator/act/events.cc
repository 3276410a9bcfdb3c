#include "operator/act/events.h"

#include <functional>

#include "common/cut_text.h"
#include "common/format.h"
#include "common/log.h"
#include "job/contract.h"
#include "kube/lease.h"

namespace dsj::op {
namespace {

constexpr size_t kEventMessageMax = 1000;  ///< the limit is 1024

}  // namespace

Json event_object(const JobView& job, const Event& event, const std::string& instance,
                  std::chrono::system_clock::time_point now) {
  const std::string time = kube::micro_time(now);
  const std::string name = text::format(
      "%s.%zx", job.name.c_str(),
      std::hash<std::string>()(job.uid + event.reason + event.message + job.resource_version));
  return {{"apiVersion", "events.k8s.io/v1"},
          {"kind", "Event"},
          {"metadata", {{"name", name}, {"namespace", job.ns}}},
          {"regarding",
           {{"apiVersion", jobspec::kApiVersion},
            {"kind", jobspec::kKind},
            {"namespace", job.ns},
            {"name", job.name},
            {"uid", job.uid}}},
          {"type", event.type},
          {"reason", event.reason},
          {"note", text::first_bytes(event.message, kEventMessageMax)},
          {"action", "Reconcile"},
          {"eventTime", time},
          {"reportingController", contract::kOperatorManager},
          {"reportingInstance", instance}};
}

void KubeEvents::tell(const JobView& job, const Event& event) {
  const auto made = client_.create(kube::resources::events(), job.ns,
                                   event_object(job, event, instance_, clock_.wall()));
  if (!made && made.error().kind != kube::ApiError::Kind::AlreadyExists &&
      !namespace_ends(made.error())) {
    log::warn("event " + event.reason + " of " + job.ns + "/" + job.name +
              " is lost: " + made.error().to_string());
  }
}

}  // namespace dsj::op
