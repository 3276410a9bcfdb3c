// checkpoint::Search over all ranks: each lists and opens by itself, and all continue with one
// list. Used to decide the layout (frozen.h) and to load (loading.h).
// Tested by: tests/engine/train/state/loading_test.cc, tests/engine/deepspeed/train/frozen_test.cc
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
#include "engine/train/step/run_state.h"

namespace dsj::train {

/// The functions are Search's. Collective ones give every rank the same answer, or an error: this
/// rank's own; Transient if another rank failed; Environment if ranks see different checkpoints.
class AgreedSearch {
 public:
  /// Finds the checkpoints of the job's output directory with which its next attempt may begin,
  /// newest first. If the arguments name a checkpoint, or ask for the model's weights, only
  /// checkpoints that this run saved count. All ranks know a problem that any met. Once per start.
  /// Collective.
  static Result<AgreedSearch> begin(Files& files, const JobFile& job,
                                    comm::Collectives& collectives, at::Device device);

  int count() const { return search_.count(); }
  bool any_readable() const { return search_.any_readable(); }
  /// The index of the first checkpoint, from `index` on, that all ranks could open. Collective.
  Result<int> open(int index);
  checkpoint::Reader& reader() { return search_.reader(); }
  /// Tells every rank why `index` is skipped: the reason of the lowest rank that has one.
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
  /// Error: the ranks have different names. Call it before Search::settle(). Collective.
  Status same_list() const;
  void share_problems();

  checkpoint::Search search_;
  std::string directory_;
  comm::Collectives* collectives_;
  at::Device device_;
};

/// Whether all ranks pass the same number. Collective.
bool same_everywhere(comm::Collectives& collectives, at::Device device, double number);

}  // namespace dsj::train
