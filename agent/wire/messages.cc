#include "agent/wire/messages.h"

#include <algorithm>
#include <limits>

namespace dsj::agent {
namespace {

using nlohmann::json;

/// Reads the members of one JSON object. Keeps the first problem; later reads then do nothing.
class Reader {
 public:
  explicit Reader(const json& object) : object_(object) {
    if (!object.is_object()) problem_ = "not an object";
  }
  int64_t integer(const char* key, int64_t low, int64_t high) {
    const json* value = member(key);
    if (!value) return low;
    if (!value->is_number_integer()) return note(key, "an integer"), low;
    const auto number = value->get<int64_t>();
    if (number < low || number > high) return note(key, "within its range"), low;
    return number;
  }
  bool boolean(const char* key) {
    const json* value = member(key);
    if (!value) return false;
    if (!value->is_boolean()) return note(key, "a boolean"), false;
    return value->get<bool>();
  }
  /// A boolean that agents of an older version do not send; then false.
  bool flag(const char* key) { return problem_.empty() && object_.contains(key) && boolean(key); }
  /// A nonnegative integer that is omitted if it is 0.
  int64_t some(const char* key) {
    return problem_.empty() && object_.contains(key)
               ? integer(key, 0, std::numeric_limits<int64_t>::max())
               : 0;
  }
  std::string text(const char* key, size_t most) {
    const json* value = member(key);
    if (!value) return {};
    if (!value->is_string()) return note(key, "a string"), std::string();
    auto result = value->get<std::string>();
    if (result.size() > most) return note(key, "shorter"), std::string();
    return result;
  }
  const json* array(const char* key) {
    const json* value = member(key);
    if (value && !value->is_array()) return note(key, "an array"), nullptr;
    return value;
  }
  const std::string& problem() const { return problem_; }

 private:
  const json* member(const char* key) {
    if (!problem_.empty()) return nullptr;
    const auto found = object_.find(key);
    if (found == object_.end()) return note(key, "present"), nullptr;
    return &*found;
  }
  void note(const char* key, const char* expected) {
    problem_ = std::string("\"") + key + "\" should be " + expected;
  }
  const json& object_;
  std::string problem_;
};

/// The longest node name, address or key.
constexpr size_t kNameMax = 255;

constexpr int64_t kMostSlots = 1024;
constexpr int64_t kMostWorkers = 65536;
constexpr int64_t kBig = std::numeric_limits<int64_t>::max();

RankState rank_from(const json& object, std::string& problem) {
  Reader in(object);
  RankState rank{.running = in.boolean("running"),
                 .exit_code = static_cast<int>(in.integer("exitCode", 0, 255)),
                 .signal = static_cast<int>(in.integer("signal", 0, 255)),
                 .stopped = in.boolean("stopped"),
                 .asked = in.boolean("asked"),
                 .own_codes = in.boolean("ownCodes"),
                 .exit_order = static_cast<int>(in.integer("exitOrder", 0, kMostSlots)),
                 .step = in.integer("step", 0, kBig),
                 .reason = in.text("reason", kLastWordsBytesMax),
                 .message = in.text("message", kLastWordsBytesMax),
                 .last_words = in.text("lastWords", kLastWordsBytesMax)};
  if (const json* pace = object.contains("pace") ? in.array("pace") : nullptr) {
    const bool whole = pace->size() == 3 && std::ranges::all_of(*pace, [](const json& number) {
                         return number.is_number_integer() && number >= 0;
                       });
    if (!whole && problem.empty()) problem = "pace: three numbers are expected";
    if (whole) rank.pace = {(*pace)[0], (*pace)[1], (*pace)[2]};
  }
  if (problem.empty()) problem = in.problem();
  return rank;
}

/// An optional object of a beat or an answer; null if it is absent, as from an older agent.
const json* link_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

/// Records the problem of the part `key` if it is the first one.
void keep_first(const Reader& in, const char* key, std::string& problem) {
  if (problem.empty() && !in.problem().empty()) problem = std::string(key) + ": " + in.problem();
}

LinkPlace link_place_from(const json& object, std::string& problem) {
  Reader in(object);
  LinkPlace place{.node = in.text("node", kNameMax),
                  .address = in.text("address", kNameMax),
                  .port = static_cast<int>(in.integer("port", 1, 65535)),
                  .key = in.text("key", kNameMax),
                  .moves = in.boolean("moves")};
  keep_first(in, "link", problem);
  return place;
}

LinkRate link_rate_from(const json& object, std::string& problem) {
  Reader in(object);
  LinkRate rate{.round = in.integer("round", 1, kBig),
                .bytes_per_second = in.integer("bytesPerSecond", 0, kBig),
                .problem = in.text("problem", kLinkTextMax)};
  keep_first(in, "linkRate", problem);
  return rate;
}

LinkOrder link_order_from(const json& object, std::string& problem) {
  Reader in(object);
  LinkOrder order{.round = in.integer("round", 1, kBig),
                  .address = in.text("address", kNameMax),
                  .port = static_cast<int>(in.integer("port", 1, 65535)),
                  .key = in.text("key", kNameMax)};
  keep_first(in, "link", problem);
  return order;
}

std::string line(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

constexpr const char* kOrderNames[] = {"idle", "run", "preempt", "finish"};

}  // namespace

std::string to_text(const WorkerReport& report) {
  json ranks = json::array();
  for (const auto& rank : report.ranks) {
    ranks.push_back({{"running", rank.running},
                     {"exitCode", rank.exit_code},
                     {"signal", rank.signal},
                     {"stopped", rank.stopped},
                     {"asked", rank.asked},
                     {"ownCodes", rank.own_codes},
                     {"exitOrder", rank.exit_order},
                     {"step", rank.step},
                     {"reason", rank.reason},
                     {"message", rank.message},
                     {"lastWords", rank.last_words}});
    if (rank.pace.steps > 0) {
      ranks.back()["pace"] = {rank.pace.steps, rank.pace.step_us, rank.pace.own_us};
    }
  }
  json object = {{"worker", report.worker},
                 {"incarnation", report.incarnation},
                 {"sequence", report.sequence},
                 {"slots", report.slots},
                 {"attempt", report.attempt},
                 {"fence", report.fence},
                 {"stopRequested", report.stop_requested},
                 {"departing", report.departing},
                 {"leaving", report.leaving},
                 {"ranks", std::move(ranks)}};
  if (report.look > 0) {
    json& looks = object["looks"] = json::array();
    for (const auto& look : report.looks) looks.push_back(to_json(look));
    object["look"] = report.look;
  }
  if (report.stacks > 0) {
    object["stacks"] = report.stacks;
    object["where"] = report.where;
  }
  if (!report.link.node.empty()) {
    object["link"] = {{"node", report.link.node},
                      {"address", report.link.address},
                      {"port", report.link.port},
                      {"key", report.link.key},
                      {"moves", report.link.moves}};
  }
  if (report.link_rate.round > 0) {
    object["linkRate"] = {{"round", report.link_rate.round},
                          {"bytesPerSecond", report.link_rate.bytes_per_second},
                          {"problem", report.link_rate.problem}};
  }
  std::string text = line(object);
  if (text.size() <= kMessageBytesMax || report.look == 0) return text;
  // A longer beat would be refused and this worker considered lost. How the ranks take part in the
  // world matters most.
  for (json& look : object["looks"]) look.erase("groups");
  return line(object);
}

std::string to_text(const Directive& directive) {
  json object = {{"order", kOrderNames[static_cast<int>(directive.order)]},
                 {"attempt", directive.attempt},
                 {"worldSize", directive.world_size},
                 {"firstRank", directive.first_rank},
                 {"masterAddr", directive.master_addr},
                 {"masterPort", directive.master_port},
                 {"exitCode", directive.exit_code},
                 {"nextBeatMs", directive.next_beat.count()}};
  if (directive.look > 0) object["look"] = directive.look;
  if (directive.stacks > 0) object["stacks"] = directive.stacks;
  if (directive.link.round > 0) {
    object["link"] = {{"round", directive.link.round},
                      {"address", directive.link.address},
                      {"port", directive.link.port},
                      {"key", directive.link.key}};
  }
  if (!directive.slow_link.empty()) object["slowLink"] = directive.slow_link;
  return line(object);
}

Result<WorkerReport> worker_report_from_json(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) return bad_input("a beat that is not JSON");
  Reader in(object);
  WorkerReport report{.worker = static_cast<int>(in.integer("worker", 0, kMostWorkers)),
                      .incarnation = in.integer("incarnation", 1, kBig),
                      .sequence = in.integer("sequence", 0, kBig),
                      .slots = static_cast<int>(in.integer("slots", 1, kMostSlots)),
                      .attempt = in.integer("attempt", 0, kBig),
                      .fence = in.integer("fence", 0, kBig),
                      .stop_requested = in.boolean("stopRequested"),
                      .departing = in.flag("departing"),
                      .leaving = in.boolean("leaving")};
  std::string problem;
  if (const json* ranks = in.array("ranks")) {
    if (static_cast<int64_t>(ranks->size()) > report.slots) problem = "more ranks than slots";
    for (size_t i = 0; problem.empty() && i < ranks->size(); ++i)
      report.ranks.push_back(rank_from((*ranks)[i], problem));
  }
  report.look = in.some("look");
  if (const json* looks = report.look > 0 ? in.array("looks") : nullptr) {
    if (problem.empty() && looks->size() != report.ranks.size())
      problem = "as many looks as ranks are expected";
    for (size_t i = 0; problem.empty() && i < looks->size(); ++i) {
      auto look = rank_look_from_json((*looks)[i]);
      if (!look) problem = "looks: " + look.error().message;
      if (look) report.looks.push_back(std::move(*look));
    }
  }
  report.stacks = in.some("stacks");
  if (const json* where = report.stacks > 0 ? in.array("where") : nullptr) {
    const bool all = where->size() == report.ranks.size();
    if (problem.empty() && !all) problem = "as many places as ranks are expected";
    for (size_t i = 0; problem.empty() && i < where->size(); ++i) {
      const json& text = (*where)[i];
      if (!text.is_string() || text.get_ref<const std::string&>().size() > kWhereBytesMax) {
        problem = "where: a text is expected, not too long";
      } else {
        report.where.push_back(text);
      }
    }
  }
  if (const json* link = link_of(object, "link")) report.link = link_place_from(*link, problem);
  if (const json* rate = link_of(object, "linkRate")) {
    report.link_rate = link_rate_from(*rate, problem);
  }
  if (!in.problem().empty()) problem = in.problem();
  if (!problem.empty()) return bad_input("a beat with a wrong shape: " + problem);
  return report;
}

Result<Directive> directive_from_json(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) return bad_input("an answer that is not JSON");
  Reader in(object);
  const std::string order = in.text("order", 16);
  Directive directive{.attempt = in.integer("attempt", 0, kBig),
                      .world_size = static_cast<int>(in.integer("worldSize", 0, INT32_MAX)),
                      .first_rank = static_cast<int>(in.integer("firstRank", 0, INT32_MAX)),
                      .master_addr = in.text("masterAddr", 256),
                      .master_port = static_cast<int>(in.integer("masterPort", 0, 65535)),
                      .exit_code = static_cast<int>(in.integer("exitCode", 0, 255)),
                      .next_beat = Time(in.integer("nextBeatMs", 1, 3'600'000)),
                      .look = in.some("look"),
                      .stacks = in.some("stacks")};
  std::string problem;
  if (const json* link = link_of(object, "link")) {
    directive.link = link_order_from(*link, problem);
  }
  if (object.contains("slowLink")) directive.slow_link = in.text("slowLink", kLinkTextMax);
  if (!in.problem().empty()) problem = in.problem();
  if (!problem.empty()) return bad_input("an answer with a wrong shape: " + problem);
  for (int i = 0; i < 4; ++i) {
    if (order == kOrderNames[i]) {
      directive.order = static_cast<Order>(i);
      return directive;
    }
  }
  return bad_input("an answer with an unknown order \"" + order + "\"");
}

}  // namespace dsj::agent
