// The mark on a node that an agent found unfit, if the administrator enabled marks: an annotation
// with job, finding and time, and optionally a taint that keeps all pods away. The operator never
// removes it; an administrator does. Pure.
// Tested by: tests/operator/node_mark_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "operator/observe/times.h"

namespace dsj::op {

/// The annotation's name, and the key of the taint (effect NoSchedule).
inline constexpr char kNodeMarkName[] = "training.dsj.dev/unhealthy";

enum class NodeMarks { None, Annotate, Taint };
/// Parses the option's value: "none", "annotate" or "taint".
std::optional<NodeMarks> node_marks_from_word(const std::string& word);

struct NodeMark {
  std::string node;
  std::string text;  ///< value of the annotation
};

NodeMark node_mark(const std::string& node, const std::string& job, const std::string& message,
                   Time found);

/// The merge patch that sets the annotation. With `node`, the object as read from the server, it
/// also adds the taint. A merge patch replaces the whole list of taints, so it applies only to the
/// resource version that was read.
nlohmann::json mark_patch(const NodeMark& mark, const nlohmann::json* node);

}  // namespace dsj::op
