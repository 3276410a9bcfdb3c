#include "agent/gang/stall.h"

#include <algorithm>
#include <map>
#include <optional>

namespace dsj::agent {
namespace {

using Looks = std::span<const RankLook>;

/// The ranks of which `is` holds.
template <typename Is>
std::vector<int> those(Looks looks, const Is& is) {
  std::vector<int> ranks;
  for (int rank = 0; rank < static_cast<int>(looks.size()); ++rank) {
    if (is(looks[rank])) ranks.push_back(rank);
  }
  return ranks;
}

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

/// What anybody noted of the collective with this number.
std::optional<CollectiveSeen> seen(Looks looks, int64_t sequence) {
  for (const RankLook& look : looks) {
    for (const auto& one : look.begun) {
      if (one.sequence == sequence) return one;
    }
  }
  return std::nullopt;
}

std::string seconds(int64_t ms) {
  return std::to_string(ms / 1000) + " s";
}

/// "is in step 41, training, and ended all_gather #411 (layer 3, 4096 bytes) 31 s ago".
std::string whereabouts(const RankLook& look) {
  if (!look.known) return "has no flight log";
  std::string text = look.step > 0 ? "is in step " + std::to_string(look.step) + ", " : "is ";
  text += look.phase;
  if (look.begun.empty()) return text + ", and has not begun a collective";
  return text + (inside(look) ? ", in " : ", and ended ") + to_text(look.begun.back()) +
         (inside(look) ? " for " + seconds(look.quiet_ms) : " " + seconds(look.quiet_ms) + " ago");
}

/// "; ranks 0 and 1 wait in all_gather ...".
std::string waiting_text(const std::vector<int>& waiting, const std::string& collective) {
  if (waiting.empty() || collective.empty()) return "";
  return "; " + ranks_text(waiting) + (waiting.size() > 1 ? " wait in " : " waits in ") +
         collective;
}

Stall stopped(Looks looks, std::vector<int> culprits) {
  Stall stall{.ranks = std::move(culprits)};
  const RankLook& first = looks[stall.ranks.front()];
  stall.message = ranks_text(stall.ranks) +
                  (stall.ranks.size() > 1
                       ? " are stopped (SIGSTOP): rank " + std::to_string(stall.ranks.front()) + " "
                       : " is stopped (SIGSTOP): it ") +
                  whereabouts(first);
  const auto others = those(
      looks, [](const RankLook& look) { return look.known && !look.stopped && inside(look); });
  if (!others.empty()) stall.collective = to_text(looks[others.front()].begun.back());
  stall.message += waiting_text(others, stall.collective);
  return stall;
}

/// The first collective of which two ranks noted something else.
std::optional<Stall> differing(Looks looks) {
  std::map<int64_t, std::vector<std::pair<CollectiveSeen, std::vector<int>>>> by_number;
  for (int rank = 0; rank < static_cast<int>(looks.size()); ++rank) {
    for (const auto& one : looks[rank].begun) {
      auto& sides = by_number[one.sequence];
      auto side = std::ranges::find(sides, one, [](const auto& known) { return known.first; });
      if (side == sides.end()) side = sides.insert(sides.end(), {one, {}});
      side->second.push_back(rank);
    }
  }
  for (auto& [sequence, sides] : by_number) {
    if (sides.size() < 2) continue;
    std::ranges::stable_sort(sides, std::greater(),
                             [](const auto& side) { return side.second.size(); });
    Stall stall{.message = "the ranks issue different collectives: ",
                .collective = to_text(sides.front().first)};
    for (const auto& [what, ranks] : sides) {
      stall.message +=
          (&what == &sides.front().first ? "" : ", ") + to_text(what) + " on " + ranks_text(ranks);
    }
    if (sides.front().second.size() > sides[1].second.size()) {
      for (size_t i = 1; i < sides.size(); ++i) {
        stall.ranks.insert(stall.ranks.end(), sides[i].second.begin(), sides[i].second.end());
      }
      std::ranges::sort(stall.ranks);
    }
    return stall;
  }
  return std::nullopt;
}

/// Ranks that have not begun what others have.
std::optional<Stall> behind(Looks looks) {
  int64_t lowest = INT64_MAX, highest = 0;
  for (const RankLook& look : looks) {
    if (!look.known) continue;
    lowest = std::min(lowest, begun(look));
    highest = std::max(highest, begun(look));
  }
  if (lowest >= highest) return std::nullopt;
  Stall stall{.ranks = those(looks, [&](const RankLook& look) {
                return look.known && begun(look) == lowest;
              })};
  const bool many = stall.ranks.size() > 1;
  if (const auto what = seen(looks, lowest + 1)) stall.collective = to_text(*what);
  const auto waiting = those(looks, [&](const RankLook& look) { return begun(look) > lowest; });
  stall.message = ranks_text(stall.ranks) + " did not arrive: " +
                  (many ? "rank " + std::to_string(stall.ranks.front()) + " " : "it ") +
                  whereabouts(looks[stall.ranks.front()]) + waiting_text(waiting, stall.collective);
  return stall;
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

Stall judge_stall(Looks looks) {
  if (auto culprits = those(looks, [](const RankLook& look) { return look.stopped; });
      !culprits.empty()) {
    return stopped(looks, std::move(culprits));
  }
  if (auto stall = differing(looks)) return *stall;
  if (auto stall = behind(looks)) return *stall;
  const auto in = those(looks, inside);
  if (looks.size() == 1) {
    return {.message = "rank 0 " + whereabouts(looks[0]), .ranks = {0}};
  }
  if (!in.empty()) {
    const auto& what = looks[in.front()].begun.back();
    return {.message = ranks_text(in) + (in.size() > 1 ? " are in " : " is in ") + to_text(what) +
                       ", which every rank has begun and which does not end",
            .collective = to_text(what)};
  }
  const auto known = those(looks, [](const RankLook& look) { return look.known; });
  if (known.empty()) return {.message = "no rank keeps a flight log"};
  return {.message = "no rank is in a collective: rank " + std::to_string(known.front()) + " " +
                     whereabouts(looks[known.front()])};
}

}  // namespace dsj::agent
