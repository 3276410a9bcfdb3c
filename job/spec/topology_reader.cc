#include "job/spec/topology_reader.h"

#include <algorithm>

#include "common/json.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
using Severity = FieldReader::Severity;

constexpr char kTopologyPath[] = "spec.workers.topology";
constexpr char kRequiredTerms[] = "requiredDuringSchedulingIgnoredDuringExecution";
constexpr size_t kNameMax = 63, kPrefixMax = 253;

bool is_lower_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool is_alphanumeric(char c) {
  return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z');
}

/// Not empty, of `inner` or the characters of `others`, with an `inner` at both ends.
bool is_word(const std::string& text, bool (*inner)(char), const std::string& others) {
  return !text.empty() && inner(text.front()) && inner(text.back()) &&
         std::ranges::all_of(text, [&](char c) { return inner(c) || others.contains(c); });
}

/// A DNS name: words of a-z, 0-9 and -, with dots between them.
bool is_prefix(const std::string& text) {
  if (text.size() > kPrefixMax) return false;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    if (!is_word(text.substr(begin, end - begin), is_lower_or_digit, "-")) return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

bool is_label_key(const std::string& text) {
  const size_t slash = text.find('/');
  const bool prefixed = slash != std::string::npos;
  if (prefixed && !is_prefix(text.substr(0, slash))) return false;
  const std::string name = prefixed ? text.substr(slash + 1) : text;
  return name.size() <= kNameMax && is_word(name, is_alphanumeric, "-_.");
}

std::optional<Topology> read_topology(const json& workers, FieldReader& reader) {
  const json* object = reader.object(workers, "topology", kTopologyPath);
  if (object == nullptr) return std::nullopt;
  reader.fields(*object, kTopologyPath);
  Topology topology;
  const std::string at = FieldReader::join(kTopologyPath, "key");
  const json& key = json_child(*object, "key");
  if (key.is_null())
    reader.report(Severity::Error, at, "a field is missing",
                  "name a label of the nodes, for example topology.kubernetes.io/rack");
  else if (!key.is_string() || !is_label_key(key.get<std::string>()))
    reader.report(Severity::Error, at,
                  "found " + FieldReader::shown(key) + ", expected the key of a node label",
                  "`kubectl get nodes --show-labels` lists them");
  else
    topology.key = key.get<std::string>();
  std::string mode;
  if (json_child(*object, "mode").is_null())
    reader.report(Severity::Error, FieldReader::join(kTopologyPath, "mode"), "a field is missing",
                  "Required or Preferred");
  else
    reader.choice(*object, kTopologyPath, "mode", {"Required", "Preferred"}, mode);
  if (topology.key.empty() || mode.empty()) return std::nullopt;
  topology.mode = mode == "Required" ? Topology::Mode::Required : Topology::Mode::Preferred;
  return topology;
}

void check_topology(const Topology& topology, GangScheduler scheduler, const json& pod_template,
                    FieldReader& reader) {
  if (scheduler == GangScheduler::Volcano)
    return reader.report(Severity::Unsupported, kTopologyPath,
                         "Volcano packs a group by the tiers of its HyperNodes: it knows no label "
                         "of nodes as a domain",
                         "remove topology or runPolicy.schedulingPolicy; Kueue packs by a label");
  const std::string pod = "spec.workers.template.";
  if (scheduler == GangScheduler::Kueue) {
    const json& theirs = json_child(json_child(pod_template, "metadata"), "annotations");
    for (const char* kind : {"required", "preferred", "unconstrained"}) {
      const std::string name = std::string("kueue.x-k8s.io/podset-") + kind + "-topology";
      if (theirs.is_object() && theirs.contains(name))
        reader.report(Severity::Error, pod + "metadata.annotations",
                      "\"" + name + "\" and " + kTopologyPath +
                          " say both where the pods go, and Kueue takes one",
                      "remove one of the two");
    }
    return;
  }
  const json& affinity =
      json_child(json_child(json_child(pod_template, "spec"), "affinity"), "podAffinity");
  const json& terms = json_child(affinity, kRequiredTerms);
  if (topology.mode == Topology::Mode::Required && terms.is_array() && !terms.empty())
    reader.report(Severity::Error, pod + "spec.affinity.podAffinity." + kRequiredTerms,
                  "a required term of one's own does not go with " + std::string(kTopologyPath) +
                      ": only pods that match all required terms count, and none does before the "
                      "first worker",
                  "write it as preferredDuringSchedulingIgnoredDuringExecution, or topology as "
                  "mode: Preferred");
}

}  // namespace dsj::jobspec
