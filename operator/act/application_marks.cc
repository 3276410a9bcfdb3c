// Marks on nodes (node_mark.h): the only objects that the operator writes without a job as owner.
#include "operator/act/application.h"

namespace dsj::op {
namespace {

constexpr int kMarkTries = 3;  // kubelets and others also write the node

}  // namespace

kube::ApiResult<Json> Application::write_mark(const NodeMark& mark) {
  const auto nodes = kube::resources::nodes();
  if (o_.settings.node_marks == NodeMarks::Annotate) {
    return client_.merge_patch(nodes, "", mark.node, mark_patch(mark, nullptr));
  }
  const auto node = client_.get(nodes, "", mark.node);
  if (!node) return node;
  return client_.merge_patch(nodes, "", mark.node, mark_patch(mark, &*node));
}

bool Application::mark(const NodeMark& mark) {
  using Kind = kube::ApiError::Kind;
  const bool taints = o_.settings.node_marks == NodeMarks::Taint;
  for (int left = kMarkTries;; --left) {
    if (!allowed()) return false;
    const auto written = write_mark(mark);
    if (written) {
      events.push_back({"Normal", taints ? "NodeTainted" : "NodeAnnotated",
                        "node " + mark.node + " has " + kNodeMarkName + " now; " +
                            (taints ? "remove the taint when the node is repaired"
                                    : "remove the annotation when the node is repaired")});
      return true;
    }
    const kube::ApiError& error = written.error();
    if (error.kind == Kind::Conflict && left > 1) continue;
    const std::string what = "mark of node " + mark.node;
    if (error.kind == Kind::Conflict || error.status == 0 || error.passing()) {
      return failed(error, what);
    }
    std::string text = what + ": " + error.to_string();
    if (error.kind == Kind::Forbidden) {
      text +=
          "; the chart gives the right with unhealthyNodes.mark; without the chart grant get and "
          "patch of nodes, or leave --mark-nodes out";
    }
    events.push_back({"Warning", "NodeNotMarked", text});
    return true;
  }
}

}  // namespace dsj::op
