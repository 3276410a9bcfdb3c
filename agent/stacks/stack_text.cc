#include "agent/stacks/stack_text.h"

#include <algorithm>

namespace dsj::agent {
namespace {

constexpr size_t kInnermost = 6, kNameMost = 60, kThreadsNamed = 8;

/// "engine::wait" from "engine::wait(int, char const*) const".
std::string short_name(std::string name) {
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    depth += name[i] == '<';
    depth -= name[i] == '>';
    const bool anonymous = name.compare(i, 12, "(anonymous n") == 0;
    if (name[i] == '(' && depth == 0 && i > 0 && !anonymous) {
      name.resize(i);
      break;
    }
  }
  if (name.size() > kNameMost) name = name.substr(0, kNameMost - 3) + "...";
  return name;
}

std::string threads_text(const std::vector<const ThreadStack*>& threads) {
  std::string text = threads.size() == 1 ? "thread" : std::to_string(threads.size()) + " threads";
  for (size_t i = 0; i < std::min(threads.size(), kThreadsNamed); ++i) {
    text += (i == 0 ? " " : ", ") + std::to_string(threads[i]->thread) + " " + threads[i]->name;
  }
  return text + (threads.size() > kThreadsNamed ? ", ..." : "");
}

}  // namespace

std::vector<std::string> lines_of(const RankStacks& rank) {
  std::vector<std::string> lines = {"rank " + std::to_string(rank.rank) + ", process " +
                                    std::to_string(rank.pid)};
  if (!rank.problem.empty()) lines.back() += ": " + rank.problem;
  std::vector<std::vector<const ThreadStack*>> groups;
  for (const ThreadStack& thread : rank.threads) {
    const auto same = [&](const auto& group) {
      return group.front()->frames == thread.frames && group.front()->problem == thread.problem;
    };
    const auto group = std::ranges::find_if(groups, same);
    if (group == groups.end()) {
      groups.push_back({&thread});
    } else {
      group->push_back(&thread);
    }
  }
  for (const auto& group : groups) {
    lines.push_back("  " + threads_text(group));
    for (const StackFrame& frame : group.front()->frames) {
      lines.push_back("    " + (frame.function.empty() ? "?" : frame.function) +
                      (frame.file.empty() ? "" : " (" + frame.file + ")"));
    }
    if (const std::string& why = group.front()->problem; !why.empty()) {
      lines.push_back("    incomplete: " + why);
    }
  }
  return lines;
}

std::string where_of(const RankStacks& rank) {
  if (!rank.problem.empty()) return "at an unknown location: " + rank.problem;
  if (rank.threads.empty()) return "at an unknown location";
  const ThreadStack& first = rank.threads.front();
  std::string names;
  size_t count = 0;
  for (const StackFrame& frame : first.frames) {
    if (frame.function.empty() || count == kInnermost) continue;
    names += (count++ == 0 ? "" : " < ") + short_name(frame.function);
  }
  if (names.empty()) names = "code without names";
  return "in " + names + " (thread " + std::to_string(first.thread) + ", " + first.name + ")";
}

}  // namespace dsj::agent
