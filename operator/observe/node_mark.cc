#include "operator/observe/node_mark.h"

#include <algorithm>

#include "common/json.h"

namespace dsj::op {
namespace {

using nlohmann::json;

constexpr char kNoSchedule[] = "NoSchedule";

bool is_the_taint(const json& taint) {
  return json_text(taint, "key") == kNodeMarkName && json_text(taint, "effect") == kNoSchedule;
}

}  // namespace

std::optional<NodeMarks> node_marks_from_word(const std::string& word) {
  if (word == "none") return NodeMarks::None;
  if (word == "annotate") return NodeMarks::Annotate;
  if (word == "taint") return NodeMarks::Taint;
  return std::nullopt;
}

NodeMark node_mark(const std::string& node, const std::string& job, const std::string& message,
                   Time found) {
  return {.node = node, .text = to_text(found) + " " + job + ": " + message};
}

json mark_patch(const NodeMark& mark, const json* node) {
  json patch = {{"metadata", {{"annotations", {{kNodeMarkName, mark.text}}}}}};
  if (node == nullptr) return patch;
  const json& found = json_child(json_child(*node, "spec"), "taints");
  json taints = found.is_array() ? found : json::array();
  if (std::ranges::any_of(taints, is_the_taint)) return patch;
  taints.push_back({{"key", kNodeMarkName}, {"effect", kNoSchedule}});
  patch["metadata"]["resourceVersion"] =
      json_text(json_child(*node, "metadata"), "resourceVersion");
  patch["spec"]["taints"] = std::move(taints);
  return patch;
}

}  // namespace dsj::op
