#include "engine/comm/split.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "job/rank_runs.h"

namespace dsj::comm {
namespace {

std::string text_of(const Part& part) {
  return std::to_string(part.colour) + " " + std::to_string(part.key) + " " + part.name;
}

Part parse_part(const std::string& text) {
  std::istringstream fields(text);
  Part part;
  fields >> part.colour >> part.key;
  fields.get();  // one space; the name may begin with another
  std::getline(fields, part.name, '\0');
  return part;
}

constexpr char kNotSplit[] = "no ";  // before the reason, in rank 0's answer
constexpr char kOk[] = "ok ";        // before the members

/// Rank 0's answer to each rank.
std::vector<std::string> answers(const std::vector<std::string>& texts) {
  std::vector<Part> parts;
  for (const std::string& text : texts) parts.push_back(parse_part(text));
  const auto members = members_of(parts);
  if (!members) return std::vector<std::string>(texts.size(), kNotSplit + members.error().message);
  std::map<int, std::string> by_colour;  // made once: a part's ranks have the same
  std::vector<std::string> all;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    std::string& text = by_colour[parts[rank].colour];
    if (text.empty()) text = kOk + text_of_ranks((*members)[rank]);
    all.push_back(text);
  }
  return all;
}

}  // namespace

Result<std::vector<std::vector<int>>> members_of(std::span<const Part> parts) {
  const auto other = std::ranges::find_if(
      parts, [&](const Part& part) { return part.name != parts.front().name; });
  if (other != parts.end()) {
    return bad_input("rank " + std::to_string(other - parts.begin()) + " splits its group by \"" +
                     other->name + "\", rank 0 by \"" + parts.front().name + "\"");
  }
  std::map<int, std::vector<int>> by_colour;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (parts[rank].colour >= 0) by_colour[parts[rank].colour].push_back(static_cast<int>(rank));
  }
  for (auto& [colour, ranks] : by_colour) {
    std::ranges::stable_sort(ranks, {},
                             [&](int rank) { return parts[static_cast<std::size_t>(rank)].key; });
  }
  std::vector<std::vector<int>> members(parts.size());
  for (const auto& [colour, ranks] : by_colour) {
    for (const int rank : ranks) members[static_cast<std::size_t>(rank)] = ranks;
  }
  return members;
}

Result<std::unique_ptr<Rendezvous>> split(Rendezvous& rendezvous, const std::string& key,
                                          const Part& part) {
  DSJ_TRY(const std::string answer, rendezvous.deal(key, text_of(part), answers));
  if (answer.starts_with(kNotSplit)) return bad_input(answer.substr(sizeof kNotSplit - 1));
  const auto members = parse_ranks(answer.substr(sizeof kOk - 1), rendezvous.options().world);
  if (!members) return fail(ErrorKind::Internal, "rank 0 dealt no ranks: " + answer);
  if (members->empty()) return std::unique_ptr<Rendezvous>();
  return rendezvous.part(key + " of colour " + std::to_string(part.colour), *members, part.name);
}

}  // namespace dsj::comm
