// A small optimizer state with known values, written and compared at any world size.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/background_save.h"
#include "engine/checkpoint/search.h"
#include "engine/checkpoint/writer.h"

namespace dsj::checkpoint {

/// Where the tests' checkpoints lie.
inline constexpr char kDir[] = "/out/checkpoints";

struct ModelWorld {
  std::vector<Extent> extents;

  /// Sizes that put block borders inside tensors, and several tensors inside a block.
  static ModelWorld make(int64_t big_elements = 700'001) {
    ModelWorld world;
    for (const char* state : {"master", "exp_avg", "exp_avg_sq"}) {
      world.extents.push_back({state, "embed.weight", big_elements});
      world.extents.push_back({state, "layer.0.bias", 7});
      world.extents.push_back({state, "layer.0.weight", 4096});
    }
    return world;
  }

  /// Of a tensor's values: depends on everything that can be mixed up.
  static float base(int64_t step, const Extent& extent) {
    return float(step) + float(std::hash<std::string>{}(extent.state + extent.param) % 97) * 0.01f;
  }
  static float value(float base, int64_t index) { return base + float(index % 8191) * 1e-5f; }

  /// One rank's pieces, and their values.
  struct Share {
    std::vector<std::vector<float>> values;
    std::vector<Piece> pieces;

    Status produce(const EmitPiece& emit) const {
      for (const Piece& piece : pieces) DSJ_TRY_STATUS(emit(piece));
      return {};
    }
    size_t elements() const {
      size_t sum = 0;
      for (const Piece& piece : pieces) sum += piece.data.size();
      return sum;
    }
  };
  /// Slices every extent `world` ways, unevenly, and takes rank `rank`'s.
  Share share(const WriteOptions& options) const {
    Share share;
    auto& [values, pieces] = share;
    for (const Extent& extent : extents) {
      const int64_t begin = border(extent, options.rank, options.world);
      const int64_t end = border(extent, options.rank + 1, options.world);
      std::vector<float>& data = values.emplace_back();
      const float first = base(options.step, extent);
      data.reserve(size_t(end - begin));
      for (int64_t i = begin; i < end; ++i) data.push_back(value(first, i));
      pieces.push_back({extent.state, extent.param, begin, {}});
    }
    for (size_t i = 0; i < pieces.size(); ++i) pieces[i].data = values[i];
    return share;
  }
  /// Writes rank `rank`'s share.
  Result<int64_t> write(Files& files, const WriteOptions& options) const {
    return write_rank(files, options, share(options).pieces);
  }
  static int64_t border(const Extent& extent, int rank, int world) {
    return rank == world ? extent.elements : extent.elements * rank / world / 3 * 3;
  }

  Result<Published> save(Files& files, WriteOptions options,
                         std::optional<int64_t> limit = std::nullopt) const {
    for (options.rank = 0; options.rank < options.world; ++options.rank) {
      DSJ_TRY_STATUS(write(files, options));
    }
    options.rank = 0;
    return publish(files, options, publication(options.step, limit));
  }
  /// The same behind the steps of ranks that are not there: one rank writes after the other, so
  /// that the operations have one order.
  Result<Published> save_behind(Files& files, WriteOptions options,
                                std::optional<int64_t> limit = std::nullopt) const {
    std::vector<std::vector<float>> buffers;
    std::vector<std::unique_ptr<BackgroundSave>> ranks;
    for (options.rank = 0; options.rank < options.world; ++options.rank) {
      const Share own = share(options);
      buffers.emplace_back(own.elements());
      ranks.push_back(std::make_unique<BackgroundSave>(files, buffers.back()));
      ranks.back()->begin(options, publication(options.step, limit),
                          [&](const EmitPiece& emit) { return own.produce(emit); });
      ranks.back()->wait();
    }
    for (;;) {
      SaveVotes all;
      for (const auto& rank : ranks) {
        rank->wait();
        const SaveVotes one = rank->votes();
        all.written += one.written;
        all.failed += one.failed;
        all.published += one.published;
      }
      std::optional<Published> done;
      Status failed;
      for (const auto& rank : ranks) {
        auto saved = rank->advance(all);
        if (!saved && (failed || failed.error().kind == ErrorKind::Transient))
          failed = std::unexpected(saved.error());
        if (saved && *saved && (*saved)->published) done = *(*saved)->published;
      }
      if (!failed) return std::unexpected(failed.error());
      if (done) return *done;
    }
  }
  /// Of a checkpoint that is known to be good, so that the limit alone counts (confirmed_test.cc).
  Publication publication(int64_t step, std::optional<int64_t> limit = std::nullopt) const {
    return {.extents = extents,
            .run_state = {{"step", step}, {"rng", {1, 2, 3}}, {"lr", 0.1}},
            .save_total_limit = limit,
            .confirmed = step};
  }

  /// Every value is that of `reader.step()`, read in slices of `world` ranks.
  void expect_whole(Reader& reader, int world = 1) const {
    EXPECT_EQ(reader.extents(), extents);
    EXPECT_EQ(reader.run_state(), publication(reader.step()).run_state);
    for (int rank = 0; rank < world; ++rank) {
      for (const Extent& extent : extents) {
        const int64_t begin = border(extent, rank, world), end = border(extent, rank + 1, world);
        std::vector<float> found(size_t(end - begin), -1);
        const Status read = reader.read(extent.state, extent.param, begin, found);
        ASSERT_TRUE(read) << read.error().to_string();
        const float first = base(reader.step(), extent);
        for (int64_t i = begin; i < end; ++i) {
          if (found[size_t(i - begin)] == value(first, i)) continue;
          ASSERT_EQ(found[size_t(i - begin)], value(first, i))
              << extent.state << " " << extent.param << " " << i;
        }
      }
    }
  }
};

}  // namespace dsj::checkpoint
