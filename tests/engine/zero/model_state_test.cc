// ModelState and UnitParameters on a tiny model: which parameter lies in which flat, what the
// collective steps over all flats do. What one flat does is flat_test.cc's.
#include "engine/zero/model_state.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/checkpoint/reader.h"
#include "engine/zero/storage/scalar_type.h"
#include "tests/engine/support/fixtures.h"
#include "tests/engine/support/late_collectives.h"
#include "tests/engine/support/ranks.h"

namespace dsj::zero {
namespace {

using dsconfig::Precision;
using dsconfig::ResolvedConfig;
using testing_support::fixture;
using testing_support::run_ranks;
using Values = std::map<std::string, at::Tensor>;

/// Small parameters (norms, biases) stay whole at stage 3; flats have several chunks.
ResolvedConfig config_of(int stage, Precision precision = Precision::Fp32) {
  ResolvedConfig config;
  config.precision = precision;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 64;
  config.zero.reduce_bucket_size = 3000;
  config.optimizer.kind = dsconfig::OptimizerKind::Sgd;
  return config;
}

/// The tiny model with its weights, and the weights as they lie in the file.
struct Model {
  PosixFiles files;
  layout::ModelConfig config;
  weights::WeightSource source;

  explicit Model(const std::string& name = "tiny-qwen2")
      : config(*layout::read_model_config(fixture(name))),
        source(*weights::WeightSource::open(files, fixture(name))) {}
  at::Tensor value(const layout::Parameter& parameter) const {
    const at::Tensor value = at::empty({parameter.numel()});
    EXPECT_TRUE(source.read(parameter.name, 0,
                            {value.data_ptr<float>(), static_cast<size_t>(value.numel())}));
    return value.view(parameter.shape);
  }
};

/// One rank: the state, loaded.
struct Rank {
  Model model;
  ModelState state;
  Rank(const ResolvedConfig& config, comm::Collectives& collectives,
       const std::optional<LoraArgs>& lora = {})
      : state(model.config, config, at::kCPU, collectives,
              lora ? *layout::resolve_lora(model.config, *lora) : lora) {
    const Status loaded = state.load(model.source);
    EXPECT_TRUE(loaded) << loaded.error().to_string();
  }
};

struct StateCase {
  int stage, world;
  Precision precision = Precision::Fp32;
  std::string text() const {
    return "stage " + std::to_string(stage) + ", world " + std::to_string(world) + ", " +
           name_of(precision);
  }
};

std::vector<StateCase> every_state_case() {
  std::vector<StateCase> cases = {{0, 1}};
  for (int stage = 0; stage <= 3; ++stage)
    for (const auto precision : {Precision::Fp32, Precision::Bf16})
      cases.push_back({stage, 2, precision});
  return cases;
}

void gather(ModelState& state) {
  for (int i = 0; i < static_cast<int>(state.plan().flats.size()); ++i)
    if (state.flat(i).sharded_parameters()) state.gather(i);
  for (int unit = 0; unit < static_cast<int>(state.units().size()); ++unit) state.wait_for(unit);
}
void release(ModelState& state) {
  for (int i = 0; i < static_cast<int>(state.plan().flats.size()); ++i)
    if (state.flat(i).sharded_parameters()) state.release(i);
}

/// Calls f(unit, parameter, its spec) in the order of backward: the last unit first.
template <typename F>
void for_parameters(const ModelState& state, F f) {
  for (int unit = static_cast<int>(state.units().size()) - 1; unit >= 0; --unit)
    for (int i = 0; i < static_cast<int>(state.units()[unit].parameters.size()); ++i)
      f(unit, i, state.units()[unit].parameters[i]);
}

/// A gradient that tells parameter, element and rank apart; small integers.
at::Tensor gradient_of_parameter(const layout::Parameter& parameter, int rank) {
  const auto key = static_cast<int64_t>(std::hash<std::string>()(parameter.name) % 7);
  return (at::arange(parameter.numel(), at::kLong) + key + rank)
      .remainder(5)
      .add(1)
      .view(parameter.shape)
      .to(at::kFloat);
}

/// Every unit's backward with its gradients, and the reductions in the schedule's order.
void backward_of_all(ModelState& state, int rank, bool last = true) {
  for (int unit = static_cast<int>(state.units().size()) - 1; unit >= 0; --unit) {
    const auto& parameters = state.units()[unit].parameters;
    for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
      if (parameters[i].frozen) continue;
      const GradView view = state.unit(unit).grad(i);
      const at::Tensor own = gradient_of_parameter(parameters[i], rank).to(view.tensor.dtype());
      if (view.accumulate)
        view.tensor.add_(own);
      else
        view.tensor.copy_(own);
    }
    if (state.plan().unit_flat[unit] >= 0) state.reduce(state.plan().unit_flat[unit], last);
  }
  if (state.plan().persisted >= 0) state.reduce(state.plan().persisted, last);
}

/// All weights after the run, as rank 0 sees them.
Values weights_of(ModelState& state) {
  Values values;
  state.visit_weights([&](const layout::Slot& slot, const at::Tensor& value) {
    EXPECT_TRUE(values.emplace(slot.name, value.to(at::kFloat).clone()).second) << slot.name;
  });
  return values;
}

TEST(ModelStateTest, LoadsEveryWeightIntoItsPlace) {
  for (const StateCase& c : every_state_case()) {
    run_ranks(c.world, [&](comm::Collectives& collectives, memory::Ledger&) {
      SCOPED_TRACE(c.text());
      Rank rank(config_of(c.stage, c.precision), collectives);
      const auto type = scalar_type(c.precision);
      gather(rank.state);
      for_parameters(rank.state, [&](int unit, int i, const layout::Parameter& parameter) {
        const at::Tensor got = rank.state.unit(unit).weight(i);
        EXPECT_TRUE(got.equal(rank.model.value(parameter).to(type))) << parameter.name;
      });
      release(rank.state);
      const Values values = weights_of(rank.state);
      if (collectives.rank() != 0) {
        EXPECT_TRUE(values.empty());
        return;
      }
      EXPECT_EQ(values.size(), rank.model.source.tensors().size());
      for_parameters(rank.state, [&](int, int, const layout::Parameter& parameter) {
        ASSERT_TRUE(values.contains(parameter.name));
        EXPECT_TRUE(
            values.at(parameter.name).equal(rank.model.value(parameter).to(type).to(at::kFloat)))
            << parameter.name;
      });
    });
  }
}

TEST(ModelStateTest, NeighboursAreStackedOnlyWithinAFlat) {
  run_ranks(2, [](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(config_of(3), collectives);
    gather(rank.state);
    const auto unit = rank.state.unit(1);
    const auto& parameters = rank.state.units()[1].parameters;
    const auto& places = rank.state.plan().places[1];
    const auto row_of = [&](int i) {
      return std::vector<int64_t>(parameters[i].shape.begin() + 1, parameters[i].shape.end());
    };
    for (int first = 0; first < static_cast<int>(parameters.size()); ++first) {
      for (int count = 1; first + count <= static_cast<int>(parameters.size()); ++count) {
        if (std::ranges::any_of(std::span(places).subspan(first, count),
                                [&](auto place) { return place.flat != places[first].flat; })) {
          EXPECT_FALSE(unit.stacked_weight(first, count).defined());
          EXPECT_FALSE(unit.stacked_grad(first, count).tensor.defined());
          continue;
        }
        if (row_of(first + count - 1) != row_of(first)) break;  // nobody stacks these
        const at::Tensor stacked = unit.stacked_weight(first, count);
        if (!stacked.defined()) continue;
        int64_t row = 0;
        for (int i = first; i < first + count; ++i) {
          const int64_t rows = parameters[i].shape[0];
          EXPECT_TRUE(stacked.narrow(0, row, rows).equal(unit.weight(i))) << parameters[i].name;
          row += rows;
        }
        EXPECT_EQ(row, stacked.size(0));
        EXPECT_EQ(unit.stacked_grad(first, count).tensor.sizes(), stacked.sizes());
      }
    }
    EXPECT_TRUE(unit.stacked_weight(1, 3).defined()) << "q, k, v serve one product";
    EXPECT_FALSE(unit.stacked_weight(0, 2).defined()) << "the norm is in the persisted flat";
    EXPECT_FALSE(unit.stacked_grad(0, 2).tensor.defined());
    for (int flat : {rank.state.plan().unit_flat[1], rank.state.plan().persisted})
      rank.state.flat(flat).gradient().clear();
    release(rank.state);
  });
}

/// Two micro-steps and SGD with a rate of 1, with and without overlap, from late collectives.
TEST(ModelStateTest, AStepAppliesEveryGradientOnce) {
  for (const StateCase& c : every_state_case()) {
    if (c.precision != Precision::Fp32) continue;
    for (const bool overlap : {false, true}) {
      double squares = 0, want_squares = 0;
      std::mutex mutex;
      run_ranks(c.world, [&](comm::Collectives& inner, memory::Ledger&) {
        SCOPED_TRACE(c.text());
        testing_support::LateCollectives late(inner);
        ResolvedConfig config = config_of(c.stage);
        config.zero.overlap_comm = overlap;
        Rank rank(config, late);
        backward_of_all(rank.state, late.rank(), false);
        backward_of_all(rank.state, late.rank(), true);
        rank.state.finish_reductions();
        {
          const std::scoped_lock lock(mutex);
          squares += rank.state.owned_sum_of_squares().item<double>();
        }
        rank.state.step({.rates = {.lr = 1}});
        rank.state.clear_grad();
        const Values values = weights_of(rank.state);
        if (late.rank() != 0) return;
        for_parameters(rank.state, [&](int, int, const layout::Parameter& parameter) {
          at::Tensor total = at::zeros(parameter.shape);
          for (int r = 0; r < c.world; ++r) total += 2 * gradient_of_parameter(parameter, r);
          want_squares += total.square().sum(at::kDouble).item<double>();
          // averaging() leaves the sum over ranks; the update's scale would make it the mean.
          EXPECT_TRUE(values.at(parameter.name).equal(rank.model.value(parameter) - total))
              << parameter.name;
        });
      });
      EXPECT_EQ(squares, want_squares) << c.text();
      if (HasFailure()) return;
    }
  }
}

/// With overlap two reductions stay under way, without it none: their whole gradients are what
/// lives beside the shards.
TEST(ModelStateTest, AtMostTwoReductionsAreUnderWay) {
  for (const bool overlap : {false, true}) {
    run_ranks(2, [&](comm::Collectives& inner, memory::Ledger& ledger) {
      testing_support::LateCollectives late(inner);
      ResolvedConfig config = config_of(2);
      config.zero.overlap_comm = overlap;
      Rank rank(config, late);
      const auto& plan = rank.state.plan();
      std::vector<int64_t> whole;  // bytes of the flats reduced so far
      int64_t shards = 0;
      for (int unit = static_cast<int>(rank.state.units().size()) - 1; unit >= 0; --unit) {
        const auto& parameters = rank.state.units()[unit].parameters;
        for (int i = 0; i < static_cast<int>(parameters.size()); ++i)
          rank.state.unit(unit).grad(i).tensor.fill_(1);
        const auto& flat = plan.flats[plan.unit_flat[unit]];
        rank.state.reduce(plan.unit_flat[unit], true);
        whole.push_back(4 * flat.numel());
        shards += 4 * flat.shard_numel();
        int64_t under_way = 0;
        for (size_t back = 1; overlap && back <= std::min<size_t>(2, whole.size()); ++back)
          under_way += whole[whole.size() - back];
        EXPECT_EQ(ledger.live(memory::Class::Gradients), shards + under_way) << "unit " << unit;
      }
      rank.state.finish_reductions();
      EXPECT_EQ(ledger.live(memory::Class::Gradients), shards);
    });
  }
}

/// The first of backward's order, whatever rank and flat has it, at a parameter's last element.
TEST(ModelStateTest, TheFirstBadGradientIsTheFirstOfBackward) {
  for (const StateCase& c : {StateCase{0, 1}, StateCase{1, 2}, StateCase{3, 2}}) {
    run_ranks(c.world, [&](comm::Collectives& collectives, memory::Ledger&) {
      SCOPED_TRACE(c.text());
      Rank rank(config_of(c.stage), collectives);
      std::vector<std::string> order;
      for_parameters(rank.state, [&](int, int, const layout::Parameter& parameter) {
        order.push_back(parameter.name);
      });
      // With the k-th bad, all later ones may be bad, too; -1: none is.
      for (int first = -1; first < static_cast<int>(order.size()); ++first) {
        int at = 0;
        for (int unit = static_cast<int>(rank.state.units().size()) - 1; unit >= 0; --unit) {
          const auto& parameters = rank.state.units()[unit].parameters;
          for (int i = 0; i < static_cast<int>(parameters.size()); ++i, ++at) {
            const at::Tensor grad = rank.state.unit(unit).grad(i).tensor.fill_(1);
            const bool bad = at == first || (first >= 0 && at == first + 4);
            if (bad && collectives.rank() == 0) grad.flatten()[-1].fill_(NAN);
          }
          rank.state.reduce(rank.state.plan().unit_flat[unit], true);
          if (unit == 0 && rank.state.plan().persisted >= 0)
            rank.state.reduce(rank.state.plan().persisted, true);
        }
        rank.state.finish_reductions();
        EXPECT_EQ(rank.state.first_bad_gradient(), first < 0 ? "" : order[first]);
        rank.state.clear_grad();
      }
    });
  }
}

/// Of whatever rank's part, whatever place.
TEST(ModelStateTest, TheFirstBadWeightIsFoundAtEveryStage) {
  for (const StateCase& c :
       {StateCase{0, 1}, StateCase{0, 2}, StateCase{1, 2}, StateCase{2, 3}, StateCase{3, 2}}) {
    run_ranks(c.world, [&](comm::Collectives& collectives, memory::Ledger&) {
      SCOPED_TRACE(c.text());
      Rank rank(config_of(c.stage), collectives);
      std::vector<std::string> order;
      for (const auto& flat : rank.state.plan().flats)
        for (const auto& slot : flat.slots()) order.push_back(slot.name);
      const auto fill = [&](size_t bad, float value) {
        for (int i = 0; i < static_cast<int>(rank.state.plan().flats.size()); ++i) {
          const Status filled = rank.state.flat(i).load_state(
              false, [&](int, const Flat::HostRange& range) -> Status {
                const size_t at =
                    static_cast<size_t>(std::ranges::find(order, range.parameter) - order.begin());
                std::ranges::fill(range.data, 0.5f);
                if (at >= bad && !range.data.empty()) range.data.back() = value;
                return {};
              });
          EXPECT_TRUE(filled);
        }
      };
      for (size_t bad = 0; bad <= order.size(); ++bad) {
        fill(bad, bad % 2 == 0 ? NAN : -INFINITY);
        EXPECT_EQ(rank.state.first_bad_weight(), bad < order.size() ? order[bad] : "");
      }
      fill(0, std::numeric_limits<float>::max());
      EXPECT_EQ(rank.state.first_bad_weight(), "");
    });
  }
}

/// LAMB's update against its formula over whole parameters, in double.
TEST(ModelStateTest, LambsNormsAreOfWholeParameters) {
  // v stays 0 and m is the gradient, so that u = g + 0.1 p.
  const dsconfig::OptimizerConfig lamb{.kind = dsconfig::OptimizerKind::Lamb,
                                       .beta1 = 0,
                                       .beta2 = 1,
                                       .eps = 1,
                                       .weight_decay = 0.1,
                                       .bias_correction = false,
                                       .min_coeff = 1e-4,
                                       .max_coeff = 10};
  for (const StateCase& c :
       {StateCase{0, 1}, StateCase{0, 2}, StateCase{1, 2}, StateCase{2, 2}, StateCase{3, 2}}) {
    run_ranks(c.world, [&](comm::Collectives& collectives, memory::Ledger&) {
      SCOPED_TRACE(c.text());
      ResolvedConfig config = config_of(c.stage);
      config.optimizer = lamb;
      Rank rank(config, collectives);
      backward_of_all(rank.state, collectives.rank());
      rank.state.finish_reductions();
      rank.state.step({.rates = {.lr = 0.01}});
      rank.state.clear_grad();
      const Values values = weights_of(rank.state);
      if (collectives.rank() != 0) return;
      std::set<double> coefficients;
      for_parameters(rank.state, [&](int, int, const layout::Parameter& parameter) {
        const at::Tensor p = rank.model.value(parameter).to(at::kDouble);
        at::Tensor g = at::zeros(parameter.shape, at::kDouble);
        for (int r = 0; r < c.world; ++r) g += gradient_of_parameter(parameter, r);
        const at::Tensor u = g + 0.1 * p;
        const double coefficient =
            std::clamp(p.norm().item<double>() / u.norm().item<double>(), 1e-4, 10.0);
        coefficients.insert(coefficient);
        const at::Tensor want = p - 0.01 * coefficient * u;
        EXPECT_LT((values.at(parameter.name).to(at::kDouble) - want).abs().max().item<double>(),
                  1e-6)
            << parameter.name;
      });
      EXPECT_GT(coefficients.size(), 3u) << "parameters that differ";
    });
  }
}

TEST(ModelStateTest, PiecesOfAllRanksAreTheExtents) {
  for (const StateCase& c : every_state_case()) {
    std::map<std::pair<std::string, std::string>, std::set<int64_t>> elements;
    std::vector<checkpoint::Extent> extents;
    std::mutex mutex;
    run_ranks(c.world, [&](comm::Collectives& collectives, memory::Ledger&) {
      ResolvedConfig config = config_of(c.stage, c.precision);
      config.optimizer.kind = dsconfig::OptimizerKind::Adam;
      Rank rank(config, collectives);
      const std::scoped_lock lock(mutex);
      extents = rank.state.extents();
      ASSERT_TRUE(rank.state.for_pieces([&](const checkpoint::Piece& piece) -> Status {
        auto& found = elements[{piece.state, piece.param}];
        for (size_t i = 0; i < piece.data.size(); ++i)
          EXPECT_TRUE(found.insert(piece.offset + static_cast<int64_t>(i)).second) << piece.param;
        return {};
      }));
    });
    EXPECT_EQ(extents.size(), elements.size()) << c.text();
    EXPECT_EQ(extents.size(), 3 * Model().source.tensors().size()) << "master and two moments";
    for (const auto& extent : extents) {
      const auto& found = elements[{extent.state, extent.param}];
      ASSERT_EQ(static_cast<int64_t>(found.size()), extent.elements) << extent.param;
      EXPECT_EQ(*found.begin(), 0);
      EXPECT_EQ(*found.rbegin(), extent.elements - 1);
    }
  }
}

TEST(ModelStateTest, ACheckpointThatDoesNotFitIsRefused) {
  run_ranks(1, [](comm::Collectives& collectives, memory::Ledger&) {
    MemoryFiles files;
    Rank saved(config_of(0), collectives);
    const checkpoint::WriteOptions options{.checkpoints_dir = "/checkpoints"};
    ASSERT_TRUE(checkpoint::write_rank_from(files, options, [&](const checkpoint::EmitPiece& emit) {
      return saved.state.for_pieces(emit);
    }));
    const auto published = checkpoint::publish(files, options, {.extents = saved.state.extents()});
    ASSERT_TRUE(published) << published.error().to_string();
    auto reader = checkpoint::Reader::open(files, published->path);
    ASSERT_TRUE(reader) << reader.error().to_string();
    EXPECT_TRUE(saved.state.restore(*reader));

    ResolvedConfig adam = config_of(0);
    adam.optimizer.kind = dsconfig::OptimizerKind::Adam;
    const Status no_state = Rank(adam, collectives).state.restore(*reader);
    ASSERT_FALSE(no_state);
    EXPECT_EQ(no_state.error().kind, ErrorKind::BadInput);
    EXPECT_EQ(no_state.error().message,
              "the checkpoint has no state \"exp_avg\", which AdamW needs");

    layout::ModelConfig wider = saved.model.config;
    wider.vocab_size += 1;
    ModelState other(wider, config_of(0), at::kCPU, collectives);
    const Status no_size = other.restore(*reader);
    ASSERT_FALSE(no_size);
    EXPECT_EQ(no_size.error().message,
              "\"model.embed_tokens.weight\" has 8192 elements, the model 8224");
  });
}

/// A checkpoint in which every step so far was skipped, as DeepSpeed's have it: parameters alone.
TEST(ModelStateTest, BeforeTheFirstUpdateMissingStatesAreZeros) {
  run_ranks(1, [](comm::Collectives& collectives, memory::Ledger&) {
    const auto state_of = [&](dsconfig::OptimizerKind kind, int64_t updates) {
      MemoryFiles files;
      Rank saved(config_of(0), collectives);
      const checkpoint::WriteOptions options{.checkpoints_dir = "/checkpoints"};
      EXPECT_TRUE(checkpoint::write_rank_from(
          files, options,
          [&](const checkpoint::EmitPiece& emit) { return saved.state.for_pieces(emit); }));
      const auto published =
          checkpoint::publish(files, options,
                              {.extents = saved.state.extents(),
                               .run_state = nlohmann::json::object({{"updates", updates}})});
      EXPECT_TRUE(published);
      auto reader = checkpoint::Reader::open(files, published->path);
      EXPECT_TRUE(reader);
      ResolvedConfig config = config_of(0);
      config.optimizer.kind = kind;
      Rank rank(config, collectives);
      // What was in the moments before does not stay there.
      for (size_t i = 0; i < rank.state.plan().flats.size(); ++i)
        EXPECT_TRUE(rank.state.flat(static_cast<int>(i))
                        .load_state(true, [](int, const Flat::HostRange& range) -> Status {
                          std::ranges::fill(range.data, 7.0f);
                          return {};
                        }));
      const Status restored = rank.state.restore(*reader);
      if (!restored) return restored;
      return rank.state.for_pieces([&](const checkpoint::Piece& piece) -> Status {
        std::vector<float> want(piece.data.size());
        // OneBitLamb begins with it.
        if (piece.state == "last_factor") std::ranges::fill(want, 1.0f);
        if (piece.state == "master") {
          EXPECT_TRUE(reader->read(piece.state, piece.param, piece.offset, want));
        }
        EXPECT_TRUE(std::ranges::equal(piece.data, want)) << piece.state << " of " << piece.param;
        return {};
      });
    };
    using enum dsconfig::OptimizerKind;
    for (const auto kind : {Adam, OneBitAdam, OneBitLamb, ZeroOneAdam}) {
      const Status restored = state_of(kind, 0);
      EXPECT_TRUE(restored) << dsconfig::name_of({.kind = kind}) << ": "
                            << (restored ? "" : restored.error().to_string());
    }
    const Status refused = state_of(Adam, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message,
              "the checkpoint has no state \"exp_avg\", which AdamW needs");
  });
}

TEST(ModelStateTest, WeightsThatDoNotFitAreRefused) {
  run_ranks(1, [](comm::Collectives& collectives, memory::Ledger&) {
    const Model tied("tiny-qwen2-tied");
    layout::ModelConfig with_head = tied.config;
    with_head.tied = false;
    ModelState state(with_head, config_of(0), at::kCPU, collectives);
    const Status missing = state.load(tied.source);
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().message, "the checkpoint has no tensor \"lm_head.weight\"");
    EXPECT_EQ(missing.error().where, tied.source.paths().front());

    layout::ModelConfig wider = tied.config;
    wider.vocab_size += 1;
    ModelState other(wider, config_of(0), at::kCPU, collectives);
    const Status shape = other.load(tied.source);
    ASSERT_FALSE(shape);
    EXPECT_EQ(shape.error().message,
              "tensor \"model.embed_tokens.weight\" has shape [256,32], config.json asks for "
              "[257,32]");
  });
}

TEST(ModelStateTest, WithLoraOnlyAdaptersAreTrained) {
  const LoraArgs lora{.r = 2, .target_modules = {"q_proj", "v_proj"}};
  for (const StateCase& c : every_state_case()) {
    run_ranks(c.world, [&](comm::Collectives& collectives, memory::Ledger&) {
      SCOPED_TRACE(c.text());
      Rank rank(config_of(c.stage, c.precision), collectives, lora);
      const auto& units = rank.state.units();
      EXPECT_EQ(rank.state.unit(1).lora().r, 2);
      gather(rank.state);
      for_parameters(rank.state, [&](int unit, int i, const layout::Parameter& parameter) {
        const auto p = rank.state.unit(unit);
        EXPECT_EQ(p.trained(i), !parameter.frozen);
        if (!parameter.frozen) return;
        EXPECT_FALSE(p.grad(i).tensor.defined()) << parameter.name;
        EXPECT_EQ(p.adapter(i) != nullptr, parameter.name.ends_with("q_proj.weight") ||
                                               parameter.name.ends_with("v_proj.weight"));
        EXPECT_TRUE(p.weight(i).equal(rank.model.value(parameter).to(scalar_type(c.precision))))
            << parameter.name;
      });
      for (int unit = 1; unit + 1 < static_cast<int>(units.size()); ++unit) {
        ASSERT_EQ(units[unit].adapters.size(), 2u);
        for (const auto& adapter : units[unit].adapters) {
          EXPECT_EQ(rank.state.unit(unit).adapter(adapter.weight), &adapter);
          EXPECT_TRUE(rank.state.unit(unit).weight(adapter.a).ne(0).any().item<bool>());
          EXPECT_TRUE(rank.state.unit(unit).weight(adapter.b).eq(0).all().item<bool>());
        }
      }
      release(rank.state);
      backward_of_all(rank.state, collectives.rank());
      rank.state.finish_reductions();
      rank.state.step({.rates = {.lr = 1}});
      rank.state.clear_grad();
      EXPECT_EQ(rank.state.first_bad_gradient(), "");
      size_t trained = 0;
      rank.state.visit_weights([&](const layout::Slot&, const at::Tensor&) { ++trained; }, true);
      EXPECT_EQ(trained, collectives.rank() == 0 ? 8u : 0u) << "two layers of two adapters";
    });
  }
}

TEST(ModelStateTest, ATiedHeadUsesTheEmbeddingsWeight) {
  run_ranks(2, [](comm::Collectives& collectives, memory::Ledger&) {
    const Model tied("tiny-qwen2-tied");
    ModelState state(tied.config, config_of(3), at::kCPU, collectives);
    ASSERT_TRUE(state.load(tied.source));
    const int head = static_cast<int>(state.units().size()) - 1;
    state.gather(state.plan().unit_flat[0]);
    state.wait_for(head);  // waits for the embedding's flat
    const at::Tensor weight = state.unit(head).embedding().weight(0);
    EXPECT_TRUE(weight.equal(tied.value(state.units()[0].parameters[0])));
    EXPECT_FALSE(state.unit(head).embedding().grad(0).accumulate);
    EXPECT_TRUE(state.unit(0).grad(0).accumulate) << "the same gradient";
    state.flat(state.plan().unit_flat[0]).gradient().clear();
    state.release(state.plan().unit_flat[0]);
  });
}

}  // namespace
}  // namespace dsj::zero
