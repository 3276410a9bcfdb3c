#include "agent/diagnose/rank_look.h"

#include <algorithm>

#include "job/flight_log.h"

namespace dsj::agent {
namespace {

using nlohmann::json;

/// Ranks are at most one or two collectives apart. More entries would only make beats longer.
constexpr size_t kBegunMost = 4;
constexpr size_t kNameMost = 64;
constexpr size_t kMembersMost = 128;

template <typename Look>
int64_t last_begun(const Look& look) {
  return std::max(look.ended, look.begun.empty() ? 0 : look.begun.back().sequence);
}

/// Fills the common part of a rank's and a group's look from the flight log.
template <typename Picture, typename Look>
void show_progress(const Picture& picture, int64_t now_ns, Look& look) {
  look.issued = static_cast<int64_t>(picture.issued);
  look.ended = static_cast<int64_t>(picture.ended);
  look.waits_for = picture.waits_for;
  int64_t changed = 0;
  for (const auto& operation : picture.operations) {
    if (operation.state == FlightOperation::State::Issued) continue;
    changed = std::max(changed, operation.changed_ns);
    look.begun.push_back({static_cast<int64_t>(operation.sequence), operation.kind, operation.unit,
                          operation.bytes});
  }
  if (look.begun.size() > kBegunMost) {
    look.begun.erase(look.begun.begin(), look.begun.end() - kBegunMost);
  }
  if (changed > 0) look.quiet_ms = std::max<int64_t>(0, now_ns - changed) / 1'000'000;
}

GroupLook look_at_group(const FlightGroupPicture& picture, int64_t now_ns) {
  GroupLook look{.id = static_cast<int64_t>(picture.group.id),
                 .name = picture.group.name,
                 .members = picture.group.members,
                 .within = picture.group.within ? static_cast<int64_t>(*picture.group.within) : -1};
  show_progress(picture, now_ns, look);
  return look;
}

json to_json(const std::vector<CollectiveSeen>& begun) {
  json list = json::array();
  for (const auto& one : begun) list.push_back({one.sequence, one.kind, one.unit, one.bytes});
  return list;
}

Result<std::vector<CollectiveSeen>> begun_from_json(const json& list) {
  if (!list.is_array() || list.size() > kBegunMost) return bad_input("too many collectives");
  std::vector<CollectiveSeen> begun;
  for (const json& one : list) {
    begun.push_back({one.at(0), one.at(1), one.at(2), one.at(3)});
    if (begun.back().kind.size() > kNameMost || begun.back().unit.size() > kNameMost) {
      return bad_input("the name of a collective is too long");
    }
  }
  return begun;
}

/// Writes or reads the common part of a rank's and a group's look.
template <typename Look>
void write_progress(const Look& look, json& object) {
  object["issued"] = look.issued;
  object["ended"] = look.ended;
  object["quietMs"] = look.quiet_ms;
  object["waitsFor"] = look.waits_for;
  object["begun"] = to_json(look.begun);
}
template <typename Look>
Status read_progress(const json& object, Look& look) {
  object.at("issued").get_to(look.issued);
  object.at("ended").get_to(look.ended);
  object.at("quietMs").get_to(look.quiet_ms);
  look.waits_for = object.value("waitsFor", -1);
  DSJ_TRY(look.begun, begun_from_json(object.at("begun")));
  return {};
}

json to_json(const GroupLook& look) {
  json object = {
      {"id", look.id}, {"name", look.name}, {"members", look.members}, {"within", look.within}};
  write_progress(look, object);
  return object;
}

Result<GroupLook> group_from_json(const json& object) {
  GroupLook look;
  object.at("id").get_to(look.id);
  object.at("name").get_to(look.name);
  object.at("members").get_to(look.members);
  object.at("within").get_to(look.within);
  DSJ_TRY_STATUS(read_progress(object, look));
  if (look.name.size() > kNameMost || look.members.size() > kMembersMost || look.id <= 0) {
    return bad_input("a group of ranks has no proper name");
  }
  return look;
}

}  // namespace

std::string to_text(const CollectiveSeen& collective) {
  return collective.kind + " #" + std::to_string(collective.sequence) + " (" +
         (collective.unit.empty() ? "" : collective.unit + ", ") +
         std::to_string(collective.bytes) + " bytes)";
}

int64_t begun(const RankLook& look) {
  return last_begun(look);
}

int64_t begun(const GroupLook& look) {
  return last_begun(look);
}

bool inside(const RankLook& look) {
  return begun(look) > look.ended;
}

bool inside(const GroupLook& look) {
  return begun(look) > look.ended;
}

bool moved(const RankLook& before, const RankLook& after) {
  return before.ticks != after.ticks || before.issued != after.issued ||
         before.ended != after.ended || before.step != after.step || before.phase != after.phase ||
         !std::ranges::equal(before.groups, after.groups, [](const auto& a, const auto& b) {
           return a.id == b.id && a.issued == b.issued && a.ended == b.ended;
         });
}

RankLook look_at(std::string_view flight, bool stopped, int64_t now_ns) {
  RankLook look{.stopped = stopped};
  const auto picture = flight_picture(flight);
  if (!picture) return look;
  look.known = true;
  look.phase = name_of(picture->phase);
  look.step = picture->step;
  look.ticks = static_cast<int64_t>(picture->ticks);
  show_progress(*picture, now_ns, look);
  for (const auto& group : picture->groups) look.groups.push_back(look_at_group(group, now_ns));
  return look;
}

json to_json(const RankLook& look) {
  json object = {{"known", look.known},
                 {"stopped", look.stopped},
                 {"phase", look.phase},
                 {"step", look.step},
                 {"ticks", look.ticks}};
  write_progress(look, object);
  for (const GroupLook& group : look.groups) object["groups"].push_back(to_json(group));
  return object;
}

Result<RankLook> rank_look_from_json(const json& object) {
  RankLook look;
  try {
    object.at("known").get_to(look.known);
    object.at("stopped").get_to(look.stopped);
    object.at("phase").get_to(look.phase);
    object.at("step").get_to(look.step);
    object.at("ticks").get_to(look.ticks);
    DSJ_TRY_STATUS(read_progress(object, look));
    const json groups = object.value("groups", json::array());
    if (!groups.is_array() || groups.size() > FlightLog::kGroups) {
      return bad_input("too many groups of ranks");
    }
    for (const json& group : groups) {
      DSJ_TRY(GroupLook one, group_from_json(group));
      look.groups.push_back(std::move(one));
    }
  } catch (const json::exception& error) {
    return bad_input(error.what());
  }
  if (look.phase.size() > kNameMost) return bad_input("the name of a phase is too long");
  return look;
}

}  // namespace dsj::agent
