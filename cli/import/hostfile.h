// Converts DeepSpeed's hostfile ("worker-1 slots=8" per line) and the launcher's --include and
// --exclude ("worker-0@worker-1:0,2") to workers of a job, which all have the same number of
// ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/import/device_mapping.h"
#include "common/result.h"

namespace dsj::jobimport {

/// A host and the indices of its used slots.
struct Host {
  std::string name;
  std::vector<int> slots;
  bool operator==(const Host&) const = default;
};

/// Comments (#) and empty lines are skipped. Errors: BadInput with FILE:LINE for another form,
/// a repeated host, no host at all, or more than 65,536 slots.
Result<std::vector<Host>> parse_hostfile(const std::string& text, const std::string& source);

/// The remaining hosts and slots, in the order of the hostfile. Only one of `include` and `exclude`
/// may be set. Errors: BadInput if both are, for an unknown host or slot, or if nothing remains.
Result<std::vector<Host>> filter(const std::vector<Host>& hosts, const std::string& include,
                                 const std::string& exclude);

/// Errors: BadInput, with the hosts, if they have different numbers of slots.
Result<Nodes> workers_of(const std::vector<Host>& hosts, const std::string& where);

}  // namespace dsj::jobimport
