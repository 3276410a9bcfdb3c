#include "cli/cluster/other_verbs.h"

#include <utility>

namespace dsj::cli {

std::string verb_of_others(const std::string& word) {
  static constexpr std::pair<const char*, const char*> kOthers[] = {
      {"list", "dsj get lists jobs"},
      {"ls", "dsj get lists jobs"},
      {"ps", "dsj get lists jobs"},
      {"stop", "dsj suspend NAME saves one step and releases the pods"},
      {"pause", "dsj suspend NAME saves one step and releases the pods"},
      {"cancel", "dsj suspend NAME saves one step first; kubectl delete dsj NAME ends the job"},
      {"delete", "kubectl delete dsj NAME"},
      {"rm", "kubectl delete dsj NAME"},
      {"events", "dsj describe NAME shows them"},
      {"edit", "kubectl edit dsj NAME"},
      {"apply", "dsj submit FILE creates a job; kubectl apply -f FILE changes it, too"},
      {"create", "dsj submit FILE"}};
  for (const auto& [other, ours] : kOthers)
    if (word == other) return ours;
  return {};
}

}  // namespace dsj::cli
