#include "job/spec/user_program.h"

#include <algorithm>

#include "common/json.h"
#include "common/text.h"
#include "job/contract.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
const json kNull;

const json& list_of(const json& object, const char* name) {
  if (!object.is_object()) return kNull;
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : kNull;
}

/// By the names of the vendors' device plugins: "amd.com/gpu", "gpu.intel.com/xe", "huawei.com/Ascend910".
bool is_accelerator(const std::string& name) {
  static constexpr const char* kOthers[] = {
      "habana.ai/",        "google.com/tpu", "aws.amazon.com/neuron",
      "huawei.com/Ascend", "cambricon.com/", "qualcomm.com/qaic",
      "furiosa.ai/",       "rebellions.ai/", "tenstorrent.com/"};
  return name.find("gpu") != std::string::npos ||
         std::ranges::any_of(kOthers, [&](const char* other) { return name.starts_with(other); });
}

}  // namespace

const json& worker_container(const json& worker_template) {
  const auto at = json::json_pointer("/spec/containers");
  if (!worker_template.is_object() || !worker_template.contains(at)) return kNull;
  const json& containers = worker_template[at];
  if (!containers.is_array()) return kNull;
  for (const json& container : containers)
    if (container.is_object() && container.value("name", json()) == contract::kContainerName)
      return container;
  return kNull;
}

WorkerGpus worker_gpus(const json& worker_template) {
  const json& container = worker_container(worker_template);
  WorkerGpus most;
  for (const char* kind : {"limits", "requests"}) {
    const json::json_pointer at = json::json_pointer("/resources") / kind;
    if (!container.is_object() || !container.contains(at) || !container[at].is_object()) continue;
    WorkerGpus asked;
    for (const auto& [name, amount] : container[at].items()) {
      const bool nvidia = name.starts_with("nvidia.com/");
      const bool part =
          nvidia && (name.starts_with("nvidia.com/mig-") || name.ends_with(".shared"));
      if (!nvidia && is_accelerator(name)) most.other = name;
      if (name != "nvidia.com/gpu" && !part) continue;
      int64_t& count = part ? asked.parts : asked.whole;
      if (amount.is_number_integer()) count += amount.get<int64_t>();
      if (amount.is_string()) count += text::parse_int(amount.get<std::string>()).value_or(0);
    }
    most.whole = std::max(most.whole, asked.whole);
    most.parts = std::max(most.parts, asked.parts);
  }
  most.claimed = !list_of(json_child(container, "resources"), "claims").empty();
  return most;
}

json worker_resources(const json& worker_template) {
  json same = json::object();
  const json& resources = json_child(worker_container(worker_template), "resources");
  for (const char* kind : {"requests", "limits"}) {
    for (const char* name : {"cpu", "memory", "ephemeral-storage"}) {
      const json& amount = json_child(json_child(resources, kind), name);
      if (!amount.is_null()) same[kind][name] = amount;
    }
  }
  return same;
}

std::vector<std::string> user_command(const json& worker_template) {
  const json& container = worker_container(worker_template);
  std::vector<std::string> words;
  for (const char* name : {"command", "args"}) {
    for (const json& word : list_of(container, name))
      if (word.is_string()) words.push_back(word);
    if (words.empty()) return {};
  }
  return words;
}

std::string expand_references(const std::string& text, const Lookup& lookup) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      result += text[i];
      continue;
    }
    if (text.compare(i, 2, "$$") == 0) {
      result += '$';
      ++i;
      continue;
    }
    const size_t end = text.compare(i, 2, "$(") == 0 ? text.find(')', i) : std::string::npos;
    const std::string* value =
        end == std::string::npos ? nullptr : lookup(text.substr(i + 2, end - i - 2));
    if (value == nullptr) {
      result += '$';
      continue;
    }
    result += *value;
    i = end;
  }
  return result;
}

std::vector<std::pair<std::string, std::string>> user_environment(const json& worker_template,
                                                                  const Lookup& lookup) {
  std::vector<std::pair<std::string, std::string>> variables;
  const Lookup known = [&](const std::string& name) -> const std::string* {
    const auto found = std::ranges::find(variables.rbegin(), variables.rend(), name,
                                         &std::pair<std::string, std::string>::first);
    return found != variables.rend() ? &found->second : lookup(name);
  };
  for (const json& variable : list_of(worker_container(worker_template), "env")) {
    if (!variable.is_object() || !variable.contains("name") || !variable["name"].is_string())
      continue;
    const auto value = variable.find("value");
    const std::string text =
        value != variable.end() && value->is_string() ? value->get<std::string>() : "";
    variables.emplace_back(variable["name"], expand_references(text, known));
  }
  return variables;
}

}  // namespace dsj::jobspec
