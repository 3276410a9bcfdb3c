#include "operator/observe/unhealthy_nodes.h"

#include <algorithm>
#include <sstream>

#include "common/cut_text.h"

namespace dsj::op {
namespace {

constexpr Seconds kLongestPause{300};
constexpr int kDoublings = 8;  // the longest pause is reached after these
constexpr size_t kNodeMessageMax = 300;

}  // namespace

void note_unhealthy(std::vector<UnhealthyNode>& nodes, const std::string& name,
                    const std::string& message, Time now, std::optional<Time> until) {
  UnhealthyNode entry{.name = name,
                      .message = text::first_bytes(message, kNodeMessageMax),
                      .found = now,
                      .until = until};
  const auto before = std::ranges::find(nodes, name, &UnhealthyNode::name);
  if (before != nodes.end()) {
    entry.times = before->times + 1;
    nodes.erase(before);
  }
  nodes.push_back(std::move(entry));
  while (nodes.size() > kUnhealthyMax) nodes.erase(nodes.begin());
}

std::optional<Time> forget_unhealthy(std::vector<UnhealthyNode>& nodes, Seconds avoid, Time now) {
  const auto end = [&](const UnhealthyNode& node) {
    return node.until.value_or(node.found + avoid);
  };
  std::erase_if(nodes, [&](const UnhealthyNode& node) { return now >= end(node); });
  if (nodes.empty()) return std::nullopt;
  return end(std::ranges::min(nodes, {}, end));
}

std::set<std::string> names_of(const std::vector<UnhealthyNode>& nodes) {
  std::set<std::string> names;
  for (const UnhealthyNode& node : nodes) names.insert(node.name);
  return names;
}

Seconds pause_after(const std::vector<UnhealthyNode>& nodes, const std::set<std::string>& found) {
  int again = nodes.size() == kUnhealthyMax ? kDoublings - 2 : 0;
  for (const UnhealthyNode& node : nodes) {
    if (found.contains(node.name)) again = std::max(again, node.times - 1);
  }
  if (again == 0) return Seconds(0);
  return std::min(kLongestPause, Seconds(1 << std::min(again + 1, kDoublings + 1)));
}

std::string avoids_text(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return text;
}

std::set<std::string> avoids_from_text(const std::string& text) {
  std::set<std::string> names;
  std::istringstream list(text);
  for (std::string name; std::getline(list, name, ',');) {
    if (!name.empty()) names.insert(name);
  }
  return names;
}

}  // namespace dsj::op
