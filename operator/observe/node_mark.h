// What is left on a node that an agent found unfit, if the operator's administrator chose so: an
// annotation that says who found what and when, or that and a taint, which keeps every pod away. Only
// a person takes it away again. Pure.
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
/// By the words of the option: "none", "annotate", "taint".
std::optional<NodeMarks> node_marks_from_word(const std::string& word);

struct NodeMark {
  std::string node;
  std::string text;  ///< the annotation's
};

NodeMark node_mark(const std::string& node, const std::string& job, const std::string& message,
                   Time found);

/// The merge patch that annotates. With `node`, as the server has it, it taints too: taints are one
/// list, which is written whole, and only over the version that was read.
nlohmann::json mark_patch(const NodeMark& mark, const nlohmann::json* node);

}  // namespace dsj::op
