// checkpoint::Search over all ranks: each lists and opens on its own, and all go on with one list. Called by what decides
// the layout (frozen.h) and by what loads (loading.h).
// Tested by: tests/engine/train/loading_test.cc, tests/engine/deepspeed/train/frozen_test.cc
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/checkpoint/search.h"
#include "engine/comm/collectives.h"
#include "engine/train/run_state.h"

namespace dsj::train {

/// Its functions are Search's. Those that say "collective" give every rank the same answer, or an error: this rank's own,
/// or Transient where another rank has one, or Environment where ranks see other checkpoints than others.
class AgreedSearch {
 public:
  /// The checkpoints of the job's output directory with which its next attempt may begin: where the arguments name one, or
  /// ask for the model's weights, only those that this run has saved since. Newest first. A problem that any rank met is
  /// known to all. Once per start. Collective.
  static Result<AgreedSearch> begin(Files& files, const JobFile& job,
                                    comm::Collectives& collectives, at::Device device);

  int count() const { return search_.count(); }
  bool any_readable() const { return search_.any_readable(); }
  /// The index of the first one that all ranks could open, from `index` on. Collective.
  Result<int> open(int index);
  checkpoint::Reader& reader() { return search_.reader(); }
  /// Has every rank know why `index` is passed over: what the lowest rank with a reason says.
  /// Collective.
  void reject(int index, const std::optional<Error>& mine);
  std::vector<checkpoint::Search::Passed> passed_over() const { return search_.passed_over(); }
  Error nothing_left() const { return search_.nothing_left(); }

 private:
  AgreedSearch(checkpoint::Search search, std::string directory, comm::Collectives& collectives,
               at::Device device)
      : search_(std::move(search)),
        directory_(std::move(directory)),
        collectives_(&collectives),
        device_(device) {}
  /// Error: not all ranks have the same names. Call it before Search::settle(). Collective.
  Status same_list() const;
  void share_problems();

  checkpoint::Search search_;
  std::string directory_;
  comm::Collectives* collectives_;
  at::Device device_;
};

/// Whether all ranks give the same number. Collective.
bool same_everywhere(comm::Collectives& collectives, at::Device device, double number);

}  // namespace dsj::train
