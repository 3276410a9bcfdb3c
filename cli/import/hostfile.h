// DeepSpeed's hostfile ("worker-1 slots=8" per line) and the launcher's --include and --exclude
// ("worker-0@worker-1:0,2"), brought to workers of a job: every worker has the same number of
// ranks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/import/device_mapping.h"
#include "common/result.h"

namespace dsj::jobimport {

/// A host and the numbers of its slots that are used.
struct Host {
  std::string name;
  std::vector<int> slots;
  bool operator==(const Host&) const = default;
};

/// Comments (#) and empty lines are skipped. BadInput with FILE:LINE: another form, a host given
/// twice, no host at all, more than 65,536 slots.
Result<std::vector<Host>> parse_hostfile(const std::string& text, const std::string& source);

/// Hosts and slots left over, in the order of the hostfile. At most one of the two is not empty.
/// BadInput: both, an unknown host or slot, nothing left.
Result<std::vector<Host>> filter(const std::vector<Host>& hosts, const std::string& include,
                                 const std::string& exclude);

/// BadInput when hosts have different numbers of slots: it names them.
Result<Nodes> workers_of(const std::vector<Host>& hosts, const std::string& where);

}  // namespace dsj::jobimport
