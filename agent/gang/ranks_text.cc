#include "agent/gang/ranks_text.h"

#include <vector>

namespace dsj::agent {
namespace {

/// "0-2" and the like.
std::vector<std::string> stretches(std::span<const int> ranks) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    texts.push_back(std::to_string(ranks[i]));
    if (end - i > 1) texts.back() += "-" + std::to_string(ranks[end - 1]);
    i = end;
  }
  return texts;
}

}  // namespace

std::string ranks_list(std::span<const int> ranks) {
  std::string text;
  for (const auto& one : stretches(ranks)) text += (text.empty() ? "" : ", ") + one;
  return text;
}

std::string ranks_text(std::span<const int> ranks) {
  constexpr size_t kShown = 8;
  auto texts = stretches(ranks);
  std::string last;
  if (texts.size() > kShown) {
    texts.resize(kShown);
    last = "more";
  } else if (texts.size() > 1) {
    last = std::move(texts.back());
    texts.pop_back();
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < texts.size(); ++i) text += (i == 0 ? "" : ", ") + texts[i];
  return last.empty() ? text : text + " and " + last;
}

}  // namespace dsj::agent
