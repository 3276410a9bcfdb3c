#include "agent/gang/rank_look.h"

#include <algorithm>

#include "job/flight_log.h"

namespace dsj::agent {
namespace {

using nlohmann::json;

/// Ranks are at most one or two collectives apart. More would only make beats longer.
constexpr size_t kBegunMost = 4;
constexpr size_t kNameMost = 64;

}  // namespace

std::string to_text(const CollectiveSeen& collective) {
  return collective.kind + " #" + std::to_string(collective.sequence) + " (" +
         (collective.unit.empty() ? "" : collective.unit + ", ") +
         std::to_string(collective.bytes) + " bytes)";
}

int64_t begun(const RankLook& look) {
  return std::max(look.ended, look.begun.empty() ? 0 : look.begun.back().sequence);
}

bool inside(const RankLook& look) {
  return begun(look) > look.ended;
}

bool moved(const RankLook& before, const RankLook& after) {
  return before.ticks != after.ticks || before.issued != after.issued ||
         before.ended != after.ended || before.step != after.step || before.phase != after.phase;
}

RankLook look_at(std::string_view flight, bool stopped, int64_t now_ns) {
  RankLook look{.stopped = stopped};
  const auto picture = flight_picture(flight);
  if (!picture) return look;
  look.known = true;
  look.phase = name_of(picture->phase);
  look.step = picture->step;
  look.ticks = static_cast<int64_t>(picture->ticks);
  look.issued = static_cast<int64_t>(picture->issued);
  look.ended = static_cast<int64_t>(picture->ended);
  int64_t changed = 0;
  for (const auto& operation : picture->operations) {
    if (operation.state == FlightOperation::State::Issued) continue;
    changed = std::max(changed, operation.changed_ns);
    look.begun.push_back({static_cast<int64_t>(operation.sequence), operation.kind, operation.unit,
                          operation.bytes});
  }
  if (look.begun.size() > kBegunMost) {
    look.begun.erase(look.begun.begin(), look.begun.end() - kBegunMost);
  }
  if (changed > 0) look.quiet_ms = std::max<int64_t>(0, now_ns - changed) / 1'000'000;
  return look;
}

json to_json(const RankLook& look) {
  json begun = json::array();
  for (const auto& one : look.begun) {
    begun.push_back({one.sequence, one.kind, one.unit, one.bytes});
  }
  return {{"known", look.known}, {"stopped", look.stopped},  {"phase", look.phase},
          {"step", look.step},   {"ticks", look.ticks},      {"issued", look.issued},
          {"ended", look.ended}, {"quietMs", look.quiet_ms}, {"begun", std::move(begun)}};
}

Result<RankLook> rank_look_from_json(const json& object) {
  RankLook look;
  try {
    object.at("known").get_to(look.known);
    object.at("stopped").get_to(look.stopped);
    object.at("phase").get_to(look.phase);
    object.at("step").get_to(look.step);
    object.at("ticks").get_to(look.ticks);
    object.at("issued").get_to(look.issued);
    object.at("ended").get_to(look.ended);
    object.at("quietMs").get_to(look.quiet_ms);
    const json& begun = object.at("begun");
    if (!begun.is_array() || begun.size() > kBegunMost) return bad_input("too many collectives");
    for (const json& one : begun) {
      look.begun.push_back({one.at(0), one.at(1), one.at(2), one.at(3)});
      if (look.begun.back().kind.size() > kNameMost || look.begun.back().unit.size() > kNameMost) {
        return bad_input("the name of a collective is too long");
      }
    }
  } catch (const json::exception& error) {
    return bad_input(error.what());
  }
  if (look.phase.size() > kNameMost) return bad_input("the name of a phase is too long");
  return look;
}

}  // namespace dsj::agent
