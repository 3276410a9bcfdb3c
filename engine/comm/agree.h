// Turns what each rank did on its own (read a file, open a directory) into one verdict.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/result.h"
#include "engine/comm/collectives.h"

namespace dsj::comm {

/// Waits and returns the operation's output in host memory. Throws CollectiveError. On a device, an
/// aborted operation leaves its memory unchanged, and only wait() reports it: so this calls wait()
/// again after the copy.
at::Tensor on_host(Work& work, const at::Tensor& values);

/// The elementwise maximum of `mine` over all ranks. Collective.
std::vector<double> max_over_ranks(Collectives& collectives, at::Device device,
                                   std::vector<double> mine);

/// Success if `mine` is a success on every rank. Errors: this rank's own, or Transient "another
/// rank failed"; the rank that failed reports why. Collective.
Status agree(Collectives& collectives, at::Device device, const Status& mine);
template <typename T>
Status agree(Collectives& collectives, at::Device device, const Result<T>& mine) {
  return agree(collectives, device, mine ? Status{} : Status(std::unexpected(mine.error())));
}

/// Calls `say` on rank 0 only and returns its result on every rank. Errors: as agree().
/// Collective.
Result<std::string> said_by_first(Collectives& collectives, at::Device device,
                                  const std::function<Result<std::string>()>& say);

/// The error of the lowest rank that has one, on every rank; nullopt if no rank has one. Texts are
/// cut to 1,000 bytes each; of `where` the last bytes are kept. Collective.
std::optional<Error> first_error(Collectives& collectives, at::Device device,
                                 const std::optional<Error>& mine);

}  // namespace dsj::comm
