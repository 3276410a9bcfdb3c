#include "operator/webhook/review.h"

#include <algorithm>

#include "common/json.h"
#include "common/json_depth.h"
#include "job/spec/cluster_spec.h"
#include "job/spec/schema.h"
#include "job/spec/worker_template.h"

namespace dsj::op {
namespace {

using dsconfig::Finding;
using nlohmann::json;
using Severity = Finding::Severity;

constexpr char kApi[] = "admission.k8s.io/v1";
constexpr char kReviewKind[] = "AdmissionReview";
constexpr size_t kErrorsShown = 50;
/// The API server truncates longer warnings.
constexpr size_t kWarningBytesMax = 256;

const json& at(const json& object, const char* pointer) {
  static const json none;
  const json::json_pointer path(pointer);
  return object.contains(path) ? object[path] : none;
}

std::string text_at(const json& object, const char* pointer) {
  const json& value = at(object, pointer);
  return value.is_string() ? value.get<std::string>() : "";
}

std::string queue_of(const json& object) {
  return json_text(json_child(json_child(object, "metadata"), "labels"), jobspec::kQueueLabel);
}

std::vector<Finding> findings_of(const json& object, std::optional<bool> read_only_root) {
  const std::string queue = queue_of(object);
  const json spec = jobspec::with_queue(at(object, "/spec"), queue);
  auto checked = jobspec::check_cluster_spec(text_at(object, "/metadata/name"), spec, std::nullopt,
                                             read_only_root);
  auto findings = std::move(checked.resolution.findings);
  const auto& policy = checked.job.policies.run.scheduling;
  if (auto wrong = jobspec::queue_contradiction(policy, queue))
    findings.push_back(std::move(*wrong));
  if (!checked.config_known) {
    findings.push_back({Severity::Warning, "spec.deepspeed.configFrom",
                        "not read here: condition Accepted says what is wrong with it", ""});
  }
  if (!jobspec::template_ref(spec).empty()) {
    findings.push_back({Severity::Warning, "spec.workers.templateRef",
                        "not read here: condition Accepted says what is wrong with it", ""});
  }
  return findings;
}

bool same(const Finding& a, const Finding& b) {
  return a.severity == b.severity && a.path == b.path && a.message == b.message;
}

std::string dotted(std::string pointer) {
  std::ranges::replace(pointer, '/', '.');
  return pointer.substr(1);
}

void compare(const json& before, const json& after, std::vector<Finding>& findings) {
  for (const std::string& field : jobspec::immutable_fields()) {
    const json& old = at(before, field.c_str());
    const json& now = at(after, field.c_str());
    if (old.is_null() || old == now) continue;
    findings.push_back(
        {Severity::Error, dotted(field),
         "found " + now.dump(-1, ' ', false, json::error_handler_t::replace) + ", the job has " +
             old.dump(-1, ' ', false, json::error_handler_t::replace) + " for its life",
         "make another job"});
  }
}

/// The field `part` of the spec; for an elastic job without the number of workers, whose change
/// makes no new revision.
json part_of(const json& object, const std::string& part) {
  json found = at(object, ("/spec/" + part).c_str());
  if (found.is_object() && at(object, "/spec/elastic").is_object()) found.erase("replicas");
  return found;
}

/// A warning about an edit that has no effect any more, or a larger one than expected.
std::string note_of(const json& before, const json& after) {
  const std::string phase = text_at(before, "/status/phase");
  if (phase == "Complete" || phase == "Failed") {
    return "the job is " + phase + ": nothing of this edit is carried out";
  }
  for (const char* part : {"deepspeed", "training", "workers", "initializers"}) {
    if (part_of(before, part) == part_of(after, part)) continue;
    if (phase != "Running" && phase != "Starting" && phase != "Restarting") return "";
    return "spec." + std::string(part) +
           ": all ranks save one step, then every pod is replaced and the job continues from there";
  }
  return "";
}

json response_of(const std::string& uid, const std::vector<Finding>& errors,
                 const std::vector<std::string>& warnings) {
  json response = {{"uid", uid}, {"allowed", errors.empty()}};
  if (!errors.empty()) {
    std::string message = std::to_string(errors.size()) +
                          (errors.size() == 1 ? " error" : " errors") + ", nothing was stored";
    for (size_t i = 0; i < errors.size() && i < kErrorsShown; ++i) {
      message += "\nerror: " + jobspec::to_sentence(errors[i]);
    }
    if (errors.size() > kErrorsShown) {
      message += "\nand " + std::to_string(errors.size() - kErrorsShown) + " more";
    }
    response["status"] = {{"code", 422}, {"reason", "Invalid"}, {"message", message}};
  }
  for (std::string warning : warnings) {
    if (warning.size() > kWarningBytesMax) {
      warning.resize(kWarningBytesMax - 3);
      while (!warning.empty() && (warning.back() & 0x80) != 0) warning.pop_back();
      warning += "...";
    }
    response["warnings"].push_back(warning);
  }
  return {{"apiVersion", kApi}, {"kind", kReviewKind}, {"response", response}};
}

}  // namespace

Result<Reviewed> review(const std::string& text, const TryPods& try_pods,
                        std::optional<bool> read_only_root) {
  if (json_depth(text) > kJsonDepthMax) return bad_input("the JSON nests too deep");
  const json body = json::parse(text, nullptr, false);
  if (!body.is_object() || text_at(body, "/apiVersion") != kApi ||
      text_at(body, "/kind") != kReviewKind) {
    return bad_input(std::string("expected an ") + kReviewKind + " of " + kApi);
  }
  const json& request = at(body, "/request");
  const std::string uid = text_at(request, "/uid");
  if (!request.is_object() || uid.empty()) return bad_input("the request has no uid");
  const json& object = at(request, "/object");
  const json& before = at(request, "/oldObject");
  const std::string operation = text_at(request, "/operation");
  const bool deleting = at(object, "/metadata/deletionTimestamp").is_string();
  const bool anothers = !jobspec::other_controller(at(object, "/spec")).empty();
  if (operation == "DELETE" || deleting || anothers ||
      (before.is_object() && at(before, "/spec") == at(object, "/spec") &&
       queue_of(before) == queue_of(object))) {
    return Reviewed{.answer = response_of(uid, {}, {})};
  }
  if (!object.is_object() || text_at(object, "/kind") != jobspec::kKind) {
    return bad_input(std::string("the request's object is not a ") + jobspec::kKind);
  }
  std::vector<Finding> findings = findings_of(object, read_only_root), known;
  if (before.is_object()) {
    known = findings_of(before, read_only_root);
    compare(before, object, findings);
  }
  std::vector<Finding> errors;
  std::vector<std::string> warnings;
  for (const Finding& finding : findings) {
    const bool old = std::ranges::any_of(known, [&](const auto& k) { return same(k, finding); });
    if (finding.severity == Severity::Error && !old) {
      errors.push_back(finding);
      continue;
    }
    const char* kind = finding.severity == Severity::Error         ? "error: "
                       : finding.severity == Severity::Unsupported ? "unsupported: "
                                                                   : "";
    warnings.push_back(kind + jobspec::to_sentence(finding));
  }
  if (errors.empty() && try_pods &&
      at(before, "/spec/workers/template") != at(object, "/spec/workers/template")) {
    const PodAnswer answer = try_pods(object);
    if (!answer.refusal.empty())
      errors.push_back({Severity::Error, "spec.workers.template",
                        "the API server refuses worker 0's pod: " + answer.refusal,
                        "kubectl explain pod.spec lists what it knows"});
    if (!answer.doubt.empty())
      warnings.push_back("as things are no pod of it can be made: " + answer.doubt);
  }
  if (before.is_object() && errors.empty()) {
    if (std::string note = note_of(before, object); !note.empty()) warnings.push_back(note);
  }
  return Reviewed{.allowed = errors.empty(), .answer = response_of(uid, errors, warnings)};
}

}  // namespace dsj::op
