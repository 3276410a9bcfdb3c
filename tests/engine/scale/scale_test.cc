// What grows with the number of ranks, counted for Llama 3 70B at 64, 512 and 4,096 ranks: layout,
// schedule, plan, a checkpoint's index, resume and export. No tensor exists; the parts of the
// checkpoint are hollow files. docs/reports/scale.md has the table that this prints.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <functional>

#include "common/files/counting_files.h"
#include "engine/checkpoint/layout.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/writer.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "job/plan/memory_model.h"
#include "job/plan/zero_plan.h"
#include "tests/engine/scale/hollow_files.h"
#include "tests/job/layout/llama_70b.h"

namespace dsj {
namespace {

using checkpoint::Extent;
using checkpoint::Part;
using testing_support::HollowFiles;
using testing_support::llama_70b;

constexpr char kDir[] = "/out/checkpoints";
constexpr char kStep[] = "/out/checkpoints/step-1";
constexpr std::array kStates{"master", "exp_avg", "exp_avg_sq"};

dsconfig::ResolvedConfig stage_three() {
  dsconfig::ResolvedConfig config;
  config.precision = dsconfig::Precision::Bf16;
  config.zero.stage = 3;
  return config;
}

layout::FlatPlan flats_at(int world) {
  return plan::plan_flats(layout::units_of(llama_70b()), stage_three(), world);
}

/// What a rank saves, in the order in which it does.
void for_ranges(const layout::FlatPlan& flats, int rank,
                const std::function<void(const char* state, const layout::Slot&,
                                         const layout::Range&)>& visit) {
  for (const layout::FlatLayout& flat : flats.flats) {
    const std::vector<layout::Range> ranges = flat.ranges(rank);
    for (const char* state : kStates)
      for (const layout::Range& range : ranges)
        visit(state, flat.slots()[size_t(range.slot)], range);
  }
}

/// A part whose values are all 0, without its file.
Part part_of_zeros(const layout::FlatPlan& flats, int rank, int world) {
  Part part{.step = 1, .attempt = 1, .rank = rank, .world = world};
  for_ranges(flats, rank, [&](const char* state, const auto& slot, const auto& range) {
    part.ranges.push_back({state, slot.name, range.offset, range.numel, part.bytes});
    part.bytes += range.numel * int64_t(sizeof(float));
  });
  static std::map<int64_t, uint64_t> checksums;  // by length
  for (int64_t at = 0; at < part.bytes; at += part.block_bytes) {
    const int64_t length = std::min(part.block_bytes, part.bytes - at);
    uint64_t& sum = checksums[length];
    if (sum == 0) sum = checkpoint::checksum(std::string(size_t(length), '\0'));
    part.blocks.push_back(sum);
  }
  return part;
}

std::vector<Extent> extents_of(const layout::FlatPlan& flats) {
  std::vector<Extent> extents;
  for (const layout::FlatLayout& flat : flats.flats)
    for (const char* state : kStates)
      for (const layout::Slot& slot : flat.slots())
        extents.push_back({state, slot.name, slot.numel});
  return extents;
}

double seconds(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// The most memory that this process has had, in MiB.
int64_t most_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

/// A checkpoint of `world` ranks, published, and what that took of rank 0.
struct Saved {
  int world;
  layout::FlatPlan flats;
  HollowFiles files;
  size_t ranges_most = 0;   ///< of a rank
  int64_t index_most = 0;   ///< bytes of a rank's index
  int64_t index_bytes = 0;  ///< of all
  int64_t manifest_bytes = 0;
  FileCounts publishing;

  explicit Saved(int ranks) : world(ranks), flats(flats_at(ranks)) {
    checkpoint::WriteOptions options{.checkpoints_dir = kDir, .step = 1, .world = world};
    const std::string staging = path_join(kDir, checkpoint::staging_name(1, 1));
    EXPECT_TRUE(files.make_dirs(staging));
    for (int rank = 0; rank < world; ++rank) {
      const Part part = part_of_zeros(flats, rank, world);
      const std::string text = checkpoint::to_text(part);
      ranges_most = std::max(ranges_most, part.ranges.size());
      index_most = std::max(index_most, int64_t(text.size()));
      index_bytes += int64_t(text.size());
      const std::string path = path_join(staging, checkpoint::part_json_name(rank));
      auto file = files.create_write(path);
      EXPECT_TRUE(file && (*file)->append(as_bytes(text)) && (*file)->close());
      files.make_hollow(checkpoint::part_data_name(rank), part.bytes);
    }
    CountingFiles counting(files);
    const int64_t memory = most_memory();
    const double took = seconds([&] {
      const auto published = checkpoint::publish(
          counting, options, {.extents = extents_of(flats), .run_state = {{"step", 1}}});
      EXPECT_TRUE(published) << published.error().to_string();
    });
    publishing = counting.total();
    manifest_bytes = counting.of(path_join(staging, checkpoint::kManifestFile)).bytes_written;
    std::printf(
        "%5d ranks: a rank's index: %zu ranges, %ld bytes; manifest %ld bytes; rank 0 "
        "publishes: %ld files opened, %ld bytes read, %.1f s, %ld MiB more\n",
        world, ranges_most, index_most, manifest_bytes, publishing.opens, publishing.bytes_read,
        took, most_memory() - memory);
  }

  int64_t index_of(int rank) {
    return int64_t(files.read_all(path_join(kStep, checkpoint::part_json_name(rank)))->size());
  }
};

struct Resumed {
  int64_t files = 0;         ///< opened, the manifest included
  int64_t indexes = 0;       ///< parts whose index was read
  int64_t parsed_bytes = 0;  ///< of indexes and manifest
};

/// Rank `rank` of `world` reads what it owns: in each of its ranges a value of every part that holds
/// some of it. `flats_most`: of the first flats only.
Resumed resume(Saved& saved, int rank, int world, size_t flats_most = SIZE_MAX) {
  CountingFiles counting(saved.files);
  auto reader = checkpoint::Reader::open(counting, kStep);
  EXPECT_TRUE(reader) << reader.error().to_string();
  layout::FlatPlan mine = flats_at(world);
  if (mine.flats.size() > flats_most)
    mine.flats.erase(mine.flats.begin() + int64_t(flats_most), mine.flats.end());
  const int64_t touches = std::max(1, saved.world / world) + 1;
  const double took = seconds([&] {
    for_ranges(mine, rank, [&](const char* state, const auto& slot, const auto& range) {
      float value = 1;
      for (int64_t i = 0; i < touches; ++i) {
        const int64_t at = range.offset + (range.numel - 1) * i / (touches - 1);
        const Status read = reader->read(state, slot.name, at, {&value, 1});
        ASSERT_TRUE(read) << read.error().to_string();
      }
    });
  });
  Resumed result{.files = counting.total().opens};
  result.parsed_bytes = counting.of(path_join(kStep, checkpoint::kManifestFile)).bytes_read;
  for (int part = 0; part < saved.world; ++part) {
    const auto index = counting.of(path_join(kStep, checkpoint::part_json_name(part)));
    result.indexes += index.opens;
    result.parsed_bytes += index.bytes_read;
  }
  std::printf(
      "%5d -> %4d ranks: rank %d opens %ld files, reads the index of %ld parts, %ld bytes "
      "with the manifest (%.1f s)\n",
      saved.world, world, rank, result.files, result.indexes, result.parsed_bytes, took);
  return result;
}

TEST(ScaleTest, LayoutScheduleAndPlanDoNotGrow) {
  const auto units = layout::units_of(llama_70b());
  std::vector<size_t> actions, chunks;
  for (const int world : {64, 512, 4096}) {
    layout::FlatPlan flats;
    const double layout_took = seconds([&] { flats = flats_at(world); });
    const auto limits = plan::schedule_limits(stage_three(), world);
    layout::Schedule schedule;
    plan::MemoryModel model;
    const double took = seconds([&] {
      schedule = layout::make_schedule(units, flats, limits, 1);
      model = plan::memory_model(
          {.model = llama_70b(), .config = stage_three(), .world = world, .recompute = true});
    });
    actions.push_back(schedule.actions.size());
    chunks.push_back(0);
    for (const auto& flat : flats.flats) chunks.back() += flat.chunks().size();
    EXPECT_EQ(model.parameters, 70'553'706'496);
    std::printf(
        "%5d ranks: %zu flats, %zu chunks, %zu actions, %.1f GiB per rank; layout %.4f s, "
        "schedule and plan %.4f s\n",
        world, flats.flats.size(), chunks.back(), actions.back(),
        double(model.bytes.peak) / (1 << 30), layout_took, took);
  }
  EXPECT_EQ(actions.front(), actions.back());
  EXPECT_EQ(chunks.front(), chunks.back());
}

/// Bounds by what a rank must hold: of each chunk one slice, which lies in a few parameters.
TEST(ScaleTest, AnIndexIsBoundedAndAResumeOpensWhatItReads) {
  std::vector<std::pair<int, int64_t>> manifests;  // world, bytes
  size_t slices = 0;
  for (const auto& flat : flats_at(64).flats) slices += flat.chunks().size() * kStates.size();
  for (const int world : {64, 512, 4096}) {
    Saved saved(world);
    const int64_t of_a_parameter = int64_t(extents_of(saved.flats).size());
    EXPECT_LE(saved.ranges_most, slices + size_t(of_a_parameter));
    EXPECT_LE(saved.publishing.opens, 2 * world + 8);
    EXPECT_EQ(saved.publishing.bytes_read, saved.index_bytes) << "each index once";
    EXPECT_LE(saved.manifest_bytes, 200 * of_a_parameter + 32 * world);

    const Resumed same = resume(saved, 0, world);
    EXPECT_EQ(same.files, 3) << "the manifest, an index, a part";
    EXPECT_EQ(same.parsed_bytes, saved.manifest_bytes + saved.index_of(0));
    for (const int other : {world / 8, world * 8}) {
      const int64_t parts = std::max(1, world / other);  // that a slice of `other` ranks lies in
      const Resumed changed = resume(saved, other / 2, other, 12);
      EXPECT_LE(changed.indexes, parts + 2) << "the paddings differ a little";
      EXPECT_EQ(changed.files, 1 + 2 * changed.indexes) << "each opened once";
      EXPECT_LE(changed.parsed_bytes, saved.manifest_bytes + changed.indexes * saved.index_most);
    }
    if (world == 4096) {
      const Resumed few = resume(saved, 5, 64, 4);
      EXPECT_LE(few.indexes, 64 + 2);
      EXPECT_EQ(few.files, 1 + 2 * few.indexes) << "each opened once";
    }
  }
}

TEST(ScaleTest, AnExportIsDealtByFiles) {
  HollowFiles files;
  std::vector<weights::TensorDeclaration> tensors;
  int64_t bytes = 0;
  for (const auto& unit : layout::units_of(llama_70b()))
    for (const auto& parameter : unit.parameters) {
      tensors.push_back({parameter.name, weights::DType::BF16, parameter.shape});
      bytes += tensors.back().bytes();
    }
  auto writer = weights::ModelWriter::create(files, "/out", tensors);
  ASSERT_TRUE(writer);
  const size_t count = writer->file_count();
  EXPECT_GE(int64_t(count), bytes / weights::kShardBytesMax);
  EXPECT_LE(int64_t(count), bytes / weights::kShardBytesMax * 5 / 4);
  for (const int world : {1, 8, 64, 512, 4096}) {
    std::map<int, int> of_rank;
    for (size_t file = 0; file < count; ++file) ++of_rank[weights::writer_of(file, count, world)];
    int most = 0;
    for (const auto& [rank, number] : of_rank) most = std::max(most, number);
    EXPECT_EQ(most, int((count + size_t(world) - 1) / size_t(world)));
    std::printf("%5d ranks: %zu files of %.0f GB in all, %zu ranks write, at most %d each\n", world,
                count, double(bytes) / 1e9, of_rank.size(), most);
  }
}

}  // namespace
}  // namespace dsj
