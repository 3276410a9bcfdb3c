#include "engine/checkpoint/search.h"

#include <algorithm>

#include "common/check.h"
#include "engine/checkpoint/damage.h"

namespace dsj::checkpoint {

Result<Search> Search::begin(Files& files, const std::string& checkpoints_dir) {
  Search search;
  search.files_ = &files;
  search.directory_ = checkpoints_dir;
  DSJ_TRY(search.candidates_, list_candidates(files, checkpoints_dir));
  std::ranges::sort(search.candidates_, {}, &Candidate::name);
  return search;
}

uint32_t Search::fingerprint() const {
  std::string names;
  for (const Candidate& candidate : candidates_) names += candidate.name + "\n";
  return static_cast<uint32_t>(checksum(names));
}

void Search::keep(const std::function<bool(const nlohmann::json& run_state)>& wanted) {
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return !candidate.problem && !wanted(candidate.run_state);
  });
}

bool Search::any_readable() const {
  return std::ranges::any_of(candidates_,
                             [](const Candidate& candidate) { return !candidate.problem; });
}

void Search::settle() {
  sort_newest_first(candidates_);
}

Result<int> Search::open(int index) {
  reader_.reset();
  for (open_ = index; open_ < count(); ++open_) {
    Candidate& candidate = candidates_[size_t(open_)];
    if (candidate.problem) continue;
    auto reader = Reader::open(*files_, path_join(directory_, candidate.name));
    if (reader) {
      reader_ = std::move(*reader);
      break;
    }
    if (reader.error().cause != Error::Cause::Damage) return std::unexpected(reader.error());
    candidate.problem = reader.error();
  }
  for (const Candidate& candidate : candidates_) {
    const bool unjudged = candidate.problem && candidate.problem->cause != Error::Cause::Damage;
    const bool could_be_newer = open_ == count() || candidate.step >= reader_->step();
    if (unjudged && could_be_newer) return std::unexpected(*candidate.problem);
  }
  return open_;
}

std::vector<Search::Passed> Search::passed_over() const {
  std::vector<Passed> passed;
  for (int i = 0; i < count(); ++i) {
    const Candidate& candidate = candidates_[size_t(i)];
    // Those with a damaged manifest come last. They matter only if they may be newer.
    const bool newer = i < open_ || (i > open_ && open_ < count() && candidate.problem &&
                                     candidate.step >= candidates_[size_t(open_)].step);
    if (newer && candidate.problem)
      passed.push_back({candidate.name, candidate.step, *candidate.problem});
  }
  return passed;
}

Error Search::nothing_left() const {
  const auto first = std::ranges::find_if(
      candidates_, [](const Candidate& one) { return one.problem.has_value(); });
  DSJ_CHECK(first != candidates_.end());
  Error error = *first->problem;
  error.kind = ErrorKind::Environment;
  error.cause = Error::Cause::Other;
  error.hint =
      "no complete checkpoint is left in " + directory_ + "; remove the broken one to start again";
  return error;
}

Result<Newest> newest(Files& files, const std::string& checkpoints_dir) {
  DSJ_TRY(Search search, Search::begin(files, checkpoints_dir));
  search.settle();
  Newest result;
  if (search.count() == 0) return result;
  for (int index = 0;; ++index) {
    DSJ_TRY(index, search.open(index));
    if (index == search.count()) return std::unexpected(search.nothing_left());
    const Status whole = search.reader().check_parts();
    if (whole) break;
    if (whole.error().cause != Error::Cause::Damage) return std::unexpected(whole.error());
    search.reject(index, whole.error());
  }
  for (const auto& passed : search.passed_over()) {
    result.warnings.push_back("checkpoint " + passed.name +
                              " is passed over: " + passed.problem.to_string());
  }
  result.reader = std::move(search.reader());
  return result;
}

}  // namespace dsj::checkpoint
