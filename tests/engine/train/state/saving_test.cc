// Saves behind the steps: what they hold, when they are told, how they fail. The exported model, written by several
// ranks.
#include "engine/train/state/saving.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/files/counting_files.h"
#include "common/files/faulty_files.h"
#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/retention.h"
#include "engine/weights/weight_source.h"
#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

SmallRun small(int stage, int world = 2) {
  SmallRun run{.world = world, .config = small_config(stage)};
  run.config.total_steps = 1000;
  run.config.save.every = 10;
  return run;
}

Inputs inputs(const SmallRun& run, const std::string& output_dir,
              std::optional<int64_t> limit = {}) {
  Inputs in;
  in.job.training.save_total_limit = limit;
  in.job.output_dir = output_dir;
  in.model = fixture_model(run.model);
  in.resolution.config = run.config;
  return in;
}

plan::Snapshot snapshot(const SmallRun& run) {
  return plan::plan_snapshot(
      {.memory = {.model = fixture_model(run.model), .config = run.config, .world = run.world}},
      {});
}

/// One rank that trains and saves.
struct SavingRank {
  const Inputs in;
  Rank rank;
  const Events events{-1};
  Saver saver;
  Progress progress;

  SavingRank(const SmallRun& run, comm::Collectives& collectives, Files& files,
             const std::string& output_dir = "/out", std::optional<int64_t> limit = {})
      : in(inputs(run, output_dir, limit)),
        rank(run, collectives),
        saver(files, in, rank.state, rank.stepper, events, at::kCPU) {
    rank.load(run.model);
  }
  /// One step, and what the save in flight has come to.
  Status step() {
    const models::MicroBatch batch =
        micro_batch(progress.step, 0, rank.collectives.rank(), rank.collectives.world(),
                    rank.config, rank.model.vocab_size);
    const auto result = rank.stepper.run(
        {.micro_batches = {&batch, 1},
         .step = progress.step++,
         .rates = {.lr = rank.config.optimizer.lr, .previous_lr = rank.config.optimizer.lr},
         .tokens = 1,
         .votes = saver.votes(),
         .before_update = [this] { saver.settle(); }});
    EXPECT_EQ(result.tokens, rank.collectives.world());
    EXPECT_FALSE(result.stop);
    return saver.advance(result.votes);
  }
};

std::string part_path(const std::string& output_dir, int64_t step, int rank) {
  return output_dir + "/checkpoints/" + checkpoint::step_name(step) + "/" +
         checkpoint::part_data_name(rank);
}

/// After `steps` steps a save that is waited for and one behind the steps write the same parts.
void expect_same_bytes(const SmallRun& run, int steps) {
  MemoryFiles files;
  testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    SavingRank one(run, collectives, files, "/behind");
    one.saver.save_behind(snapshot(run));
    const Inputs waiting = inputs(run, "/waiting");
    Saver saver(files, waiting, one.rank.state, one.rank.stepper, one.events, at::kCPU);
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(one.step());
    ASSERT_TRUE(saver.save(one.progress, true));
    ASSERT_TRUE(one.saver.save(one.progress, false));
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(one.step());
    ASSERT_TRUE(one.saver.finish());
  });
  for (int rank = 0; rank < run.world; ++rank) {
    const auto bytes = files.read_all(part_path("/behind", steps, rank));
    ASSERT_TRUE(bytes) << bytes.error().to_string();
    EXPECT_GT(bytes->size(), 1000u);
    EXPECT_TRUE(*bytes == files.read_all(part_path("/waiting", steps, rank)).value_or(""));
  }
}

TEST(SavingTest, BehindTheStepsTheSameBytesAreSaved) {
  for (int stage = 0; stage <= 3; ++stage) {
    SCOPED_TRACE(stage);
    expect_same_bytes(small(stage), 2);
  }
}

/// Each rank saves errors of its own then, and the copy has room for them.
TEST(SavingTest, BehindTheStepsCompressionErrorsAreSaved) {
  using enum dsconfig::OptimizerKind;
  for (const auto& [kind, stage] :
       {std::pair{OneBitAdam, 0}, std::pair{OneBitAdam, 1}, std::pair{ZeroOneAdam, 0},
        std::pair{ZeroOneAdam, 1}, std::pair{OneBitLamb, 0}, std::pair{OneBitLamb, 1}}) {
    for (const auto precision : {dsconfig::Precision::Fp32, dsconfig::Precision::Bf16}) {
      SCOPED_TRACE(dsconfig::name_of({.kind = kind}) + std::to_string(stage));
      SmallRun run = small(stage);
      run.config.precision = precision;
      run.config.gradient_clipping = 0;
      run.config.optimizer.kind = kind;
      run.config.optimizer.eps = 1e-3;
      run.config.optimizer.freeze_step = 1;
      run.config.optimizer.var_freeze_step = 1;
      run.config.optimizer.local_step_scaler = 1;
      run.config.optimizer.local_step_clipper = 4;
      for (const int steps : {1, 4, 5, 6}) expect_same_bytes(run, steps);
    }
  }
}

TEST(SavingTest, TheCopyTakesWhatThePlanSays) {
  for (const int stage : {0, 2}) {
    const SmallRun run = small(stage);
    MemoryFiles files;
    testing_support::run_ranks(run.world,
                               [&](comm::Collectives& collectives, memory::Ledger& ledger) {
                                 SavingRank one(run, collectives, files);
                                 EXPECT_EQ(ledger.peak(memory::Class::Host), 0);
                                 one.saver.save_behind(snapshot(run));
                                 EXPECT_EQ(ledger.live(memory::Class::Host), snapshot(run).bytes);
                                 for (int i = 0; i < 3; ++i) {
                                   ASSERT_TRUE(one.step());
                                   ASSERT_TRUE(one.saver.save(one.progress, false));
                                 }
                                 ASSERT_TRUE(one.saver.finish());
                                 EXPECT_EQ(ledger.peak(memory::Class::Host), snapshot(run).bytes);
                               });
  }
}

/// With a limit of one: the checkpoint that a finite step has followed stays until a newer one has been
/// followed by one, whether the steps wait for a save or not.
TEST(SavingTest, TheConfirmedCheckpointStaysUntilANewerOneIsConfirmed) {
  const SmallRun run = small(1);
  for (const bool behind : {false, true}) {
    SCOPED_TRACE(behind);
    MemoryFiles files;
    const auto left = [&] {
      std::set<int64_t> steps;
      const auto found = checkpoint::list_candidates(files, "/out/checkpoints");
      for (const auto& one : *found) steps.insert(one.step);
      return steps;
    };
    testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
      SavingRank one(run, collectives, files, "/out", 1);
      if (behind) one.saver.save_behind(snapshot(run));
      const auto expect = [&](const std::set<int64_t>& steps) {
        ASSERT_TRUE(one.saver.finish());
        collectives.barrier({comm::Traffic::Control, "test"})->wait();
        EXPECT_EQ(left(), steps);
        collectives.barrier({comm::Traffic::Control, "test"})->wait();
      };
      ASSERT_TRUE(one.step());
      ASSERT_TRUE(one.saver.save(one.progress, false));
      one.saver.took(true);
      expect({1});
      ASSERT_TRUE(one.step());
      ASSERT_TRUE(one.saver.save(one.progress, false));
      expect({1, 2});
      one.saver.took(false);
      expect({1, 2});
      ASSERT_TRUE(one.step());
      ASSERT_TRUE(one.saver.save(one.progress, false));
      one.saver.took(true);
      expect({3});
      ASSERT_TRUE(one.step());
      ASSERT_TRUE(one.saver.save(one.progress, true));
      expect({3, 4});
      one.saver.took(true);
      expect({4});
    });
  }
}

/// The next save waits for the one in flight, and each is published.
TEST(SavingTest, TwoSavesAtOnceAreTwoCheckpoints) {
  const SmallRun run = small(2);
  MemoryFiles files;
  testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    SavingRank one(run, collectives, files);
    one.saver.save_behind(snapshot(run));
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(one.step());
      ASSERT_TRUE(one.saver.save(one.progress, i == 3));
    }
  });
  for (const int64_t step : {1, 2, 3, 4}) {
    auto reader =
        checkpoint::Reader::open(files, "/out/checkpoints/" + checkpoint::step_name(step));
    ASSERT_TRUE(reader) << step;
    EXPECT_TRUE(reader->verify());
    EXPECT_EQ(reader->run_state()["updates"], step) << "of the step that was saved";
  }
}

TEST(SavingTest, WhereTheCopyDoesNotFitTheStepsWait) {
  const SmallRun run = small(1);
  MemoryFiles files;
  testing_support::run_ranks(run.world,
                             [&](comm::Collectives& collectives, memory::Ledger& ledger) {
                               SavingRank one(run, collectives, files);
                               plan::Snapshot wanted = snapshot(run);
                               wanted.fits = collectives.rank() == 0;
                               one.saver.save_behind(wanted);
                               EXPECT_EQ(ledger.live(memory::Class::Host), 0) << "on no rank";
                               ASSERT_TRUE(one.step());
                               ASSERT_TRUE(one.saver.save(one.progress, false));
                               EXPECT_TRUE(*files.exists("/out/checkpoints/step-1/manifest.json"));
                             });
}

/// The disk of one rank is full: every rank ends at the same step, and that one says why.
TEST(SavingTest, AFailureBehindTheStepsEndsTheRun) {
  const SmallRun run = small(2);
  MemoryFiles memory;
  std::array<int64_t, 2> ended{};
  testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    const int number = collectives.rank();
    FaultyFiles files(memory, {.at = number == 1 ? 3 : -1, .dies = false});
    SavingRank one(run, collectives, files);
    one.saver.save_behind(snapshot(run));
    ASSERT_TRUE(one.step());
    ASSERT_TRUE(one.saver.save(one.progress, false));
    Status status;
    while (status && one.progress.step < 100'000) status = one.step();
    ASSERT_FALSE(status);
    ended[static_cast<size_t>(number)] = one.progress.step;
    EXPECT_EQ(status.error().kind, number == 1 ? ErrorKind::Environment : ErrorKind::Transient);
    EXPECT_EQ(status.error().message,
              number == 1 ? "no space left (injected)" : "another rank failed");
  });
  EXPECT_EQ(ended[0], ended[1]);
  EXPECT_FALSE(*memory.exists("/out/checkpoints/step-1"));
}

/// The files of a directory, by name.
std::map<std::string, std::string> content(Files& files, const std::string& directory) {
  std::map<std::string, std::string> all;
  const auto entries = files.list_dir(directory);
  for (const DirEntry& entry : *entries)
    all[entry.name] = *files.read_all(path_join(directory, entry.name));
  return all;
}

struct Exported {
  std::map<std::string, std::string> files;
  std::map<std::string, std::vector<float>> tensors;
  std::vector<int64_t> bytes_written;  ///< by rank
};

std::map<std::string, std::vector<float>> tensors_of(Files& files, const std::string& directory) {
  const auto source = weights::WeightSource::open(files, directory);
  EXPECT_TRUE(source) << source.error().to_string();
  std::map<std::string, std::vector<float>> all;
  for (const auto& tensor : source->tensors()) {
    int64_t elements = 1;
    for (const int64_t extent : tensor.shape) elements *= extent;
    all[tensor.name].resize(static_cast<size_t>(elements));
    EXPECT_TRUE(source->read(tensor.name, 0, all[tensor.name]));
  }
  return all;
}

/// What `run` exports in files of at most `file_bytes`. `apart`: the last rank has a disk of its own.
Exported exported(const SmallRun& run, int64_t file_bytes, bool apart = false) {
  MemoryFiles shared, other;
  for (Files* files : {&shared, &other}) {
    EXPECT_TRUE(files->make_dirs("/out"));
    EXPECT_TRUE(files->make_dirs("/source"));
    EXPECT_TRUE(files->write_synced("/source/config.json", "{}"));
    const auto model = fixture_model(run.model);
    const auto units = layout::units_of(model);
    const bool copies = std::ranges::any_of(
        units, [](const layout::UnitSpec& unit) { return !unit.buffers.empty(); });
    if (!model.is_text_part && !copies) continue;
    const auto weights = PosixFiles().read_all(fixture(run.model) + "/model.safetensors");
    EXPECT_TRUE(files->write_synced("/source/model.safetensors", weights.value()));
  }
  Exported result{.bytes_written = std::vector<int64_t>(static_cast<size_t>(run.world))};
  testing_support::run_ranks(run.world, [&](comm::Collectives& collectives, memory::Ledger&) {
    const bool elsewhere = apart && collectives.rank() == run.world - 1;
    CountingFiles files(elsewhere ? other : shared);
    SavingRank one(run, collectives, files);
    Inputs in = inputs(run, "/out");
    in.job.training.model_name_or_path = "/source";
    Saver saver(files, in, one.rank.state, one.rank.stepper, one.events, at::kCPU);
    const Status done = saver.export_model({}, file_bytes);
    ASSERT_TRUE(done) << done.error().to_string();
    result.bytes_written[static_cast<size_t>(collectives.rank())] = files.total().bytes_written;
  });
  EXPECT_EQ(other.list_dir("/out")->size(), 0u);
  result.files = content(shared, "/out/model");
  result.tensors = tensors_of(shared, "/out/model");
  return result;
}

constexpr int64_t kFileBytes = 30'000;

TEST(ExportTest, SeveralRanksWriteTheFilesThatRankZeroWritesAlone) {
  const auto loaded = exported(small(0, 1), kFileBytes).tensors;
  for (const int stage : {0, 3}) {
    for (const int world : {2, 3}) {
      const Exported alone = exported(small(stage, world), kFileBytes, /*apart=*/true);
      const Exported dealt = exported(small(stage, world), kFileBytes);
      EXPECT_GT(dealt.files.size(), 5u) << "shards, index and config.json";
      EXPECT_TRUE(dealt.files == alone.files) << stage << " " << world;
      EXPECT_TRUE(dealt.tensors == loaded) << stage << " " << world;
      int64_t all = 0;
      for (const int64_t bytes : dealt.bytes_written) {
        EXPECT_GT(bytes, 1000) << "each rank writes";
        all += bytes;
      }
      EXPECT_EQ(all, alone.bytes_written[0]);
      for (int rank = 1; rank < world; ++rank) EXPECT_EQ(alone.bytes_written[size_t(rank)], 0);
    }
  }
}

TEST(ExportTest, OneFileIsRankZeros) {
  const Exported two = exported(small(3, 2), 1 << 30);
  EXPECT_EQ(two.files.size(), 3u) << "model.safetensors, config.json and README.md";
  EXPECT_TRUE(two.tensors == exported(small(0, 1), 1 << 30).tensors);
  EXPECT_EQ(two.bytes_written[1], 0);
}

/// transformers reads the fixtures' files without a name that lacks or is left: so it reads ours.
TEST(ExportTest, OfEveryFamilyHasTheNamesAndValuesOfItsFiles) {
  PosixFiles posix;
  int families = 0;
  const auto fixtures = posix.list_dir(fixture(""));
  ASSERT_TRUE(fixtures) << fixtures.error().to_string();
  for (const auto& entry : *fixtures) {
    if (!entry.name.starts_with("tiny-") || entry.kind != EntryKind::Directory) continue;
    SmallRun run = small(0, 1);
    run.model = entry.name;
    const auto got = exported(run, 1 << 30).tensors;
    const auto source = weights::WeightSource::open(posix, fixture(entry.name));
    ASSERT_TRUE(source) << entry.name;
    std::set<std::string> left;
    for (const auto& tensor : source->tensors())
      if (!tensor.name.ends_with(".attn.bias") && !tensor.name.ends_with("inv_freq"))  // buffers
        left.insert(tensor.name);
    for (const auto& [name, values] : got) {
      const auto* found = source->find(name);
      ASSERT_TRUE(found) << entry.name << " " << name;
      std::vector<float> want(static_cast<size_t>(found->elements));
      ASSERT_TRUE(source->read(name, 0, want));
      EXPECT_TRUE(values == want) << entry.name << " " << name;
      left.erase(found->name);
    }
    EXPECT_TRUE(left.empty()) << entry.name << " lacks " << *left.begin();
    ++families;
  }
  EXPECT_GE(families, 50);
}

/// A bias that no optimizer moves keeps its values and its type, whatever the run's type is.
TEST(ExportTest, CorrectionsOfTheRouterAreCopied) {
  PosixFiles posix;
  const auto source = tensors_of(posix, fixture("tiny-deepseek-v3"));
  for (const auto& [stage, world] : {std::pair{0, 1}, {3, 2}}) {
    SmallRun run = small(stage, world);
    run.model = "tiny-deepseek-v3";
    const auto got = exported(run, kFileBytes).tensors;
    int corrections = 0;
    for (const auto& [name, values] : source) {
      if (!name.ends_with("e_score_correction_bias")) continue;
      EXPECT_TRUE(got.at(name) == values) << name;
      ++corrections;
    }
    EXPECT_EQ(corrections, 2);
  }
}

TEST(ExportTest, WhatATextPartLeavesIsCopied) {
  PosixFiles posix;
  for (const auto& [model, left] :
       {std::pair{"tiny-gemma3-vision", "vision_tower.post_layernorm.weight"},
        {"tiny-gemma4-vision", "model.embed_vision.embedding_projection.weight"},
        {"tiny-gemma4-vision", "model.language_model.layers.1.layer_scalar"},
        {"tiny-gemma4-e2b", "model.layers.5.layer_scalar"},
        {"tiny-gemma4-e4b", "model.embed_vision.embedding_projection.weight"},
        {"tiny-gemma4-unified", "model.vision_embedder.pos_embedding"}}) {
    const auto source = tensors_of(posix, fixture(model));
    ASSERT_TRUE(source.contains(left));
    for (const auto& [stage, world] : {std::pair{0, 1}, {3, 2}}) {
      SmallRun run = small(stage, world);
      run.model = model;
      EXPECT_TRUE(exported(run, kFileBytes).tensors == source) << model << stage;
    }
  }
}

}  // namespace
}  // namespace dsj::train
