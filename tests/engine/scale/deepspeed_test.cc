// What a resume from a checkpoint of DeepSpeed opens, counted: with files in memory at 64 ranks, and by numbers alone for
// Llama 3 70B at 64, 512 and 4,096. docs/reports/scale.md has the table that this prints.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <set>

#include "common/files/counting_files.h"
#include "common/files/memory_files.h"
#include "engine/deepspeed/checkpoint.h"
#include "job/plan/zero_plan.h"
#include "tests/engine/deepspeed/saved_model.h"
#include "tests/job/layout/llama_70b.h"

namespace dsj {
namespace {

using deepspeed::testing_support::SavedModel;

layout::ModelConfig small_llama() {
  layout::ModelConfig config = testing_support::llama_70b();
  config.vocab_size = 256;
  config.hidden_size = 32;
  config.intermediate_size = 64;
  config.num_layers = 4;
  config.num_heads = config.num_kv_heads = 4;
  config.head_dim = 8;
  return config;
}

layout::FlatPlan flats_of(const layout::ModelConfig& model, int world) {
  dsconfig::ResolvedConfig config;
  config.precision = dsconfig::Precision::Bf16;
  config.zero.stage = 3;
  return plan::plan_flats(layout::units_of(model), config, world);
}

/// What a rank owns of each parameter.
void for_owned(const layout::FlatPlan& flats, int rank,
               const std::function<void(const std::string&, const layout::Range&)>& visit) {
  for (const layout::FlatLayout& flat : flats.flats)
    for (const layout::Range& range : flat.ranges(rank))
      visit(flat.slots()[size_t(range.slot)].name, range);
}

/// By which rule DeepSpeed deals a model to files.
struct Deal {
  int64_t each = 0;                    ///< stages 1 and 2: elements of the flat vector
  std::map<std::string, int64_t> at;   ///< [parameter]: where it begins there
  std::map<std::string, int64_t> own;  ///< stage 3: [parameter]: elements of each share
  /// The files that hold a range.
  std::pair<int64_t, int64_t> files(bool shards, const std::string& parameter,
                                    const layout::Range& range) const {
    const int64_t begin = range.offset + (shards ? 0 : at.at(parameter));
    const int64_t of_file = shards ? own.at(parameter) : each;
    return {begin / of_file, (begin + range.numel - 1) / of_file};
  }
};
Deal deal_of(const layout::ModelConfig& model, int ranks) {
  Deal deal;
  int64_t end = 0;
  for (const auto& unit : layout::units_of(model))
    for (const auto& parameter : unit.parameters) {
      deal.at[parameter.name] = end;
      deal.own[parameter.name] = (parameter.numel() + ranks - 1) / ranks;
      end += parameter.numel();
    }
  const int64_t align = 2 * ranks;
  deal.each = (end + align - 1) / align * align / ranks;
  return deal;
}
std::set<int64_t> files_needed(const layout::FlatPlan& flats, int rank, const Deal& deal,
                               bool shards) {
  std::set<int64_t> needed;
  for_owned(flats, rank, [&](const std::string& parameter, const layout::Range& range) {
    const auto [first, last] = deal.files(shards, parameter, range);
    for (int64_t file = first; file <= last; ++file) needed.insert(file);
  });
  return needed;
}

SavedModel saved_by(int ranks) {
  SavedModel saved{.groups = {{}}, .ranks = ranks};
  for (const auto& unit : layout::units_of(small_llama()))
    for (const auto& parameter : unit.parameters)
      saved.groups[0].push_back({parameter.name, parameter.shape});
  return saved;
}

/// A rank of a run reads all that it owns; how often it opened each file of the optimizer.
std::map<int64_t, int64_t> opened_by(Files& files, const SavedModel& saved,
                                     const layout::FlatPlan& flats, int rank) {
  CountingFiles counting(files);
  auto checkpoint = deepspeed::Checkpoint::open(counting, saved.tag);
  EXPECT_TRUE(checkpoint) << checkpoint.error().to_string();
  if (!checkpoint) return {};
  for_owned(flats, rank, [&](const std::string& parameter, const layout::Range& range) {
    for (const std::string& state : SavedModel::states()) {
      std::vector<float> values(size_t(range.numel));
      const Status read = checkpoint->read(state, parameter, range.offset, values);
      ASSERT_TRUE(read) << read.error().to_string();
      const float last = deepspeed::testing_support::element(state, saved.index_of(parameter),
                                                             range.offset + range.numel - 1);
      ASSERT_EQ(values.back(), last) << state << " of " << parameter;
    }
  });
  std::map<int64_t, int64_t> opened;
  for (int file = 0; file < saved.ranks; ++file) {
    const auto name = SavedModel::rank_file("", file, "optim_states");
    if (const int64_t opens = counting.of(saved.tag + "/" + name).opens) opened[file] = opens;
  }
  return opened;
}

TEST(DeepSpeedScale, ARankOpensOnlyTheFilesWhoseRangesItReads) {
  for (const bool shards : {false, true})
    for (const auto& [saved_by_ranks, world] : {std::pair{64, 64}, {64, 8}, {64, 256}}) {
      SCOPED_TRACE(std::to_string(saved_by_ranks) + " -> " + std::to_string(world));
      MemoryFiles files;
      const SavedModel saved = saved_by(saved_by_ranks);
      shards ? saved.write_shards(files) : saved.write_partitions(files);
      const auto flats = flats_of(small_llama(), world);
      const Deal deal = deal_of(small_llama(), saved_by_ranks);
      size_t most = 0, all = 0;
      for (int rank = 0; rank < world; rank += std::max(1, world / 64)) {
        std::map<int64_t, int64_t> expected;
        for (const int64_t file : files_needed(flats, rank, deal, shards)) expected[file] = 1;
        ++expected[0];  // it tells the form of all
        ASSERT_EQ(opened_by(files, saved, flats, rank), expected) << "rank " << rank;
        most = std::max(most, expected.size());
        all += expected.size();
      }
      std::printf("stage %d, %3d -> %3d ranks: a rank opens %.1f files, at most %zu\n",
                  shards ? 3 : 2, saved_by_ranks, world, double(all) / std::min(world, 64), most);
    }
}

/// The sum over all ranks grows as the number of ranks does, and not as its square.
TEST(DeepSpeedScale, AllRanksTogetherOpenSoManyFilesPerRankAtAnyNumber) {
  for (const bool shards : {false, true}) {
    std::map<int, double> mean;
    for (const int world : {64, 512, 4096}) {
      const auto flats = flats_of(testing_support::llama_70b(), world);
      const Deal deal = deal_of(testing_support::llama_70b(), world);
      size_t all = 0, most = 0;
      for (int rank = 0; rank < world; ++rank) {
        const size_t needed = files_needed(flats, rank, deal, shards).size();
        all += needed;
        most = std::max(most, needed);
      }
      mean[world] = double(all) / world;
      std::printf("Llama 3 70B, stage %d, %4d -> %4d ranks: a rank opens %.1f files, at most %zu\n",
                  shards ? 3 : 2, world, world, mean[world], most);
    }
    EXPECT_LE(mean[4096], 400) << "chunks and parameters bound it";
    EXPECT_LE(mean[4096], 1.5 * mean[512]);
  }
}

}  // namespace
}  // namespace dsj
