// One verdict of all ranks about what each of them did on its own: read a file, open a directory.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/comm/collectives.h"

namespace dsj::comm {

/// Waits, and copies what the operation brought to host memory. Throws CollectiveError. On a device an
/// operation that is ended leaves what was in its memory before, and only wait() tells: so it is called
/// again after the copy.
at::Tensor on_host(Work& work, const at::Tensor& values);

/// The largest value of each place over all ranks. Collective.
std::vector<double> max_over_ranks(Collectives& collectives, at::Device device,
                                   std::vector<double> mine);

/// Success if `mine` is one on every rank. Error: this rank's own, or Transient, "another rank
/// failed": the rank that failed says why. Collective.
Status agree(Collectives& collectives, at::Device device, const Status& mine);
template <typename T>
Status agree(Collectives& collectives, at::Device device, const Result<T>& mine) {
  return agree(collectives, device, mine ? Status{} : Status(std::unexpected(mine.error())));
}

/// What `say` returns on rank 0, on every rank: for what one rank finds out for all. `say` is called there alone. Error: as
/// agree(). Collective.
Result<std::string> said_by_first(Collectives& collectives, at::Device device,
                                  const std::function<Result<std::string>()>& say);

/// The error of the lowest rank that has one, on every rank; nullopt: no rank has one. Texts are cut
/// to 1,000 bytes each: of `where` the last ones stay. Collective.
std::optional<Error> first_error(Collectives& collectives, at::Device device,
                                 const std::optional<Error>& mine);

}  // namespace dsj::comm
