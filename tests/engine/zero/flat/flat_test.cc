// Flat alone, with small integers for gradients: sums and SGD with a rate of 1 are exact in every
// type, so a gradient that is lost, counted twice or put one element off changes a number. Memory
// begins as NaN: what is read before it is written shows, padding included.
#include "engine/zero/flat/flat.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "engine/zero/methods/lamb.h"
#include "tests/engine/support/late_collectives.h"
#include "tests/engine/support/late_file.h"
#include "tests/engine/support/ranks.h"

namespace dsj::zero {
namespace {

using layout::Place;
using memory::Class;
using testing_support::LateDisk;
using testing_support::LateFile;
using testing_support::run_ranks;

/// Sizes around the alignment of 32 elements: padding of every kind, and none after "exact".
const std::vector<layout::Parameter> kParameters = {
    {"odd", {5, 7}}, {"exact", {8, 8}}, {"next", {3, 8}}, {"one", {1}}, {"over", {33}}};

struct Case {
  int stage = 0;
  bool persisted = false;
  int world = 1;
  at::ScalarType compute = at::kFloat, grad_accum = at::kFloat, communication = at::kFloat;
  optim::Averaging averaging;
  std::vector<optim::StateSpec> states;
  Place place = Place::Device;  ///< of the second third of the owned state
  bool frozen = false;

  bool separate_master() const { return compute != at::kFloat && !frozen; }
  std::string text() const {
    return "stage " + std::to_string(stage) + (persisted ? " persisted" : "") + ", world " +
           std::to_string(world) + ", compute " + c10::toString(compute) + ", sum " +
           c10::toString(grad_accum) + ", wire " + c10::toString(communication) + ", place " +
           std::to_string(static_cast<int>(place));
  }
};

/// A flat with its owned state on the device, or in three parts of which the second is elsewhere.
class TestFlat {
 public:
  TestFlat(const Case& c, comm::Collectives& collectives,
           const std::vector<layout::Parameter>& parameters = kParameters, int64_t chunk_limit = 96)
      : layout_("flat", frozen(parameters, c.frozen),
                layout::kStages[c.stage].shards_update() ? c.world : 1, chunk_limit),
        flat_(layout_, options(c), collectives) {}
  Flat& operator*() { return flat_; }
  Flat* operator->() { return &flat_; }

 private:
  static std::vector<layout::Parameter> frozen(std::vector<layout::Parameter> parameters,
                                               bool frozen) {
    for (auto& parameter : parameters) parameter.frozen = frozen;
    return parameters;
  }

  ShardStoreOptions store(const Case& c, const std::vector<double>& initial, at::ScalarType type,
                          Class klass, LateDisk& disk) {
    ShardStoreOptions options{.initial = initial, .type = type, .on_device = klass};
    const int64_t all = layout_.shard_numel();
    const int64_t third = c.place == Place::Device ? 0 : all / 3;
    if (initial.empty()) return options;
    if (third > 0) options.parts = {{Place::Device, 0, third}, {c.place, third, third}};
    options.parts.push_back({Place::Device, 2 * third, all - 2 * third});
    if (c.place == Place::File) {
      const int64_t bytes = layout::file_bytes(third, static_cast<int64_t>(initial.size()),
                                               static_cast<int64_t>(c10::elementSize(type)));
      options.tiles = std::make_shared<TileCache>(
          std::make_unique<LateFile>(disk), std::vector<TileSpec>{{0, bytes}},
          TileCacheOptions{.slots = 1, .slot_bytes = bytes, .key = "the.key"});
    }
    return options;
  }

  FlatOptions options(const Case& c) {
    const auto& stage = layout::stage_of_flat(layout::kStages[c.stage], c.persisted);
    std::vector<double> initial;
    if (c.separate_master()) initial.push_back(0);
    for (const auto& state : c.states) initial.push_back(state.initial);
    std::vector<double> shard;
    if (stage.shards_parameters()) shard.push_back(0);
    const bool is_master = c.compute == at::kFloat && !c.frozen;
    const Class shard_class = is_master ? Class::Optimizer : Class::Parameters;
    return {.stage = stage,
            .compute = c.compute,
            .grad_accum = c.grad_accum,
            .communication = c.communication,
            .averaging = c.averaging,
            .states = c.states,
            .separate_master = c.separate_master(),
            .optimizer = store(c, initial, at::kFloat, Class::Optimizer, optimizer_disk_),
            .parameters = store(c, shard, c.compute, shard_class, parameter_disk_)};
  }

  const layout::FlatLayout layout_;
  LateDisk optimizer_disk_{1 << 16}, parameter_disk_{1 << 16};
  Flat flat_;
};

/// New memory holds NaN while it lives.
class PoisonedMemory {
 public:
  PoisonedMemory() { set(true); }
  ~PoisonedMemory() { set(false); }

 private:
  static void set(bool on) {
    at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(on);
  }
};

class FlatTest : public testing::Test {
 protected:
  FlatTest() { EXPECT_TRUE(at::empty({1}, at::kFloat).isnan().item<bool>()); }

 private:
  const PoisonedMemory poison_;
};

/// Every stage with every world size, and the flat that stage 3 keeps whole. One rank is stage 0, or
/// 3 with offloaded parameters (plan::effective_stage).
std::vector<Case> every_stage() {
  std::vector<Case> cases;
  for (const int world : {1, 2, 3}) {
    for (int stage = 0; stage <= 3; ++stage)
      if (world > 1 || stage % 3 == 0) cases.push_back({.stage = stage, .world = world});
    cases.push_back({.stage = 3, .persisted = true, .world = world});
  }
  return cases;
}

/// Calls body(rank's flat, its collectives, its ledger) on every rank of a case.
void on_every_rank(
    const Case& c,
    const std::function<void(TestFlat&, comm::Collectives&, memory::Ledger&)>& body) {
  run_ranks(c.world, [&](comm::Collectives& collectives, memory::Ledger& ledger) {
    SCOPED_TRACE(c.text());
    TestFlat flat(c, collectives);
    body(flat, collectives, ledger);
  });
}

/// The initial value of a parameter's element: another one for each, exact in bf16.
float initial(const std::string& parameter, int64_t element) {
  return static_cast<float>((static_cast<int64_t>(parameter.size()) * 37 + element * 5) % 251);
}
/// What a rank's micro-step adds to an element's gradient; small.
int64_t gradient(int slot, int64_t element, int rank, int micro_step) {
  return (slot + element * 3 + rank * 2 + micro_step) % 4 + 1;
}

Status fill_initial(const Flat::HostRange& range) {
  for (size_t i = 0; i < range.data.size(); ++i)
    range.data[i] = initial(range.parameter, range.offset + static_cast<int64_t>(i));
  return {};
}
void load(Flat& flat) {
  ASSERT_TRUE(flat.load_state(false, [](int state, const Flat::HostRange& range) {
    EXPECT_EQ(state, Flat::kMaster);
    return fill_initial(range);
  }));
  flat.publish();
}

template <typename F>
void with_weights(Flat& flat, F f) {
  if (flat.sharded_parameters()) flat.start_gather();
  flat.finish_gather();
  f();
  if (flat.sharded_parameters()) flat.release();
}

/// Checks that every parameter's working copy is value(slot, element).
template <typename F>
void expect_weights(Flat& flat, F value) {
  with_weights(flat, [&] {
    const auto& slots = flat.layout().slots();
    for (int slot = 0; slot < static_cast<int>(slots.size()); ++slot) {
      const at::Tensor got = flat.weight(slot);
      EXPECT_EQ(got.sizes(), at::IntArrayRef(slots[slot].shape));
      const at::Tensor values = got.to(at::kFloat).flatten();
      for (int64_t i = 0; i < slots[slot].numel; ++i)
        ASSERT_EQ(values[i].item<float>(), value(slot, i)) << slots[slot].name << "[" << i << "]";
    }
  });
}

/// One rank's micro-step: writes (or adds) every gradient, as backward does.
void backward(Flat& flat, int rank, int micro_step) {
  const auto& slots = flat.layout().slots();
  for (int slot = 0; slot < static_cast<int>(slots.size()); ++slot) {
    std::vector<float> values;
    for (int64_t i = 0; i < slots[slot].numel; ++i)
      values.push_back(static_cast<float>(gradient(slot, i, rank, micro_step)));
    const GradView view = flat.grad(slot);
    const at::Tensor own = at::tensor(values).view(slots[slot].shape).to(view.tensor.dtype());
    if (view.accumulate)
      view.tensor.add_(own);
    else
      view.tensor.copy_(own);
  }
}

constexpr int kMicroSteps = 3;

/// The step's gradient of an element: over all ranks and micro-steps.
int64_t total_gradient(int slot, int64_t element, int world) {
  int64_t sum = 0;
  for (int rank = 0; rank < world; ++rank)
    for (int micro = 0; micro < kMicroSteps; ++micro) sum += gradient(slot, element, rank, micro);
  return sum;
}

void all_micro_steps(Flat& flat, int rank) {
  for (int micro = 0; micro < kMicroSteps; ++micro) {
    backward(flat, rank, micro);
    flat.gradient().reduce(micro + 1 == kMicroSteps);
  }
  flat.gradient().finish_reduce();
}

const optim::Update kSgd{.rule = optim::SgdRule{.lr = 1}};

void update(Flat& flat) {
  flat.step(kSgd);
  flat.gradient().clear();
}

TEST_F(FlatTest, WhatIsLoadedIsWhatIsGathered) {
  for (Case c : every_stage()) {
    for (const auto compute : {at::kFloat, at::kBFloat16}) {
      c.compute = compute;
      on_every_rank(c, [](TestFlat& flat, comm::Collectives&, memory::Ledger&) {
        load(*flat);
        for (int again = 0; again < 2; ++again)
          expect_weights(*flat, [&](int slot, int64_t i) {
            return initial(flat->layout().slots()[slot].name, i);
          });
        EXPECT_EQ(flat->gathered(), !flat->sharded_parameters());
      });
    }
  }
}

TEST_F(FlatTest, NeighboursAreStackedUnlessPaddingLiesBetween) {
  on_every_rank({.stage = 3, .world = 2}, [](TestFlat& flat, comm::Collectives&, memory::Ledger&) {
    load(*flat);
    with_weights(*flat, [&] {
      const at::Tensor both = flat->stacked_weight(1, 2);  // "exact", which needs no padding
      ASSERT_TRUE(both.defined());
      EXPECT_EQ(both.sizes(), at::IntArrayRef({11, 8}));
      EXPECT_TRUE(both.narrow(0, 0, 8).equal(flat->weight(1)));
      EXPECT_TRUE(both.narrow(0, 8, 3).equal(flat->weight(2)));
      EXPECT_FALSE(flat->stacked_weight(0, 2).defined()) << "padding after \"odd\"";
      EXPECT_FALSE(flat->stacked_weight(4, 2).defined()) << "there is no sixth";
      EXPECT_TRUE(flat->stacked_weight(4, 1).defined());
    });
    EXPECT_FALSE(flat->stacked_grad(0, 2).tensor.defined());
    const GradView rows = flat->stacked_grad(1, 2);
    EXPECT_EQ(rows.tensor.sizes(), at::IntArrayRef({11, 8}));
    EXPECT_FALSE(rows.accumulate);
    EXPECT_TRUE(flat->grad(1).accumulate) << "both are written now";
    EXPECT_TRUE(flat->grad(2).accumulate);
    EXPECT_FALSE(flat->grad(3).accumulate);
    EXPECT_EQ(flat->grad(1).tensor.data_ptr(), rows.tensor.data_ptr());
  });
}

/// Types of working copy, sum and wire as precisions make them.
const std::vector<std::array<at::ScalarType, 3>> kTypes = {
    {at::kFloat, at::kFloat, at::kFloat},          {at::kFloat, at::kFloat, at::kBFloat16},
    {at::kBFloat16, at::kFloat, at::kBFloat16},    {at::kBFloat16, at::kFloat, at::kFloat},
    {at::kBFloat16, at::kBFloat16, at::kBFloat16}, {at::kHalf, at::kFloat, at::kHalf}};

TEST_F(FlatTest, EveryGradientReachesItsElementOnce) {
  for (Case c : every_stage()) {
    for (const auto& [compute, grad_accum, communication] : kTypes) {
      c.compute = compute;
      c.grad_accum = grad_accum;
      c.communication = communication;
      on_every_rank(c, [&](TestFlat& flat, comm::Collectives& collectives, memory::Ledger&) {
        load(*flat);
        for (int step = 1; step <= 2; ++step) {
          all_micro_steps(*flat, collectives.rank());
          update(*flat);
          expect_weights(*flat, [&](int slot, int64_t i) {
            return initial(flat->layout().slots()[slot].name, i) -
                   static_cast<float>(step * total_gradient(slot, i, c.world));
          });
        }
      });
      if (HasFailure()) return;
    }
  }
}

/// The next micro-step writes its gradient while the last reduction is still under way.
TEST_F(FlatTest, AReductionUnderWayLosesNothing) {
  for (int stage = 2; stage <= 3; ++stage) {
    const Case c{.stage = stage, .world = 2};
    run_ranks(c.world, [&](comm::Collectives& inner, memory::Ledger&) {
      testing_support::LateCollectives late(inner);
      TestFlat flat(c, late);
      load(*flat);
      for (int micro = 0; micro < kMicroSteps; ++micro) {
        backward(*flat, late.rank(), micro);
        if (micro == 1) flat->gradient().finish_reduce();  // after the gradient was begun
        flat->gradient().reduce(micro + 1 == kMicroSteps);
      }
      flat->gradient().finish_reduce();
      update(*flat);
      expect_weights(*flat, [&](int slot, int64_t i) {
        return initial(flat->layout().slots()[slot].name, i) -
               static_cast<float>(total_gradient(slot, i, c.world));
      });
    });
  }
}

TEST_F(FlatTest, AveragingScalesBeforeAndAfterTheReduction) {
  for (Case c : every_stage()) {
    if (c.world == 1) continue;  // nothing is reduced
    c.averaging = {.before = 2, .after = 3};
    on_every_rank(c, [&](TestFlat& flat, comm::Collectives& collectives, memory::Ledger&) {
      load(*flat);
      all_micro_steps(*flat, collectives.rank());
      update(*flat);
      expect_weights(*flat, [&](int slot, int64_t i) {
        return initial(flat->layout().slots()[slot].name, i) -
               static_cast<float>(6 * total_gradient(slot, i, c.world));
      });
    });
  }
}

/// Of all ranks together: over the parameters once, without padding.
TEST_F(FlatTest, SquaresOfTheGradientAreCountedOnce) {
  for (const Case& c : every_stage()) {
    double squares = 0;
    std::mutex mutex;
    on_every_rank(c, [&](TestFlat& flat, comm::Collectives& collectives, memory::Ledger&) {
      all_micro_steps(*flat, collectives.rank());
      const at::Tensor sum = at::zeros({}, at::kDouble);
      flat->gradient().add_squares(sum);
      const double own = sum.item<double>();
      const std::scoped_lock lock(mutex);
      if (c.stage > 0 || collectives.rank() == 0) squares += own;
    });
    double want = 0;
    for (size_t slot = 0; slot < kParameters.size(); ++slot)
      for (int64_t i = 0; i < kParameters[slot].numel(); ++i)
        want += std::pow(total_gradient(static_cast<int>(slot), i, c.world), 2);
    EXPECT_EQ(squares, want) << c.text();
  }
}

/// An infinity at any element is found in its parameter and in no other, by the rank that owns it.
TEST_F(FlatTest, ABadGradientIsFoundInItsParameter) {
  for (const Case& c : every_stage()) {
    on_every_rank(c, [&](TestFlat& flat, comm::Collectives& collectives, memory::Ledger&) {
      const int slots = static_cast<int>(kParameters.size());
      for (int slot = 0; slot < slots; ++slot) {
        const int64_t last = kParameters[slot].numel() - 1;
        for (const int64_t at : {int64_t{0}, last}) {
          backward(*flat, collectives.rank(), 0);
          if (collectives.rank() == 0) flat->grad(slot).tensor.flatten()[at].fill_(INFINITY);
          flat->gradient().reduce(true);
          flat->gradient().finish_reduce();
          const auto bad = flat->gradient().bad();
          std::vector<float> found;
          for (const bool one : bad) found.push_back(one ? 1.0f : 0.0f);
          const at::Tensor all = at::tensor(found);
          collectives.all_reduce(all, comm::Op::Max, {})->wait();
          for (int other = 0; other < slots; ++other)
            EXPECT_EQ(all[other].item<float>(), other == slot ? 1 : 0)
                << kParameters[slot].name << "[" << at << "], " << kParameters[other].name;
          flat->gradient().clear();
        }
      }
    });
  }
}

/// (state, parameter, element) → value, of all ranks. An element that comes twice is an error.
using States = std::map<std::tuple<std::string, std::string, int64_t>, float>;

void collect(Flat& flat, States& states, std::mutex& mutex) {
  ASSERT_TRUE(flat.save_state([&](int state, const Flat::HostRange& range) -> Status {
    const std::scoped_lock lock(mutex);
    for (size_t i = 0; i < range.data.size(); ++i) {
      const auto key = std::tuple(flat.state_name(state), range.parameter,
                                  range.offset + static_cast<int64_t>(i));
      EXPECT_TRUE(states.emplace(key, range.data[i]).second)
          << std::get<0>(key) << " " << std::get<1>(key) << "[" << std::get<2>(key) << "] twice";
    }
    return {};
  }));
}

float state_value(int state, const std::string& parameter, int64_t element) {
  return static_cast<float>(state * 1000) + initial(parameter, element);
}

/// Every element of every state lies on one rank, wherever its part is, and comes back as it went.
TEST_F(FlatTest, StateIsSavedOnceAndComesBack) {
  for (Case c : every_stage()) {
    c.states = {{"first"}, {"second", 0.5}};
    for (const auto compute : {at::kFloat, at::kBFloat16}) {
      for (const Place place : {Place::Device, Place::Host, Place::File}) {
        c.compute = compute;
        c.place = place;
        States states;
        std::mutex mutex;
        on_every_rank(c, [&](TestFlat& flat, comm::Collectives&, memory::Ledger&) {
          EXPECT_EQ(flat->state_count(), 3);
          ASSERT_TRUE(flat->load_state(true, [](int state, const Flat::HostRange& range) -> Status {
            for (size_t i = 0; i < range.data.size(); ++i)
              range.data[i] =
                  state_value(state, range.parameter, range.offset + static_cast<int64_t>(i));
            return {};
          }));
          flat->publish();
          collect(*flat, states, mutex);
        });
        const char* const names[] = {"master", "first", "second"};
        States want;
        for (int state = 0; state < 3; ++state)
          for (const auto& parameter : kParameters)
            for (int64_t i = 0; i < parameter.numel(); ++i)
              want[{names[state], parameter.name, i}] = state_value(state, parameter.name, i);
        EXPECT_EQ(states, want) << c.text();
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(FlatTest, AnErrorOfTheVisitorStopsAndIsReturned) {
  on_every_rank({.stage = 2, .world = 2, .states = {{"first"}}},
                [](TestFlat& flat, comm::Collectives&, memory::Ledger&) {
                  int calls = 0;
                  const auto failing = [&](int, const Flat::HostRange&) -> Status {
                    ++calls;
                    return bad_input("no such tensor");
                  };
                  const auto loaded = flat->load_state(true, failing);
                  ASSERT_FALSE(loaded);
                  EXPECT_EQ(loaded.error().message, "no such tensor");
                  EXPECT_EQ(calls, 1);
                  EXPECT_FALSE(flat->save_state(failing));
                  EXPECT_EQ(calls, 2);
                });
}

/// Momentum in three places: state and master keep to their elements over several steps.
TEST_F(FlatTest, OffloadedStateIsUpdatedInItsPlace) {
  for (const int stage : {1, 3}) {
    for (const auto compute : {at::kFloat, at::kBFloat16}) {
      States plain;
      for (const Place place : {Place::Device, Place::Host, Place::File}) {
        const Case c{.stage = stage,
                     .world = 2,
                     .compute = compute,
                     .states = {{"momentum_buffer"}},
                     .place = place};
        States states;
        std::mutex mutex;
        on_every_rank(c, [&](TestFlat& flat, comm::Collectives& collectives, memory::Ledger&) {
          load(*flat);
          for (int step = 0; step < 3; ++step) {
            all_micro_steps(*flat, collectives.rank());
            flat->step({.rule = optim::SgdRule{.lr = 1, .momentum = 0.5}, .first = step == 0});
            flat->gradient().clear();
            flat->finish_gather();
          }
          collect(*flat, states, mutex);
          expect_weights(*flat, [&](int slot, int64_t i) {  // b = 1, 1.5, 1.75 times the gradient
            const float exact = initial(flat->layout().slots()[slot].name, i) -
                                4.25f * static_cast<float>(total_gradient(slot, i, 2));
            return compute == at::kFloat ? exact : static_cast<float>(at::BFloat16(exact));
          });
        });
        if (place == Place::Device) plain = states;
        EXPECT_EQ(states, plain) << c.text();
      }
    }
  }
}

/// Whose sum it is, from the first micro-step to the update (gradient_sum.h).
TEST_F(FlatTest, TheGradientsStateSaysWhoseSumItIs) {
  using enum GradientSum::State;
  for (Case c : every_stage()) {
    for (const auto sum_type : {at::kFloat, at::kBFloat16}) {
      c.grad_accum = sum_type;  // in the compute type, or apart from what backward writes
      on_every_rank(c, [&](TestFlat& flat, comm::Collectives& collectives, memory::Ledger&) {
        load(*flat);
        GradientSum& sum = flat->gradient();
        const bool every = c.stage >= 2;
        for (int step = 0; step < 2; ++step) {
          EXPECT_EQ(sum.state(), None);
          EXPECT_FALSE(sum.value().defined());
          for (int micro = 0; micro < kMicroSteps; ++micro) {
            backward(*flat, collectives.rank(), micro);
            sum.reduce(micro + 1 == kMicroSteps);
            if (micro + 1 == kMicroSteps) break;
            sum.finish_reduce();
            EXPECT_EQ(sum.state(), every ? Reduced : Own);
          }
          sum.finish_reduce();
          EXPECT_EQ(sum.state(), c.world > 1 || every ? Reduced : Own);
          EXPECT_EQ(sum.whole(), c.stage == 0);
          EXPECT_EQ(sum.value().numel(),
                    c.stage == 0 ? flat->layout().numel() : flat->layout().shard_numel());
          EXPECT_EQ(sum.value().scalar_type(), sum_type);
          sum.clear();
        }
        if (every) return;
        sum.keep_local(true);
        all_micro_steps(*flat, collectives.rank());
        EXPECT_EQ(sum.state(), Own);
        EXPECT_TRUE(sum.whole());
        const layout::Slot& slot = flat->layout().slots()[1];
        const at::Tensor own = sum.value().narrow(0, slot.offset, slot.numel);
        for (int64_t i = 0; i < slot.numel; ++i) {
          int64_t want = 0;
          for (int micro = 0; micro < kMicroSteps; ++micro)
            want += gradient(1, i, collectives.rank(), micro);
          ASSERT_EQ(own[i].item<float>(), static_cast<float>(want)) << i;
        }
        sum.keep_local(false);
      });
    }
  }
}

/// LAMB walks by parameter: its sums are of whole parameters, its coefficient reaches only one.
TEST_F(FlatTest, LambsSumsAndCoefficientsAreByParameter) {
  for (Case c : every_stage()) {
    c.compute = c.world == 3 ? at::kBFloat16 : at::kFloat;
    c.states = {{"exp_avg"}, {"exp_avg_sq"}};
    const auto slots = static_cast<int64_t>(kParameters.size());
    const at::Tensor sums = at::zeros({slots, 2}, at::kDouble);
    std::mutex mutex;
    // m and v stay 0, so that u = 1 * p: the update of "next" alone is p -= 1 * 0.5 * p.
    const optim::Update lamb{
        .rule = optim::LambRule{.lr = 1, .beta1 = 1, .beta2 = 1, .eps = 1, .weight_decay = 1}};
    on_every_rank(c, [&](TestFlat& flat, comm::Collectives& collectives, memory::Ledger&) {
      load(*flat);
      all_micro_steps(*flat, collectives.rank());
      const at::Tensor own = at::zeros({slots, 2}, at::kDouble);
      lamb_moments(*flat, lamb, own);
      {
        const std::scoped_lock lock(mutex);
        if (c.stage > 0 || collectives.rank() == 0) sums.add_(own);
      }
      lamb_apply(*flat, lamb, at::tensor({0.0, 0.0, 0.5, 0.0, 0.0}, at::kDouble), true);
      flat->gradient().clear();
      expect_weights(*flat, [&](int slot, int64_t i) {
        return initial(flat->layout().slots()[slot].name, i) * (slot == 2 ? 0.5f : 1.0f);
      });
    });
    for (size_t slot = 0; slot < kParameters.size(); ++slot) {
      double want = 0;
      for (int64_t i = 0; i < kParameters[slot].numel(); ++i)
        want += std::pow(initial(kParameters[slot].name, i), 2);
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_EQ(sums[static_cast<int64_t>(slot)][i].item<double>(), want)
            << c.text() << ", " << kParameters[slot].name;
      }
    }
  }
}

TEST_F(FlatTest, AFrozenFlatIsFilledOnceAndHasNoGradient) {
  // More elements than one read takes.
  const std::vector<layout::Parameter> parameters = {{"odd", {5, 7}},
                                                     {"large", {1, (1 << 20) + 5}}};
  for (const int stage : {0, 1, 3}) {
    for (const int world : {1, 2}) {
      const Case c{.stage = stage, .world = world, .compute = at::kBFloat16, .frozen = true};
      run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger& ledger) {
        SCOPED_TRACE(c.text());
        TestFlat flat(c, collectives, parameters, 1 << 22);
        std::set<std::pair<std::string, int64_t>> read;
        ASSERT_TRUE(flat->fill_frozen(
            [&](const std::string& name, int64_t offset, std::span<float> out) -> Status {
              EXPECT_TRUE(read.emplace(name, offset).second);
              EXPECT_LE(out.size(), 1u << 20);
              for (size_t i = 0; i < out.size(); ++i)
                out[i] = initial(name, offset + static_cast<int64_t>(i));
              return {};
            }));
        flat->publish();
        EXPECT_EQ(ledger.live(Class::Buckets), 0);
        with_weights(*flat, [&] {
          for (int slot = 0; slot < 2; ++slot) {
            const int64_t numel = parameters[slot].numel();
            const at::Tensor want = (static_cast<int64_t>(parameters[slot].name.size()) * 37 +
                                     at::arange(numel, at::kLong) * 5)
                                        .remainder(251)
                                        .to(at::kBFloat16);
            EXPECT_TRUE(flat->weight(slot).flatten().equal(want)) << parameters[slot].name;
          }
        });
        EXPECT_EQ(flat->gradient().bad(), std::vector<bool>(2, false));
        EXPECT_EQ(ledger.live(Class::Optimizer) + ledger.live(Class::Gradients), 0);
        const auto failed = flat->fill_frozen([](const std::string&, int64_t, std::span<float>) {
          return Status(bad_input("a read failed"));
        });
        ASSERT_FALSE(failed);
        EXPECT_EQ(failed.error().message, "a read failed");
      });
    }
  }
}

/// Live bytes at the moments at which the stage promises something.
TEST_F(FlatTest, HoldsWhatItsStageSays) {
  for (const Case& c : every_stage()) {
    on_every_rank(c, [&](TestFlat& flat, comm::Collectives& collectives, memory::Ledger& ledger) {
      const auto& stage = layout::stage_of_flat(layout::kStages[c.stage], c.persisted);
      const int64_t whole = 4 * flat->layout().numel(), shard = 4 * flat->layout().shard_numel();
      load(*flat);
      EXPECT_EQ(ledger.live(Class::Parameters), stage.shards_parameters() ? 0 : whole);
      EXPECT_EQ(ledger.live(Class::Optimizer), stage.shards_parameters() ? shard : 0)
          << "in fp32 the shard is the master";
      if (stage.shards_parameters()) flat->start_gather();
      flat->finish_gather();
      EXPECT_EQ(ledger.live(Class::Parameters), whole);
      if (stage.shards_parameters()) flat->release();
      EXPECT_EQ(ledger.live(Class::Gradients), 0);
      for (int micro = 0; micro < 2; ++micro) {
        backward(*flat, collectives.rank(), micro);
        flat->gradient().reduce(micro == 1);
        flat->gradient().finish_reduce();
        const bool sharded = stage.gradient == layout::Kept::Shard ||
                             (micro == 1 && stage.shards_update() && c.world > 1);
        EXPECT_EQ(ledger.live(Class::Gradients), sharded ? shard : whole) << "micro-step " << micro;
      }
      EXPECT_EQ(ledger.live(Class::Buckets), 0);
      flat->gradient().clear();
      EXPECT_EQ(ledger.live(Class::Gradients), 0);
    });
  }
}

}  // namespace
}  // namespace dsj::zero
