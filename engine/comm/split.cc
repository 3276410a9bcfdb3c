#include "engine/comm/split.h"

#include <algorithm>
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
  fields.get();  // one separator; the name may begin with a space
  std::getline(fields, part.name, '\0');
  return part;
}

constexpr char kNotSplit[] = "no ";  // precedes the reason in rank 0's answer
constexpr char kOk[] = "ok ";        // precedes the members

/// Rank 0's answer to each rank.
std::vector<std::string> answers(const std::vector<std::string>& texts) {
  std::vector<Part> parts;
  for (const std::string& text : texts) parts.push_back(parse_part(text));
  const auto members = members_of(parts);
  if (!members) return std::vector<std::string>(texts.size(), kNotSplit + members.error().message);
  std::map<int, std::string> of_colour;
  for (const auto& [colour, ranks] : *members) of_colour[colour] = kOk + text_of_ranks(ranks);
  std::vector<std::string> all;
  for (const Part& part : parts) {
    const auto found = of_colour.find(part.colour);
    all.push_back(found == of_colour.end() ? kOk : found->second);
  }
  return all;
}

}  // namespace

Result<std::map<int, std::vector<int>>> members_of(std::span<const Part> parts) {
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
  return by_colour;
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
