#include "operator/apply.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "common/check.h"
#include "job/contract.h"
#include "job/join_keys.h"
#include "operator/keys.h"

namespace dsj::op {
namespace {

using kube::ApiError;

/// Kubernetes takes 64 KiB of annotations and 32 KiB of a condition's message. Errors are shorter.
std::string shortened(std::string text) {
  if (text.size() > 1000) text = text.substr(0, 997) + "...";
  return text;
}

class Application {
 public:
  Application(kube::Client& client, const Observed& observed,
              const std::function<bool()>& may_write, Writes& writes)
      : client_(client), o_(observed), may_write_(may_write), writes_(writes) {}

  bool create(const Create& create) {
    if (!allowed()) return false;
    const auto resource = resource_of(create.kind);
    const auto made = client_.create(resource, o_.ns, create.object);
    if (made) {
      ++result_.created;
      writes_.wrote(create.kind, *made);
      return true;
    }
    if (made.error().kind == ApiError::Kind::AlreadyExists) return existing(create, resource);
    // Sent without an answer: the object may exist. The next pass asks again under the same name.
    return failed(made.error(), create.kind + " " + create.name, true);
  }

  /// Creates up to `at_once` at a time, in no order; 1: in order.
  bool create_all(const std::vector<const Create*>& creates, int at_once, const Crew& crew) {
    if (at_once <= 1 || creates.size() <= 1) {
      return std::ranges::all_of(creates, [&](const Create* one) { return create(*one); });
    }
    std::vector<Application> parts(creates.size(), Application(client_, o_, may_write_, writes_));
    std::atomic<size_t> next = 0;
    std::atomic<bool> good = true;
    crew(
        static_cast<int>(std::min(static_cast<size_t>(at_once), creates.size())),
        [&]() -> std::optional<size_t> {
          const size_t task = good ? next++ : creates.size();
          return task < creates.size() ? std::optional(task) : std::nullopt;
        },
        [&](size_t task) {
          if (!parts[task].create(*creates[task])) good = false;
        });
    for (const Application& part : parts) {
      result_.created += part.result_.created;
      if (part.result_.problem.empty() || !result_.problem.empty()) continue;
      result_.problem = part.result_.problem;
      result_.refusal = part.result_.refusal;
      result_.overtaken = part.result_.overtaken;
      result_.retry_after = part.result_.retry_after;
    }
    return good;
  }

  /// Writes over the version that was seen. What cannot be mended now stays as it was; everything
  /// else goes on.
  bool update(const Create& update) {
    if (!allowed()) return false;
    const auto written = client_.replace(resource_of(update.kind), o_.ns, update.object);
    if (!written) return failed(written.error(), "update of " + update.kind + " " + update.name);
    writes_.wrote(update.kind, *written);
    return true;
  }

  bool status(const Plan& plan) {
    if (!allowed()) return false;
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
         {"status", plan.status}},
        {.manager = contract::kOperatorManager, .force = true, .subresource = "status"});
    if (!written) return failed(written.error(), "status of " + job.name);
    result_.status_written = true;
    writes_.wrote(jobspec::kKind, *written);
    return true;
  }

  /// Makes a key and tells of it, or drops old ones (keys.h). The Secret comes first, so that whoever reads
  /// of a key finds it, and goes first, so that whoever forgets one leaves nothing.
  bool change_keys(KeyChange change, const IssueKey& issue) {
    for (const WorkerKey& key : change.drop) {
      if (!remove(key_deletion(change.job, change.set, key))) return false;
    }
    std::optional<WorkerKey> made;
    std::string authority;
    if (!change.slots.empty() && !make_key(change, issue, made, authority)) return false;
    if (!allowed()) return false;
    const Json config = key_config(change, made, authority);
    const std::string name = key_set_name(change.job, change.set);
    const auto resource = kube::resources::config_maps();
    const bool first = change.version.empty();
    const auto written = first ? client_.create(resource, o_.ns, config)
                               : client_.merge_patch(resource, o_.ns, name, config);
    if (written) {
      if (first) ++result_.created;
      writes_.wrote("ConfigMap", *written);
      return true;
    }
    // Without an answer the ConfigMap may speak of the key.
    if (made && written.error().status != 0) {
      (void)client_.remove(kube::resources::secrets(), o_.ns,
                           key_secret_name(change.job, change.set, made->slot), {.uid = made->uid});
    }
    const Create tried{.kind = "ConfigMap", .name = name, .object = config};
    if (first && written.error().kind == ApiError::Kind::AlreadyExists) {
      return existing(tried, resource);
    }
    return failed(written.error(), "ConfigMap " + name, first);
  }

  bool remove(const Delete& entry) {
    if (!allowed()) return false;
    kube::DeleteOptions options{.uid = entry.uid, .resource_version = entry.version};
    if (entry.force) options.grace_seconds = 0;
    const auto removed = client_.remove(resource_of(entry.kind), o_.ns, entry.name, options);
    if (removed) {
      ++result_.deleted;
      return true;
    }
    if (removed.error().kind == ApiError::Kind::NotFound || is_another(removed.error(), entry)) {
      writes_.absent(entry.kind, o_.ns, entry.name, entry.uid);
      return true;
    }
    return failed(removed.error(), "deletion of " + entry.name);
  }

  /// Deletes what it can. An answer about one object says nothing of the others; no answer does.
  bool remove_all(const std::vector<Delete>& entries) {
    bool good = true;
    for (const Delete& entry : entries) {
      if (remove(entry)) continue;
      good = false;
      if (!answered_) break;
    }
    return good;
  }

  Applied result_;

 private:
  bool allowed() {
    if (may_write_()) return true;
    if (result_.problem.empty()) result_.problem = "stopped: not the leader any more";
    answered_ = false;
    return false;
  }

  bool make_key(KeyChange& change, const IssueKey& issue, std::optional<WorkerKey>& made,
                std::string& authority) {
    const auto certificate = issue(change);
    if (!certificate) {
      result_.problem = certificate.error().to_string();
      return false;
    }
    // Announced again, over the version that was seen: in an old view a key is half made that by now is
    // whole and shown.
    if (change.half_made && (!announce(change, *change.half_made) || !clear_slot(change))) {
      return false;
    }
    for (const int slot : change.slots) {
      if (!change.version.empty() && !announce(change, slot)) return false;
      if (!allowed()) return false;
      const std::string name = key_secret_name(change.job, change.set, slot);
      const auto secret = client_.create(
          kube::resources::secrets(), o_.ns,
          key_secret(change, name, slot, certificate->chain_pem, certificate->key_pem));
      if (secret) {
        ++result_.created;
        made = WorkerKey{slot, secret->at("metadata").value("uid", ""), change.made};
        authority = certificate->authority_pem;
        return true;
      }
      // From a pass that was cut off, or somebody else's: the operator cannot read it.
      if (secret.error().kind == ApiError::Kind::AlreadyExists) continue;
      return failed(secret.error(), "Secret " + name, true);
    }
    result_.problem = "the Secrets " + key_secret_name(change.job, change.set, 0) + " to -" +
                      std::to_string(kKeySlots - 1) +
                      " exist, and no ConfigMap speaks of all of them";
    if (change.may_move) {
      result_.problem += "; the keys get another number";
      result_.taken_set = change.set;
    } else {
      result_.refusal = Refusal{"NameTaken", result_.problem + "; delete the others"};
    }
    return false;
  }

  /// Says in the ConfigMap that a Secret of ours may be in the slot from now on.
  bool announce(KeyChange& change, int slot) {
    if (!allowed()) return false;
    const std::string name = key_set_name(change.job, change.set);
    const auto written = client_.merge_patch(kube::resources::config_maps(), o_.ns, name,
                                             key_announcement(change, slot));
    if (!written) return failed(written.error(), "ConfigMap " + name);
    writes_.wrote("ConfigMap", *written);
    change.version = written->at("metadata").value("resourceVersion", "");
    return true;
  }

  /// Deletes what a pass that was cut off may have left in the slot that it had announced. Its uid is not
  /// known; if the chart's policy says that it is no key, it stays, and the slot is passed over.
  bool clear_slot(const KeyChange& change) {
    if (!allowed()) return false;
    const std::string name = key_secret_name(change.job, change.set, *change.half_made);
    const auto removed = client_.remove(kube::resources::secrets(), o_.ns, name, {});
    const auto kind = removed ? ApiError::Kind::NotFound : removed.error().kind;
    if (kind == ApiError::Kind::NotFound || kind == ApiError::Kind::Forbidden) return true;
    return failed(removed.error(), "deletion of Secret " + name);
  }

  /// A conflict is another object of that name, which is not ours to delete, or a write that came
  /// between.
  bool is_another(const ApiError& error, const Delete& entry) {
    if (error.kind != ApiError::Kind::Conflict || entry.uid.empty()) return false;
    if (entry.kind == "Secret") return true;  // which the operator cannot read
    const auto found = client_.get(resource_of(entry.kind), o_.ns, entry.name);
    if (!found) return found.error().kind == ApiError::Kind::NotFound;
    return found->at("metadata").value("uid", "") != entry.uid;
  }

  /// The name exists: from an earlier pass whose watch has not told yet, or from somebody else.
  bool existing(const Create& create, const kube::Resource& resource) {
    const auto found = client_.get(resource, o_.ns, create.name);
    if (!found) return failed(found.error(), create.kind + " " + create.name);
    const std::string owner = owner_of(*found);
    if (owner == o_.job->uid) {
      writes_.wrote(create.kind, *found);
      return true;
    }
    result_.problem = create.kind + " " + create.name + " belongs to somebody else";
    result_.refusal = Refusal{"NameTaken", result_.problem + "; it is left alone"};
    return false;
  }

  bool failed(const ApiError& error, const std::string& what, bool of_create = false) {
    answered_ = error.status != 0;
    if (result_.problem.empty()) {  // the first is told
      result_.problem = what + ": " + error.to_string();
      result_.overtaken = error.kind == ApiError::Kind::Conflict;
      result_.retry_after = error.retry_after.value_or(Milliseconds(0));
    }
    if (!of_create || result_.refusal) return false;
    if (error.kind == ApiError::Kind::Forbidden) {
      const bool quota = error.message.find("exceeded quota") != std::string::npos;
      result_.refusal =
          Refusal{quota ? "QuotaExceeded" : "Forbidden", shortened(what + ": " + error.message)};
    } else if (error.kind == ApiError::Kind::Invalid) {
      result_.refusal = Refusal{"Invalid", shortened(what + ": " + error.message)};
    }
    return false;
  }

  kube::Client& client_;
  const Observed& o_;
  const std::function<bool()>& may_write_;
  Writes& writes_;
  bool answered_ = true;  ///< the last failure was the server's word
};

}  // namespace

void work_on_threads(int at_once, const ClaimTask& claim, const CarryTask& carry) {
  std::vector<std::jthread> running;
  for (int i = 0; i < at_once; ++i) {
    running.emplace_back([&] {
      while (const auto task = claim()) carry(*task);
    });
  }
}

Result<ServerCertificate> issue_worker_key(const KeyChange& change) {
  const std::string identity = change.metadata.value("namespace", "") + "/" + change.job;
  return issue_certificate({change.host}, identity, change.made, kKeyLifetime, kJobOrganization);
}

kube::Resource jobs_resource() {
  return {contract::kGroup, contract::kVersion, contract::kPlural, contract::kKind, true};
}

kube::Resource job_templates_resource() {
  return {contract::kGroup, contract::kVersion, "deepspeedjobtemplates", "DeepSpeedJobTemplate",
          false};
}

kube::Resource pod_groups_resource() {
  return {"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"};
}

kube::Resource resource_of(const std::string& kind) {
  using namespace kube::resources;
  if (kind == "Pod") return pods();
  if (kind == "ConfigMap") return config_maps();
  if (kind == "Secret") return secrets();
  if (kind == "Service") return services();
  if (kind == "ServiceAccount") return service_accounts();
  if (kind == "Role") return roles();
  if (kind == "RoleBinding") return role_bindings();
  if (kind == "NetworkPolicy") return network_policies();
  if (kind == "PodGroup") return pod_groups_resource();
  DSJ_CHECK(kind == jobspec::kKind, "%s", kind.c_str());
  return jobs_resource();
}

Applied apply(kube::Client& client, const Observed& observed, const Plan& plan,
              const std::function<bool()>& may_write, Writes& writes, EventSink& events,
              int at_once, const Crew& crew, const IssueKey& issue) {
  Application application(client, observed, may_write, writes);
  auto create = [&](const std::vector<Create>& creates, auto&& chosen) {
    std::vector<const Create*> list;
    for (const Create& one : creates) {
      if (chosen(one)) list.push_back(&one);
    }
    return application.create_all(list, at_once, crew);
  };
  auto refers = [](const Create& one) { return one.refers; };
  auto first = [&](const Create& one) { return &one == &plan.pods.front(); };
  auto tell = [&] {
    for (const Event& event : plan.events) events.tell(*observed.job, event);
  };
  std::jthread telling;  // pods do not wait for events
  auto all = [&] {
    // A refused object is shown in the status once a pass knows of the refusal.
    bool made = create(plan.creates, std::not_fn(refers)) && create(plan.creates, refers);
    // Pods need their first key; a renewal has time. A refused key keeps no spec from being stored: the
    // status may speak of that spec from now on.
    const bool keyed = !plan.keys || application.change_keys(*plan.keys, issue);
    made &= keyed || !plan.keys->version.empty();
    if (!made && !(application.result_.refusal && observed.refusal)) return false;
    bool mended = true;
    for (const Create& update : plan.updates) mended &= application.update(update);
    if (!plan.status.is_null()) {
      if (!application.status(plan)) return false;
      if (at_once > 1 && !plan.pods.empty()) {
        telling = std::jthread(tell);
      } else {
        tell();
      }
    }
    const bool complete = made && create(plan.pods, first) && create(plan.pods, std::not_fn(first));
    return application.remove_all(plan.deletes) && complete && mended && keyed;
  };
  application.result_.done = all();
  return application.result_;
}

}  // namespace dsj::op
