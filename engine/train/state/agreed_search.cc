#include "engine/train/state/agreed_search.h"

#include "engine/comm/agree.h"
#include "job/contract.h"

namespace dsj::train {

bool same_everywhere(comm::Collectives& collectives, at::Device device, double number) {
  const auto most = comm::max_over_ranks(collectives, device, {number, -number});
  return most[0] == -most[1];
}

Result<AgreedSearch> AgreedSearch::begin(Files& files, const JobFile& job,
                                         comm::Collectives& collectives, at::Device device) {
  const std::string directory = path_join(job.output_dir, contract::kCheckpointsDir);
  auto own = checkpoint::Search::begin(files, directory);
  DSJ_TRY_STATUS(comm::agree(collectives, device, own));
  AgreedSearch search(std::move(*own), directory, collectives, device);
  DSJ_TRY_STATUS(search.same_list());
  search.share_problems();
  if (const nlohmann::json here = begun(job); !here.is_null()) {
    search.search_.keep([&](const nlohmann::json& run_state) { return saved_by(here, run_state); });
    DSJ_TRY_STATUS(search.same_list());
  }
  search.search_.settle();
  return search;
}

/// Ranks on one file system see one directory. If a rank sees other checkpoints, or none, all ranks
/// stop.
Status AgreedSearch::same_list() const {
  if (same_everywhere(*collectives_, device_, search_.fingerprint())) return {};
  return fail(ErrorKind::Environment, "ranks see different checkpoints", directory_,
              "the output directory must be on storage that all ranks share");
}

void AgreedSearch::share_problems() {
  std::vector<double> seen;
  for (int i = 0; i < count(); ++i) seen.push_back(search_.problem(i) ? 1 : 0);
  seen = comm::max_over_ranks(*collectives_, device_, seen);
  for (int i = 0; i < count(); ++i)
    if (seen[static_cast<size_t>(i)] > 0) reject(i, search_.problem(i));
}

Result<int> AgreedSearch::open(int index) {
  for (;;) {
    const auto opened = search_.open(index);
    DSJ_TRY_STATUS(comm::agree(*collectives_, device_, opened));
    const double own = *opened;
    const auto most = comm::max_over_ranks(*collectives_, device_, {own, -own});
    const int agreed = static_cast<int>(most[0]);
    if (most[0] == -most[1]) return agreed;
    for (; index < agreed; ++index) reject(index, search_.problem(index));
  }
}

void AgreedSearch::reject(int index, const std::optional<Error>& mine) {
  if (const auto problem = comm::first_error(*collectives_, device_, mine)) {
    search_.reject(index, *problem);
  }
}

}  // namespace dsj::train
