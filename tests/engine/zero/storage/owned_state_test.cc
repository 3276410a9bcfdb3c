// OwnedState and ShardStore: every element keeps its own value, wherever its part lies and however
// the shard is cut.
#include "engine/zero/storage/owned_state.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/support/late_file.h"

namespace dsj::zero {
namespace {

using layout::Part;
using layout::Place;
using testing_support::LateDisk;
using testing_support::LateFile;

constexpr int64_t kShard = 10'272;  // no multiple of a block: vectors in a file are padded

/// Parts of kShard elements from pieces, the file's with room for `vectors` fp32 vectors.
std::vector<Part> cut(const std::vector<std::pair<Place, int64_t>>& pieces, int64_t vectors) {
  std::vector<Part> parts;
  int64_t begin = 0, file = 0;
  for (const auto& [place, numel] : pieces) {
    parts.push_back({place, begin, numel, place == Place::File ? file : 0});
    if (place == Place::File) file += layout::file_bytes(numel, vectors, 4);
    begin += numel;
  }
  EXPECT_EQ(begin, kShard);
  return parts;
}

/// Stores with the parts given, over one late file each. `parameters` empty: there is no such store.
struct Stores {
  LateDisk optimizer_disk{1 << 20}, parameter_disk{1 << 20};
  OwnedState state;

  Stores(const std::vector<Part>& optimizer, const std::vector<Part>& parameters, int slots = 2)
      : state(kShard, options(optimizer, {0, 0.5, 7}, optimizer_disk, slots),
              parameters.empty() ? ShardStoreOptions{}
                                 : options(parameters, {0.25}, parameter_disk, slots)) {}

  static ShardStoreOptions options(const std::vector<Part>& parts,
                                   const std::vector<double>& initial, LateDisk& disk, int slots) {
    std::vector<TileSpec> tiles;
    int64_t largest = 0;
    for (const Part& part : parts) {
      if (part.place != Place::File) continue;
      tiles.push_back({part.file_offset, layout::file_bytes(part.numel, initial.size(), 4)});
      largest = std::max(largest, tiles.back().bytes);
    }
    ShardStoreOptions options{.parts = parts, .initial = initial};
    if (!tiles.empty())
      options.tiles = std::make_shared<TileCache>(
          std::make_unique<LateFile>(disk), tiles,
          TileCacheOptions{.slots = slots, .slot_bytes = largest, .key = "the.key"});
    return options;
  }
};

/// Cuts of all kinds: both stores cut alike, one inside a part of the other, parts of every place.
std::vector<std::unique_ptr<Stores>> every_cut() {
  using enum Place;
  const std::vector<std::vector<std::pair<Place, int64_t>>> pieces = {
      {{Device, kShard}},
      {{Host, kShard}},
      {{File, kShard}},
      {{File, 4096}, {File, 4096}, {File, 2080}},
      {{File, 2048}, {File, 6176}, {Device, 2048}},
      {{Host, 2048}, {File, 4096}, {File, 2080}, {Device, 2048}},
  };
  std::vector<std::unique_ptr<Stores>> fixtures;
  for (const auto& optimizer : pieces) {
    fixtures.push_back(std::make_unique<Stores>(cut(optimizer, 3), std::vector<Part>()));
    for (const auto& parameters : pieces)
      fixtures.push_back(std::make_unique<Stores>(cut(optimizer, 3), cut(parameters, 1)));
  }
  return fixtures;
}

/// The value of an element: exact in fp32, another one for each vector and round.
float value(int vector, int64_t element, int round) {
  return static_cast<float>((round * 4 + vector) * kShard + element);
}
at::Tensor values(int vector, int64_t begin, int64_t numel, int round) {
  return at::arange(begin, begin + numel, at::kFloat) + value(vector, 0, round);
}

constexpr int kParametersVector = 3;  ///< the parameters' number as a vector

void write(OwnedState& state, Access access, int round) {
  state.for_runs(access, access, [&](const OwnedRun& run) {
    for (int i = 0; i < static_cast<int>(run.optimizer.size()); ++i)
      run.optimizer[i].copy_(values(i, run.begin, run.numel, round));
    if (run.parameters.defined())
      run.parameters.copy_(values(kParametersVector, run.begin, run.numel, round));
  });
}

void expect_values(Stores& f, int round) {
  int64_t end = 0;
  f.state.for_runs(Access::Read, Access::Read, [&](const OwnedRun& run) {
    EXPECT_EQ(run.begin, end) << "ascending, without a hole";
    EXPECT_GT(run.numel, 0);
    end = run.begin + run.numel;
    ASSERT_EQ(run.optimizer.size(), 3u);
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(run.optimizer[i].equal(values(i, run.begin, run.numel, round)))
          << "vector " << i << " at " << run.begin;
    ASSERT_EQ(run.parameters.defined(), f.state.has_parameters());
    if (f.state.has_parameters()) {
      EXPECT_TRUE(run.parameters.equal(values(kParametersVector, run.begin, run.numel, round)))
          << "at " << run.begin;
    }
  });
  EXPECT_EQ(end, kShard);
}

TEST(OwnedStateTest, GivesBackWhatWasWritten) {
  for (const auto& f : every_cut()) {
    int round = 0;
    for (const Access access : {Access::Write, Access::ReadWrite, Access::Write}) {
      write(f->state, access, ++round);
      expect_values(*f, round);
      expect_values(*f, round);
    }
    if (testing::Test::HasFailure()) return;
  }
}

/// A run may be a piece of a part: then the part is read first, because its other pieces stay. A
/// part that is overwritten whole need not be read.
TEST(OwnedStateTest, APartThatIsWrittenPieceByPieceIsReadFirst) {
  using enum Place;
  Stores f(cut({{File, 6144}, {File, 4128}}, 3), cut({{File, 2048}, {Host, 8224}}, 1),
           /*slots=*/1);
  write(f.state, Access::Write, 1);
  expect_values(f, 1);
  f.optimizer_disk.events.clear();
  f.state.for_runs(Access::Write, std::nullopt, [&](const OwnedRun& run) {
    for (int i = 0; i < 3; ++i) run.optimizer[i].copy_(values(i, run.begin, run.numel, 1));
  });
  EXPECT_EQ(f.optimizer_disk.events_of('r').at(0), "r 0");
  for (const auto& read : f.optimizer_disk.events_of('r')) EXPECT_EQ(read, "r 0");
  expect_values(f, 1);
}

TEST(OwnedStateTest, BeginsWithTheInitialValues) {
  for (const auto& f : every_cut()) {
    f->state.for_runs(Access::Read, Access::Read, [&](const OwnedRun& run) {
      EXPECT_TRUE(run.optimizer[0].eq(0).all().item<bool>());
      EXPECT_TRUE(run.optimizer[1].eq(0.5).all().item<bool>());
      EXPECT_TRUE(run.optimizer[2].eq(7).all().item<bool>());
      if (run.parameters.defined()) {
        EXPECT_TRUE(run.parameters.eq(0.25).all().item<bool>());
      }
    });
    EXPECT_EQ(f->parameter_disk.events_of('w').size(), 0u) << "and writes nothing";
    EXPECT_EQ(f->optimizer_disk.events_of('w').size(), 0u);
  }
}

TEST(OwnedStateTest, ATileThatWasNeverWrittenIsNotRead) {
  Stores f(cut({{Place::File, kShard}}, 3), cut({{Place::File, kShard}}, 1));
  const auto nothing = [](const OwnedRun&) {};
  f.state.for_runs(Access::Read, Access::Read, nothing);
  f.state.for_runs(Access::ReadWrite, Access::ReadWrite, nothing);
  EXPECT_EQ(f.optimizer_disk.events_of('r').size(), 0u);
  EXPECT_EQ(f.parameter_disk.events_of('r').size(), 0u);
}

TEST(OwnedStateTest, WhatIsNotAskedForIsNotTouched) {
  Stores f(cut({{Place::File, kShard}}, 3), cut({{Place::File, kShard}}, 1));
  f.state.for_runs(Access::ReadWrite, std::nullopt, [](const OwnedRun& run) {
    EXPECT_EQ(run.optimizer.size(), 3u);
    EXPECT_FALSE(run.parameters.defined());
  });
  EXPECT_TRUE(f.parameter_disk.events.empty());
  f.optimizer_disk.events.clear();
  f.state.for_runs(std::nullopt, Access::Write, [](const OwnedRun& run) {
    EXPECT_TRUE(run.optimizer.empty());
    EXPECT_TRUE(run.parameters.defined());
    run.parameters.zero_();
  });
  EXPECT_TRUE(f.optimizer_disk.events.empty());
}

TEST(OwnedStateTest, PartsOfTheParametersComeInOrder) {
  using enum Place;
  Stores f(cut({{Device, kShard}}, 3), cut({{Host, 2048}, {File, 4096}, {Device, 4128}}, 1));
  write(f.state, Access::Write, 1);
  std::vector<int64_t> begins;
  f.state.for_parameters([&](int64_t begin, const at::Tensor& part, bool stays) {
    EXPECT_EQ(stays, begin != 2048) << "a tile does not";
    begins.push_back(begin);
    EXPECT_TRUE(part.equal(values(kParametersVector, begin, part.numel(), 1)));
  });
  EXPECT_EQ(begins, std::vector<int64_t>({0, 2048, 6144}));
}

TEST(OwnedStateTest, WholeParametersAreOnePieceOfMemory) {
  using enum Place;
  const auto whole = [](const std::vector<std::pair<Place, int64_t>>& pieces) {
    Stores f(cut({{Device, kShard}}, 3), cut(pieces, 1));
    write(f.state, Access::Write, 1);
    const at::Tensor found = f.state.whole_parameters();
    if (found.defined()) {
      EXPECT_TRUE(found.equal(values(kParametersVector, 0, kShard, 1)));
    }
    return found.defined();
  };
  EXPECT_TRUE(whole({{Device, kShard}}));
  EXPECT_TRUE(whole({{Host, kShard}}));
  EXPECT_FALSE(whole({{File, kShard}}));
  EXPECT_FALSE(whole({{Host, 2048}, {Device, 8224}}));
}

/// Stores of several flats share a file: each keeps to its own tiles.
TEST(OwnedStateTest, StoresThatShareAFileKeepToTheirTiles) {
  LateDisk disk(1 << 20);
  std::vector<TileSpec> tiles;
  const int64_t tile = layout::file_bytes(kShard / 2, 3, 4);
  for (int i = 0; i < 4; ++i) tiles.push_back({i * tile, tile});
  const auto cache = std::make_shared<TileCache>(
      std::make_unique<LateFile>(disk), tiles,
      TileCacheOptions{.slots = 2, .slot_bytes = tile, .key = "the.key"});
  std::vector<std::unique_ptr<OwnedState>> states;
  for (int i = 0; i < 2; ++i) {
    ShardStoreOptions options{
        .parts = {{Place::File, 0, kShard / 2, 0}, {Place::File, kShard / 2, kShard / 2, 0}},
        .initial = {0, 0, 0},
        .tiles = cache,
        .first_tile = 2 * i};
    states.push_back(std::make_unique<OwnedState>(kShard, options, ShardStoreOptions()));
  }
  for (int i = 0; i < 2; ++i) write(*states[i], Access::Write, 1 + i);
  for (int i = 0; i < 2; ++i) {
    states[i]->for_runs(Access::Read, std::nullopt, [&](const OwnedRun& run) {
      for (int v = 0; v < 3; ++v)
        EXPECT_TRUE(run.optimizer[v].equal(values(v, run.begin, run.numel, 1 + i)));
    });
  }
}

TEST(OwnedStateTest, WithoutStoresThereAreRunsWithoutTensors) {
  OwnedState state(kShard, {}, {});
  EXPECT_FALSE(state.has_parameters());
  int64_t total = 0;
  state.for_runs(Access::ReadWrite, Access::ReadWrite, [&](const OwnedRun& run) {
    EXPECT_TRUE(run.optimizer.empty());
    EXPECT_FALSE(run.parameters.defined());
    total += run.numel;
  });
  EXPECT_EQ(total, kShard);
}

}  // namespace
}  // namespace dsj::zero
