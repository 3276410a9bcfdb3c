#include "operator/observe/contest.h"

#include "common/json.h"
#include "job/contract.h"
#include "kube/http.h"
#include "operator/observe/pace.h"

namespace dsj::op {
namespace {

using nlohmann::json;

/// How many parts of the dotted path `field` the managed fields contain.
size_t depth_of(const json& managed, const std::string& field) {
  const json* at = &managed;
  size_t depth = 0;
  for (size_t begin = 0; begin < field.size();) {
    const size_t end = std::min(field.find('.', begin), field.size());
    const auto found = at->find("f:" + field.substr(begin, end - begin));
    if (!at->is_object() || found == at->end()) break;
    at = &*found;
    ++depth;
    begin = end + 1;
  }
  return depth;
}

}  // namespace

void note_repair(Contests& contests, const ObjectName& object, const Repair& repair, Time now) {
  const auto [found, is_new] = contests.try_emplace(object);
  Contest& contest = found->second;
  if (is_new && repair.field.empty()) {
    contest.last = now;
    return;
  }
  const bool in_a_row = contest.repairs > 0 && now < contest.last + kRowOver;
  contest = {.repairs = in_a_row ? contest.repairs + 1 : 1, .last = now, .repair = repair};
}

Time restorable_from(const Contest& contest) {
  return contest.last + pause_uncharged(contest.repairs - 1);
}

bool is_contested(const Contest& contest, Time now) {
  return contest.repairs > 1 && now < contest.last + kRowOver;
}

std::string text_of(const ObjectName& object, const Contest& contest) {
  const std::string what = object.first + " " + object.second;
  const std::string then = "; the operator restores it after pauses of up to " +
                           std::to_string(pause_uncharged(1000).count()) + " s. ";
  if (contest.repair.field.empty()) {
    return what + " is deleted again and again" + then +
           "The API server's audit log names who deletes it";
  }
  const std::string& writer = contest.repair.writer;
  return what + ": " + contest.repair.field + " is changed again and again" +
         (writer.empty() ? "" : ", last by " + writer) + then +
         "Exempt the job's objects from what changes them";
}

std::string lost_labels_text(const std::string& pod) {
  return "Pod " + pod +
         ": labels of the operator were changed (kubectl get pod --show-managed-fields says by "
         "whom); "
         "the job's Service and NetworkPolicy may not select it. Restore the labels, or delete the "
         "pod: the operator makes another";
}

std::string writer_of(const json& object, const std::string& field) {
  std::string writer, newest;
  size_t deepest = 0;
  const json& managed = json_child(json_child(object, "metadata"), "managedFields");
  if (!managed.is_array()) return writer;
  for (const json& entry : managed) {
    const std::string manager = json_text(entry, "manager"), time = json_text(entry, "time");
    if (manager.empty() || manager == contract::kOperatorManager || manager == kube::kUserAgent ||
        !json_text(entry, "subresource").empty()) {
      continue;
    }
    const size_t depth = depth_of(json_child(entry, "fieldsV1"), field);
    if (depth < deepest || (depth == deepest && time < newest)) continue;
    deepest = depth;
    newest = time;
    writer = manager;
  }
  return writer;
}

}  // namespace dsj::op
