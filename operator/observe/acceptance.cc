#include "operator/observe/acceptance.h"

#include <openssl/evp.h>

#include "common/cut_text.h"
#include "common/json.h"
#include "job/spec/cluster_spec.h"
#include "kube/base64.h"
#include "operator/observe/own_status.h"

namespace dsj::op {
namespace {

using nlohmann::json;
using Severity = dsconfig::Finding::Severity;

constexpr size_t kFindingsShown = 20;
constexpr char kConfigMapMissing[] = "ConfigMapMissing";
constexpr char kTemplateMissing[] = "TemplateMissing";
constexpr char kPodRefused[] = "PodRefused";

std::string hash_of(const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string hex;
  for (unsigned i = 0; i < 5 && i < size; ++i) {
    hex += kHex[digest[i] >> 4];
    hex += kHex[digest[i] & 15];
  }
  return hex;
}

std::string revision_of(const json& spec, const std::string& config_text) {
  json made_from = json::object();
  for (const char* name :
       {"deepspeed", "training", "workers", "launcher", "parallelism", "initializers"}) {
    if (spec.contains(name)) made_from[name] = spec[name];
  }
  if (spec.contains("elastic") && made_from.contains("workers")) {
    made_from["workers"].erase("replicas");
  }
  return hash_of(made_from.dump(-1, ' ', false, json::error_handler_t::replace) + config_text);
}

/// The spec with the template's fields merged in, as if the job contained them.
json with_template(const json& spec, const jobspec::WorkerTemplate& source) {
  const json own = json_child(json_child(spec, "workers"), "template");
  return jobspec::with_pod_template(spec, jobspec::merge_pod_templates(source.pod, own));
}

std::string shown(const jobspec::WorkerTemplate& source) {
  return "template " + source.name + " (generation " + std::to_string(source.generation) + ")";
}

/// Unsupported findings stop a job as errors do, with a different reason.
Verdict refused(const std::vector<dsconfig::Finding>& findings) {
  Verdict verdict{.reason = "Unsupported"};
  size_t shown = 0;
  for (const auto& finding : findings) {
    if (finding.severity == Severity::Warning) continue;
    if (finding.severity == Severity::Error) verdict.reason = "ConfigInvalid";
    if (++shown > kFindingsShown) continue;
    verdict.message += (verdict.message.empty() ? "" : "; ") + jobspec::to_sentence(finding);
  }
  if (shown > kFindingsShown) {
    verdict.message += "; and " + std::to_string(shown - kFindingsShown) + " more";
  }
  return verdict;
}

std::shared_ptr<const Accepted> accepted_from(
    jobspec::ClusterSpec checked, const json& spec, const json& whole,
    const std::string& config_text, const std::optional<jobspec::WorkerTemplate>& source) {
  auto accepted = std::make_shared<Accepted>();
  accepted->zero_stage = checked.resolution.config.zero.stage;
  accepted->config_text = config_text;
  accepted->revision = revision_of(whole, config_text);
  accepted->spec_text = spec.dump(-1, ' ', false, json::error_handler_t::replace);
  accepted->job = std::move(checked.job);
  accepted->sizes = std::move(checked.sizes);
  accepted->worker_template = source;
  return accepted;
}

}  // namespace

std::shared_ptr<const Accepted> accepted_before(const std::string& name, const json& spec,
                                                const std::string& config_text,
                                                const TemplateText& worker_template) {
  if (!spec.is_object()) return nullptr;
  const auto source = jobspec::worker_template_from_text(worker_template.text.value_or(""));
  const json whole = source ? with_template(spec, *source) : spec;
  auto checked = jobspec::check_cluster_spec(name, whole, config_text);
  // A job without an output directory, or an elastic one without sizes, cannot run.
  if (checked.job.training.output_dir.empty() ||
      (checked.job.policies.elastic && checked.sizes.empty())) {
    return nullptr;
  }
  return accepted_from(std::move(checked), spec, whole, config_text, source);
}

std::optional<jobspec::ConfigMapKey> config_source(const json& spec) {
  const auto at = json::json_pointer("/deepspeed/configFrom/configMapKeyRef");
  if (!spec.is_object() || !spec.contains(at)) return std::nullopt;
  const json& ref = spec[at];
  if (!ref.is_object() || !ref.contains("name") || !ref.contains("key") ||
      !ref["name"].is_string() || !ref["key"].is_string()) {
    return std::nullopt;
  }
  return jobspec::ConfigMapKey{ref["name"], ref["key"]};
}

std::optional<std::string> config_in(const json& config_map, const std::string& key,
                                     std::string& problem) {
  const json& texts = json_child(config_map, "data");
  const json& bytes = json_child(config_map, "binaryData");
  if (const json& text = json_child(texts, key.c_str()); text.is_string()) return text;
  // kubectl puts a file there that is not UTF-8. What is wrong with it the reader of a ds_config says.
  if (const json& coded = json_child(bytes, key.c_str()); coded.is_string()) {
    auto text = kube::from_base64(coded);
    if (!text) problem = "binaryData[\"" + key + "\"] is not base64";
    return text;
  }
  std::string keys;
  for (const json* part : {&texts, &bytes})
    for (const auto& [name, value] : part->items())
      if (keys.size() < kSentenceBytesMax / 2) keys += (keys.empty() ? "" : ", ") + name;
  problem = "it has no key \"" + key + "\"; it has " + (keys.empty() ? "none" : keys);
  return std::nullopt;
}

Verdict judge(const std::string& name, const json& spec,
              const std::optional<std::string>& config_text, const std::string& problem,
              const TemplateText& worker_template, std::optional<bool> read_only_root) {
  const std::string wanted =
      worker_template.name.empty() ? jobspec::template_ref(spec) : worker_template.name;
  const auto source = jobspec::worker_template_from_text(worker_template.text.value_or(""));
  if (!wanted.empty() && !source) {
    return {.reason = kTemplateMissing,
            .message = "deepspeedjobtemplate " + wanted + ": " + worker_template.problem};
  }
  const json whole = source ? with_template(spec, *source) : spec;
  auto checked = jobspec::check_cluster_spec(name, whole, config_text, read_only_root);
  if (checked.job.ds_config_map && !config_text) {
    return {.reason = kConfigMapMissing,
            .message = "configmap " + checked.job.ds_config_map->name + ": " + problem};
  }
  const auto& resolution = checked.resolution;
  if (!resolution.runnable()) {
    Verdict verdict = refused(resolution.findings);
    verdict.of_other_objects = source || config_text;
    if (source) verdict.message = "with " + shown(*source) + ": " + verdict.message;
    return verdict;
  }
  auto accepted = accepted_from(std::move(checked), spec, whole, config_text.value_or(""), source);
  // Only now are all texts known.
  if (const auto wrong = jobspec::check_stored_size(accepted->job, stored_texts(*accepted))) {
    Verdict verdict = refused({*wrong});
    verdict.of_other_objects = source || config_text;
    return verdict;
  }
  std::string message = "the spec was checked before anything started";
  if (source) message += ", with " + shown(*source);
  return {
      .accepted = std::move(accepted), .reason = "ConfigAccepted", .message = std::move(message)};
}

jobspec::StoredTexts stored_texts(const Accepted& accepted) {
  const auto& source = accepted.worker_template;
  return {.spec = accepted.spec_text,
          .config = accepted.config_text,
          .worker_template = source ? jobspec::to_text(*source) : ""};
}

Verdict refused_by_server(const Accepted& accepted, const std::string& sentence) {
  const std::string with =
      accepted.worker_template ? "with " + shown(*accepted.worker_template) + ": " : "";
  return {.reason = kPodRefused,
          .message = with + "spec.workers.template: the API server refuses worker 0's pod: " +
                     text::first_bytes(sentence, kSentenceBytesMax)};
}

bool may_change_by_itself(const Verdict& verdict) {
  return verdict.of_other_objects || verdict.reason == kConfigMapMissing ||
         verdict.reason == kTemplateMissing || verdict.reason == kPodRefused;
}

Verdict agreeing_with(const std::string& queue_label, Verdict verdict) {
  if (!verdict.accepted) return verdict;
  const auto& policy = verdict.accepted->job.policies.run.scheduling;
  const auto finding = jobspec::queue_contradiction(policy, queue_label);
  return finding ? refused({*finding}) : verdict;
}

Verdict possible_with(Verdict verdict, bool volcano, bool kueue) {
  if (!verdict.accepted) return verdict;
  const auto scheduler = verdict.accepted->job.policies.run.scheduling.scheduler;
  const std::string at = "spec.runPolicy.schedulingPolicy.scheduler: this operator ";
  if (scheduler == jobspec::GangScheduler::Volcano && !volcano) {
    return {.reason = "Unsupported",
            .message = at +
                       "does not make Volcano's pod groups (dsj-operator --volcano=true; the "
                       "chart's scheduling.volcano)"};
  }
  if (scheduler == jobspec::GangScheduler::Kueue && !kueue) {
    return {.reason = "Unsupported",
            .message = at +
                       "may not tell Kueue which groups are over, so a job would hold its quota "
                       "for ever (dsj-operator --kueue=true; the chart's scheduling.kueue)"};
  }
  return verdict;
}

}  // namespace dsj::op
