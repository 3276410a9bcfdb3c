#include "operator/act/application.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "common/cut_text.h"
#include "common/json.h"
#include "job/contract.h"
#include "operator/observe/child_content.h"
#include "operator/observe/own_status.h"
#include "operator/render/keys.h"

namespace dsj::op {
namespace {

using kube::ApiError;

/// Pause before a retry in a namespace that is being deleted.
constexpr Milliseconds kNamespaceEnds{15'000};

/// Kubernetes allows 32 KiB in a condition's message. Errors are shorter.
std::string beginning_of(const std::string& text) {
  return text.size() > 1000 ? text::first_bytes(text, 997) + "..." : text;
}

std::string uid_of(const Json& object) {
  return json_text(json_child(object, "metadata"), "uid");
}

/// Whether `found` lacks a label of `wanted`.
bool labels_differ(const Json& wanted, const Json& found) {
  for (const auto& [label, value] : json_child(json_child(wanted, "metadata"), "labels").items())
    if (Json(label_of(found, label.c_str())) != value) return true;
  return false;
}

/// The refusal for a name whose object does not belong to this job. The object is not adopted: pods
/// may belong to it.
Refusal taken_by_another(const std::string& what, const Json& found, const std::string& job) {
  const bool ours = !owner_of(found).empty();
  const bool of_this_name = label_of(found, contract::kLabelJobName) == job;
  if (of_this_name && ours)
    return {
        "EarlierJob",
        what +
            " belongs to an earlier job of this name and is being deleted; this job waits for it"};
  if (!of_this_name || has_controller(found))
    return {"NameTaken", what + " does not belong to this job; it is left unchanged"};
  return {
      "NameTaken",
      what +
          " has no owner: a job of this name was deleted with --cascade=orphan, or a backup was "
          "restored with its objects; delete what is left of it (kubectl delete "
          "pods,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies -l " +
          contract::kLabelJobName + "=" + job + "), or give this job another name"};
}

}  // namespace

bool Application::create(const Create& create) {
  if (!allowed()) return false;
  const auto resource = resource_of(create.kind);
  const auto made = client_.create(resource, o_.ns, create.object);
  if (made) {
    ++result.created;
    result.pods += create.kind == "Pod";
    if (create.kind == "ServiceAccount") result.account = uid_of(*made);
    if (create.kind != "Pod") result.written[{create.kind, create.name}] = {};
    writes_.wrote(create.kind, *made);
    note_admission(create, *made);
    return true;
  }
  if (made.error().kind == ApiError::Kind::AlreadyExists) return existing(create, resource);
  // If no answer came, the object may exist. The next pass uses the same name again.
  return failed(made.error(), create.kind + " " + create.name, true);
}

bool Application::carry_out(const std::vector<Task>& tasks, int at_once, const Crew& crew) {
  if (at_once <= 1 || tasks.size() <= 1) {
    return std::ranges::all_of(tasks, [&](const Task& task) { return task(*this); });
  }
  std::vector<Application> parts(tasks.size(), Application(client_, o_, may_write_, writes_));
  std::atomic<size_t> next = 0;
  std::atomic<bool> good = true;
  crew(
      static_cast<int>(std::min(static_cast<size_t>(at_once), tasks.size())),
      [&]() -> std::optional<size_t> {
        const size_t task = good ? next++ : tasks.size();
        return task < tasks.size() ? std::optional(task) : std::nullopt;
      },
      [&](size_t task) {
        try {
          if (!tasks[task](parts[task])) good = false;
        } catch (const std::exception& error) {  // uncaught on its thread it would end the process
          parts[task].result.problem = std::string("a write was interrupted: ") + error.what();
          good = false;
        }
      });
  for (const Application& part : parts) take(part.result);
  return good;
}

/// If several writes fail, the first failure is reported.
void Application::take(const Applied& part) {
  result.created += part.created;
  result.pods += part.pods;
  if (result.account.empty()) result.account = part.account;
  if (part.key.run > 0) result.key = part.key;
  result.written.insert(part.written.begin(), part.written.end());
  result.admitted.insert(part.admitted.begin(), part.admitted.end());
  if (result.create_problem.empty()) result.create_problem = part.create_problem;
  if (part.problem.empty() || !result.problem.empty()) return;
  result.problem = part.problem;
  result.refusal = part.refusal;
  result.overtaken = part.overtaken;
  result.retry_after = part.retry_after;
}

bool Application::update(const Create& update) {
  if (!allowed()) return false;
  const std::string what = "update of " + update.kind + " " + update.name;
  const auto found = client_.get_with_managers(resource_of(update.kind), o_.ns, update.name);
  if (!found) {
    if (found.error().kind != ApiError::Kind::NotFound) return failed(found.error(), what);
    writes_.absent(update.kind, o_.ns, update.name, uid_of(update.object));
    return true;
  }
  if (owner_of(*found) != o_.job->uid) {
    writes_.wrote(update.kind, *found);
    return true;
  }
  std::string field = changed_field(update.kind, *found, update.object);
  if (field.empty() && labels_differ(update.object, *found)) field = "metadata.labels";
  if (field.empty()) {
    writes_.wrote(update.kind, *found);
    return true;
  }
  Json object = update.object;
  Json metadata = (*found)["metadata"];
  metadata.erase("managedFields");
  metadata["labels"].update(update.object["metadata"]["labels"]);
  object["metadata"] = std::move(metadata);
  if (!allowed()) return false;
  const auto written = client_.replace(resource_of(update.kind), o_.ns, object);
  if (!written) return failed(written.error(), what);
  result.written[{update.kind, update.name}] = {field, writer_of(*found, field)};
  writes_.wrote(update.kind, *written);
  note_admission(update, *written);
  return true;
}

/// Otherwise every pass would find the object changed and write it again.
void Application::note_admission(const Create& sent, const Json& stored) {
  const Admitted admitted{content_of(sent.kind, sent.object), content_of(sent.kind, stored)};
  if (admitted.sent != admitted.stored) result.admitted[{sent.kind, sent.name}] = admitted;
}

bool Application::status(const Plan& plan) {
  if (!allowed()) return false;
  Json status = plan.status;
  if (result.key.run > 0) {
    status[kKeyRun] = result.key.run;
    status[kKeyUid] = result.key.uid;
  }
  const JobView& job = *o_.job;
  Json metadata = {{"name", job.name},
                   {"namespace", job.ns},
                   {"uid", job.uid},
                   {"resourceVersion", job.resource_version}};
  const auto written = client_.apply(
      jobs_resource(), o_.ns,
      {{"apiVersion", jobspec::kApiVersion},
       {"kind", jobspec::kKind},
       {"metadata", std::move(metadata)},
       {"status", std::move(status)}},
      {.manager = contract::kOperatorManager, .force = true, .subresource = "status"});
  if (!written) return failed(written.error(), "status of " + job.name);
  result.status_written = true;
  writes_.wrote(jobspec::kKind, *written);
  return true;
}

bool Application::make_key(NewKey key, const IssueKey& issue) {
  const auto certificate = issue(key);
  if (!certificate) {
    result.problem = certificate.error().to_string();
    return false;
  }
  const auto secrets = kube::resources::secrets();
  bool taken = false;
  const auto create = [&] {
    if (!allowed()) return false;
    const auto made = client_.create(secrets, o_.ns, key_secret(key, *certificate));
    if (made) {
      ++result.created;
      result.key = {key.run, uid_of(*made), certificate->authority_pem};
      return true;
    }
    taken = made.error().kind == ApiError::Kind::AlreadyExists;
    return !taken && failed(made.error(), "Secret " + key.name, true);
  };
  if (create() || !taken) return result.key.run > 0;
  if (!key.uid.empty()) {
    if (!remove(key_deletion(o_.name, key.run, key.uid))) return false;
    if (create() || !taken) return result.key.run > 0;
  }
  key = with_another_name(std::move(key), o_.name);
  if (create() || !taken) return result.key.run > 0;
  result.problem = "Secret " + key.name + " exists";  // this second: the next pass has another name
  return false;
}

bool Application::release(const Release& entry) {
  if (!allowed()) return false;
  const auto pods = kube::resources::pods();
  const auto written = client_.merge_patch(pods, o_.ns, entry.pod, {{"metadata", entry.metadata}});
  if (written || written.error().kind == ApiError::Kind::NotFound) return true;
  return failed(written.error(), "change of pod " + entry.pod);
}

bool Application::remove(const Delete& entry) {
  if (entry.uid.empty())  // costs this job's pass only (controller.h)
    throw std::logic_error("a deletion of " + entry.kind + " " + entry.name + " without a uid");
  if (!allowed()) return false;
  kube::DeleteOptions options{.uid = entry.uid, .resource_version = entry.version};
  options.grace_seconds = entry.force ? 0 : entry.grace_seconds;
  const auto removed = client_.remove(resource_of(entry.kind), o_.ns, entry.name, options);
  if (removed) {
    ++result.deleted;
    result.pods += entry.kind == "Pod";
    return true;
  }
  if (removed.error().kind == ApiError::Kind::NotFound || is_another(removed.error(), entry)) {
    writes_.absent(entry.kind, o_.ns, entry.name, entry.uid);
    return true;
  }
  // The chart's policy protects a Secret that is no key of a job.
  if (entry.kind == "Secret" && removed.error().kind == ApiError::Kind::Forbidden) return true;
  return failed(removed.error(), "deletion of " + entry.name);
}

bool Application::remove_all(const std::vector<Delete>& entries) {
  bool good = true;
  for (const Delete& entry : entries) {
    if (remove(entry)) continue;
    good = false;
    if (!answered_) break;
  }
  return good;
}

bool Application::allowed() {
  if (may_write_()) return true;
  if (result.problem.empty()) result.problem = "stopped: not the leader any more";
  answered_ = false;
  return false;
}

bool Application::is_another(const ApiError& error, const Delete& entry) {
  if (error.kind != ApiError::Kind::Conflict) return false;
  if (entry.kind == "Secret") return true;  // the operator cannot read Secrets
  const auto found = client_.get(resource_of(entry.kind), o_.ns, entry.name);
  if (!found) return found.error().kind == ApiError::Kind::NotFound;
  return uid_of(*found) != entry.uid;
}

bool Application::existing(const Create& create, const kube::Resource& resource) {
  const auto found = client_.get(resource, o_.ns, create.name);
  if (!found) return failed(found.error(), create.kind + " " + create.name);
  const std::string owner = owner_of(*found);
  if (owner == o_.job->uid) {
    if (create.kind == "ServiceAccount") result.account = uid_of(*found);
    // Without its labels the watch does not show it.
    if (content_of(create.kind, create.object) != 0 && labels_differ(create.object, *found))
      return update(create);
    writes_.wrote(create.kind, *found);
    return true;
  }
  result.refusal = taken_by_another(create.kind + " " + create.name, *found, o_.name);
  result.refusal->kind = create.kind;
  result.refusal->name = create.name;
  result.refusal->uid = uid_of(*found);
  result.problem = result.refusal->message;
  return false;
}

bool Application::failed(const ApiError& error, const std::string& what, bool of_create) {
  answered_ = error.status != 0;
  if (result.problem.empty()) {  // only the first is reported
    result.problem = what + ": " + error.to_string();
    result.overtaken = error.kind == ApiError::Kind::Conflict;
    result.retry_after = error.retry_after.value_or(Milliseconds(0));
  }
  if (!of_create || result.refusal) return false;
  if (error.status >= 500 && result.create_problem.empty())
    result.create_problem = beginning_of(what + ": " + error.message);
  if (error.kind == ApiError::Kind::Forbidden) {
    const bool quota = error.message.contains("exceeded quota"), ends = namespace_ends(error);
    result.refusal = Refusal{ends    ? "NamespaceTerminating"
                             : quota ? "QuotaExceeded"
                                     : "Forbidden",
                             beginning_of(what + ": " + error.message)};
    // The job will be deleted with its namespace.
    if (ends) result.retry_after = std::max(result.retry_after, kNamespaceEnds);
  } else if (error.kind == ApiError::Kind::Invalid) {
    result.refusal = Refusal{"Invalid", beginning_of(what + ": " + error.message)};
  }
  return false;
}

}  // namespace dsj::op
