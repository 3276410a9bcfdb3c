#include "agent/job_watch.h"

#include "agent/status_publisher.h"

namespace dsj::agent {
namespace {

using nlohmann::json;

json part(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_object() ? *found : json::object();
}
std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
int64_t whole(const json& object, const char* name, int64_t otherwise) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

}  // namespace

JobView job_view(const json& job) {
  const json metadata = part(job, "metadata"), spec = part(job, "spec"),
             status = part(job, "status"), restarts = part(status, "restarts");
  const auto suspend = spec.find("suspend");
  return {.uid = text_of(metadata, "uid"),
          .suspend = suspend != spec.end() && suspend->is_boolean() && suspend->get<bool>(),
          .deleted = metadata.contains("deletionTimestamp"),
          .revision = text_of(status, "revision"),
          .attempt = whole(part(status, "training"), "attempt", 0),
          .restarts = {.used = static_cast<int>(whole(restarts, "counted", 0)),
                       .total = static_cast<int>(whole(restarts, "total", 0)),
                       .saved_step = whole(restarts, "savedStep", -1)}};
}

std::string stop_reason(const JobView& view, const std::string& own_revision) {
  if (view.deleted) return "the job is being deleted";
  if (view.suspend) return "the job is suspended";
  if (!view.revision.empty() && !own_revision.empty() && view.revision != own_revision) {
    return "the job has a new revision, " + view.revision + " in place of " + own_revision;
  }
  return "";
}

JobWatch::JobWatch(kube::Client& client, kube::Clock& clock, const std::string& ns,
                   const std::string& name)
    : reflector_(client, clock, job_resource(),
                 {.ns = ns, .select = {.field_selector = "metadata.name=" + name}}, *this),
      thread_([this] { reflector_.run(cancel_); }) {}

JobWatch::~JobWatch() {
  cancel_.cancel();
  thread_.join();
}

std::optional<JobView> JobWatch::view() const {
  const std::lock_guard lock(mutex_);
  return view_;
}

void JobWatch::listed(const kube::Json& object) {
  in_list_ = true;
  upserted(object);
}

/// A list without the job: it was deleted while no watch was open.
void JobWatch::list_done() {
  const std::lock_guard lock(mutex_);
  if (!in_list_ && view_) view_->deleted = true;
}

void JobWatch::upserted(const kube::Json& object) {
  const std::lock_guard lock(mutex_);
  view_ = job_view(object);
}

void JobWatch::deleted(const kube::Json&) {
  const std::lock_guard lock(mutex_);
  if (view_) view_->deleted = true;
}

}  // namespace dsj::agent
