// Creates, announces and drops the keys of a job (keys.h).
#include "common/json.h"
#include "job/join_keys.h"
#include "operator/act/application.h"
#include "operator/render/keys.h"

namespace dsj::op {
namespace {

using kube::ApiError;

}  // namespace

bool Application::change_keys(KeyChange change, const IssueKey& issue) {
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
    if (first) ++result.created;
    writes_.wrote("ConfigMap", *written);
    return true;
  }
  // If no answer came, the ConfigMap may refer to the key.
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

bool Application::make_key(KeyChange& change, const IssueKey& issue, std::optional<WorkerKey>& made,
                           std::string& authority) {
  const auto certificate = issue(change);
  if (!certificate) {
    result.problem = certificate.error().to_string();
    return false;
  }
  // Announces the slot again, on the version that was observed: an outdated view may show a key as
  // half made that is complete and in use by now.
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
      ++result.created;
      made = WorkerKey{slot, json_text(json_child(*secret, "metadata"), "uid"), change.made};
      authority = certificate->authority_pem;
      return true;
    }
    // Left by an interrupted pass, or foreign: the operator cannot read it.
    if (secret.error().kind == ApiError::Kind::AlreadyExists) continue;
    return failed(secret.error(), "Secret " + name, true);
  }
  result.problem = "the Secrets " + key_secret_name(change.job, change.set, 0) + " to -" +
                   std::to_string(kKeySlots - 1) + " exist, but no ConfigMap lists all of them";
  if (change.may_move) {
    result.problem += "; the keys get another number";
    result.taken_set = change.set;
  } else {
    result.refusal = Refusal{"NameTaken", result.problem + "; delete the others"};
  }
  return false;
}

bool Application::announce(KeyChange& change, int slot) {
  if (!allowed()) return false;
  const std::string name = key_set_name(change.job, change.set);
  const auto written = client_.merge_patch(kube::resources::config_maps(), o_.ns, name,
                                           key_announcement(change, slot));
  if (!written) return failed(written.error(), "ConfigMap " + name);
  writes_.wrote("ConfigMap", *written);
  change.version = json_text(json_child(*written, "metadata"), "resourceVersion");
  return true;
}

bool Application::clear_slot(const KeyChange& change) {
  if (!allowed()) return false;
  const std::string name = key_secret_name(change.job, change.set, *change.half_made);
  const auto removed = client_.remove(kube::resources::secrets(), o_.ns, name, {});
  const auto kind = removed ? ApiError::Kind::NotFound : removed.error().kind;
  if (kind == ApiError::Kind::NotFound || kind == ApiError::Kind::Forbidden) return true;
  return failed(removed.error(), "deletion of Secret " + name);
}

}  // namespace dsj::op
