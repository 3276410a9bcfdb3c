// The CUDA kernels on the emulated block, against the CPU's kernels: odd sizes, one row, none, rows
// that are longer than what is used, in all three types. The memory watch sees every access.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "engine/kernels/cuda/launchers.h"
#include "engine/kernels/element.h"
#include "engine/kernels/kernels.h"
#include "engine/optim/element_rules.h"
#include "tests/engine/kernels/emulated/block.h"
#include "tests/engine/kernels/emulated/heap_scratch.h"
#include "tests/engine/kernels/emulated/watch.h"
#include "tests/engine/support/operands.h"

namespace dsj::kernels::cuda {
namespace {

using emulated::Buffer;

/// What differs by element type: its name, and the size of a rounding step near 1. Both
/// sides round the same operations, at most two in a row; where their sums differ in the last bit,
/// each may round to a neighbour.
template <typename T>
struct Of;
template <>
struct Of<float> {
  static constexpr Type kType = Type::F32;
  static constexpr double kStep = 2e-5;
};
template <>
struct Of<Bf16> {
  static constexpr Type kType = Type::BF16;
  static constexpr double kStep = 0x1p-6;
};
template <>
struct Of<Half> {
  static constexpr Type kType = Type::F16;
  static constexpr double kStep = 0x1p-9;
};

/// Which memory of the host has the same elements as memory of the emulated device.
class Twins {
 public:
  void add(void* device, void* host, size_t bytes) {
    auto* const begin = static_cast<char*>(device);
    const auto old = [&](const auto& one) {  // given back, and taken again
      return one.first < begin + bytes && begin < one.first + one.second.bytes;
    };
    if (bytes > 0) std::erase_if(all_, old);
    if (bytes > 0) all_[begin] = {static_cast<char*>(host), bytes};
  }
  template <typename T>
  T* of(T* device) const {
    auto* const at = static_cast<char*>(const_cast<void*>(static_cast<const void*>(device)));
    const auto above = all_.upper_bound(at);
    if (above == all_.begin()) return nullptr;
    const auto& [begin, twin] = *std::prev(above);
    return at < begin + twin.bytes ? static_cast<T*>(static_cast<void*>(twin.host + (at - begin)))
                                   : nullptr;
  }

 private:
  struct Twin {
    char* host = nullptr;
    size_t bytes = 0;
  };
  std::map<char*, Twin> all_;
};
Twins twins;

/// A member of an operation: memory of the device becomes its twin.
struct OnCpu {
  void operator()(Rows& rows) const { rows.data = twins.of(rows.data); }
  template <typename V>
  void operator()(std::span<V>& values) const {
    if (!values.empty()) values = {twins.of(values.data()), values.size()};
  }
  void operator()(double*& number) const { number = twins.of(number); }
  template <typename V>
  requires std::is_arithmetic_v<V>
  void operator()(V&) const {}
};

/// The operation by the CPU's kernel, for `n` rows or elements.
template <typename Op>
void on_cpu(Op op, int64_t n) {
  testing_support::for_members(op, OnCpu{});
  table().run(op, 0, n);
}
template <typename Op>
void on_device(const Op& op) {
  static emulated::HeapScratch scratch;
  cuda::run({}, op, scratch);
}
template <typename Op>
void on_both(const Op& op, int64_t n) {
  on_device(op);
  on_cpu(op, n);
}

/// Elements twice: as the CPU's kernels take them, and in a buffer of the emulated device.
template <typename T>
class Array {
 public:
  explicit Array(int64_t n)
      : cpu_(static_cast<size_t>(n)), device_(std::make_unique<Buffer>(cpu_.size() * sizeof(T))) {
    twins.add(device(), cpu(), cpu_.size() * sizeof(T));
  }
  T* cpu() { return cpu_.data(); }
  std::span<T> values() const { return {device(), cpu_.size()}; }
  T* device() const { return static_cast<T*>(device_->data()); }
  void fill(const std::function<T(int64_t)>& f) {
    for (size_t i = 0; i < cpu_.size(); ++i) device()[i] = cpu_[i] = f(static_cast<int64_t>(i));
  }
  void expect_close(double step, const char* what) const {
    for (size_t i = 0; i < cpu_.size(); ++i) {
      const double got = number(device()[i]), want = number(cpu_[i]);
      ASSERT_LE(std::abs(got - want), step * (std::abs(want) + 1))
          << what << ", element " << i << " of " << cpu_.size();
    }
  }

 private:
  static double number(double x) { return x; }
  static double number(float x) { return x; }
  static double number(Bf16 x) { return load(&x, 0); }
  static double number(Half x) { return load(&x, 0); }
  std::vector<T> cpu_;
  std::unique_ptr<Buffer> device_;
};

template <typename T>
class CudaKernels : public testing::Test {
 protected:
  using Elements = Array<T>;
  static constexpr double kStep = Of<T>::kStep;

  /// Uniform in [low, high).
  Elements& random(int64_t n, float low, float high) {
    Elements& made = elements_.emplace_back(n);
    std::uniform_real_distribution<float> draw(low, high);
    made.fill([&](int64_t) {
      T element;
      store(&element, 0, draw(generator_));
      return element;
    });
    return made;
  }
  template <typename V>
  static Array<V> zeros(int64_t n) {
    Array<V> made(n);
    made.fill([](int64_t) { return V{}; });
    return made;
  }
  Array<float> angles(int64_t n) {
    Array<float> made(n);
    std::uniform_real_distribution<float> draw(-1, 1);
    made.fill([&](int64_t) { return round_to<T>(draw(generator_)); });
    return made;
  }
  template <typename V>
  static Rows rows(const Array<V>& x, int64_t rows, int64_t width) {
    return {x.device(), Of<V>::kType, rows, width, width};
  }

  std::deque<Elements> elements_;
  std::mt19937 generator_{7};
};

struct Size {
  int64_t rows, width;
};
/// 13,000 columns do not fit into shared memory as sums; 64 and 4096 are whole packs.
constexpr Size kSizes[] = {{0, 33},  {1, 1},   {1, 31},   {1, 33},    {1, 4097}, {33, 1},
                           {33, 31}, {33, 64}, {9, 4096}, {17, 4097}, {2, 13000}};

using Types = testing::Types<float, Bf16, Half>;
TYPED_TEST_SUITE(CudaKernels, Types);

#define FOR_SIZES                          \
  for (const auto& [rows, width] : kSizes) \
    if (SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width)); true)

TYPED_TEST(CudaKernels, RmsNormAndItsGradient) {
  FOR_SIZES {
    const int64_t n = rows * width, parts = norm_partials(rows);
    auto &x = this->random(n, 1, 2), &w = this->random(width, 1, 2), &dy = this->random(n, 1, 2),
         &y = this->random(n, 0, 1), &dx = this->random(n, 0, 1);
    auto rstd = this->template zeros<float>(rows), dw = this->template zeros<float>(width),
         partial = this->template zeros<float>(parts * width);
    const Rows all = this->rows(x, rows, width), weight = this->rows(w, 1, width);
    on_both(RmsNorm{all, weight, this->rows(y, rows, width), rstd.values(), 1e-6f}, rows);
    RmsNormBackward backward{
        this->rows(dy, rows, width),      all, weight, rstd.values(), this->rows(dx, rows, width),
        this->rows(partial, parts, width)};
    on_device(backward);
    on_device(SumRows{backward.dw, this->rows(dw, 1, width), false});
    backward.dw = this->rows(dw, 1, width);
    on_cpu(backward, rows);
    y.expect_close(this->kStep, "y");
    rstd.expect_close(1e-5, "rstd");
    dx.expect_close(this->kStep, "dx");
    dw.expect_close(this->kStep, "dw");
  }
}

TYPED_TEST(CudaKernels, LayerNormAndItsGradient) {
  FOR_SIZES {
    const int64_t n = rows * width, parts = norm_partials(rows);
    auto &x = this->random(n, -2, 2), &w = this->random(width, 1, 2),
         &b = this->random(width, 1, 2), &dy = this->random(n, 1, 2), &y = this->random(n, 0, 1),
         &dx = this->random(n, 0, 1);
    auto mean = this->template zeros<float>(rows), rstd = this->template zeros<float>(rows),
         dw = this->template zeros<float>(width), db = this->template zeros<float>(width),
         dw_parts = this->template zeros<float>(parts * width),
         db_parts = this->template zeros<float>(parts * width);
    const Rows all = this->rows(x, rows, width), weight = this->rows(w, 1, width);
    on_both(LayerNorm{all, weight, this->rows(b, 1, width), this->rows(y, rows, width),
                      mean.values(), rstd.values(), 0.1f},
            rows);
    LayerNormBackward backward{this->rows(dy, rows, width),
                               all,
                               weight,
                               mean.values(),
                               rstd.values(),
                               this->rows(dx, rows, width),
                               this->rows(dw_parts, parts, width),
                               this->rows(db_parts, parts, width)};
    on_device(backward);
    on_device(SumRows{backward.dw, this->rows(dw, 1, width), false});
    on_device(SumRows{backward.db, this->rows(db, 1, width), false});
    backward.dw = this->rows(dw, 1, width);
    backward.db = this->rows(db, 1, width);
    on_cpu(backward, rows);
    y.expect_close(this->kStep, "y");
    mean.expect_close(1e-5, "mean");
    rstd.expect_close(1e-5, "rstd");
    dx.expect_close(this->kStep, "dx");
    dw.expect_close(this->kStep, "dw");
    db.expect_close(this->kStep, "db");
  }
}

TYPED_TEST(CudaKernels, RopeOnAPartOfEachRow) {
  for (const int64_t rows : {0, 1, 33}) {
    for (const int64_t dim : {2, 62, 128}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, heads of " + std::to_string(dim));
      const int64_t heads = 3, width = heads * dim + 5, seq = 11, half = dim / 2;
      auto& x = this->random(rows * width, -2, 2);
      auto cos = this->angles(seq * half), sin = this->angles(seq * half);
      auto positions = this->template zeros<int64_t>(rows);
      positions.fill([&](int64_t i) { return i * 7 % seq; });
      on_both(Rope{this->rows(x, rows, width), cos.values(), sin.values(), positions.values(),
                   heads, dim, -1.0f},
              rows);
      x.expect_close(this->kStep, "x");
    }
  }
}

/// A head is a row of its own, inside of a longer one.
TYPED_TEST(CudaKernels, HeadNormsOnAPartOfEachRow) {
  // Heads of 2,000 and 13,000 elements leave shared memory to fewer warps, and to none.
  for (const auto& [rows, dim] : {Size{0, 64},
                                  {1, 1},
                                  {1, 31},
                                  {3, 33},
                                  {17, 64},
                                  {5, 128},
                                  {2, 2000},
                                  {2, 4097},
                                  {2, 13000}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows, heads of " + std::to_string(dim));
    const int64_t heads = 3, width = heads * dim + 8, parts = norm_partials(rows);
    auto &x = this->random(rows * width, 1, 2), &w = this->random(dim, 1, 2),
         &dy = this->random(rows * width, 1, 2), &y = this->random(rows * width, 1, 2);
    auto rstd = this->template zeros<float>(rows * heads), dw = this->template zeros<float>(dim);
    auto partial = this->template zeros<float>(parts * dim);
    partial.fill([](int64_t) { return NAN; });  // all of it is written
    const Rows weight = this->rows(w, 1, dim);
    const auto heads_of = [&](auto& of, int64_t row) {
      return Rows{of.device() + row * width, Of<TypeParam>::kType, heads, dim, dim};
    };
    on_device(HeadNorm{this->rows(y, rows, width), weight, heads, rstd.values(), 1e-6f});
    for (int64_t row = 0; row < rows; ++row) {
      on_cpu(RmsNorm{heads_of(y, row), weight, heads_of(y, row),
                     rstd.values().subspan(row * heads, heads), 1e-6f},
             heads);
    }
    y.expect_close(this->kStep, "y");
    rstd.expect_close(1e-5, "rstd");
    // Both sides begin with one rstd: the backward is judged by itself.
    std::copy(rstd.cpu(), rstd.cpu() + rows * heads, rstd.device());
    on_device(HeadNormBackward{this->rows(dy, rows, width), this->rows(x, rows, width), weight,
                               heads, rstd.values(), this->rows(partial, parts, dim)});
    on_device(SumRows{this->rows(partial, parts, dim), this->rows(dw, 1, dim), false});
    for (int64_t row = 0; row < rows; ++row) {
      Array<TypeParam> dx(heads * dim);
      dx.fill([](int64_t) { return TypeParam{}; });
      on_cpu(RmsNormBackward{heads_of(dy, row), heads_of(x, row), weight,
                             rstd.values().subspan(row * heads, heads), this->rows(dx, heads, dim),
                             this->rows(dw, 1, dim)},
             heads);
      std::copy(dx.cpu(), dx.cpu() + heads * dim, dy.cpu() + row * width);
    }
    dy.expect_close(this->kStep, "dx");
    dw.expect_close(this->kStep, "dw");
  }
}

/// 600 rows are several blocks of the sort; the gradient of a row that many go to is summed in fp32.
TYPED_TEST(CudaKernels, ScatterRowsAddsUpInOneOrder) {
  for (const auto& [rows, width] : {Size{0, 33},
                                    {1, 1},
                                    {1, 31},
                                    {1, 33},
                                    {1, 4097},
                                    {33, 1},
                                    {33, 31},
                                    {33, 64},
                                    {9, 4096},
                                    {600, 9}}) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
    const int64_t places = 7;
    auto &x = this->random(rows * width, -1, 1), &out = this->random(places * width, -1, 1);
    auto index = this->template zeros<int64_t>(rows);
    index.fill([&](int64_t i) { return i * i % 5; });
    const Rows from = this->rows(x, rows, width);
    on_device(ScatterRows{from, index.values(), this->rows(out, places, width)});
    for (int64_t to = 0; to < places; ++to) {
      std::vector<int64_t> in_order;
      for (int64_t row = 0; row < rows; ++row)
        if (index.cpu()[row] == to) in_order.push_back(row);
      Array<int64_t> group(std::ssize(in_order));
      group.fill([&](int64_t i) { return in_order[i]; });
      on_cpu(AddRows{from, group.values(),
                     Rows{out.device() + to * width, Of<TypeParam>::kType, 1, width, width}},
             width);
    }
    out.expect_close(0, "out");  // the same additions in the same order
  }
}

TYPED_TEST(CudaKernels, Activations) {
  FOR_SIZES {
    const int64_t n = rows * width;
    auto &gate_up = this->random(2 * n, -3, 3), &a = this->random(n, 0, 1),
         &da = this->random(n, -1, 1), &x = this->random(n, -3, 3), &y = this->random(n, 0, 1);
    const Rows both = this->rows(gate_up, rows, 2 * width), gradient = this->rows(da, rows, width);
    on_both(Swiglu{both, this->rows(a, rows, width)}, rows);
    on_both(SwigluBackward{gradient, both}, rows);
    on_both(GeluNew{this->rows(x, rows, width), this->rows(y, rows, width)}, n);
    on_both(GeluNewBackward{gradient, this->rows(x, rows, width)}, n);
    a.expect_close(this->kStep, "swiglu");
    gate_up.expect_close(this->kStep, "swiglu's gradient");
    y.expect_close(this->kStep, "gelu");
    x.expect_close(this->kStep, "gelu's gradient");
  }
}

TYPED_TEST(CudaKernels, CrossEntropyAddsItsLoss) {
  FOR_SIZES {
    auto& logits = this->random(rows * width, -4, 4);
    auto labels = this->template zeros<int64_t>(rows);
    auto loss = this->template zeros<double>(1);
    labels.fill([&](int64_t i) { return i * 7 % width; });
    loss.fill([](int64_t) { return 5.0; });
    on_both(CrossEntropy{this->rows(logits, rows, width), labels.values(), 0.5f, loss.device()},
            rows);
    logits.expect_close(this->kStep, "gradient");
    loss.expect_close(1e-5, "loss");
  }
}

TYPED_TEST(CudaKernels, CrossEntropyShowsWhatIsNotFinite) {
  for (const float bad : {static_cast<float>(NAN), -INFINITY}) {
    auto& logits = this->random(2 * 33, -4, 4);
    auto labels = this->template zeros<int64_t>(2);
    auto loss = this->template zeros<double>(1);
    store(logits.device(), 33 + 5, bad);
    on_device(CrossEntropy{this->rows(logits, 2, 33), labels.values(), 1.0f, loss.device()});
    EXPECT_EQ(std::isnan(*loss.device()), std::isnan(bad))
        << "an excluded token is no NaN, a NaN is one";
  }
}

TYPED_TEST(CudaKernels, SumOfSquaresIsTheSameInEveryOrder) {
  for (const int64_t n : {0, 1, 31, 33, 4097, 70000}) {
    SCOPED_TRACE(n);
    auto& x = this->random(n, -1, 1);
    auto sum = this->template zeros<double>(1);
    const SumOfSquares op{this->rows(x, 1, n), sum.device()};
    on_both(op, n);
    sum.expect_close(1e-6, "sum");
    const double once = *sum.device();
    *sum.device() = 0;
    emulated::set_options({.drawn = true, .seed = static_cast<uint64_t>(n)});
    on_device(op);
    emulated::set_options({});
    EXPECT_EQ(*sum.device(), once);
  }
}

/// Where `Rule` stands in the tables of kernels.
template <typename Rule>
size_t number_of() {
  return optim::ElementRules::As<std::variant>(Rule{}).index();
}

/// Parameters of many sizes in one vector, by gradients of each type: whole packs of four, and not.
TYPED_TEST(CudaKernels, UpdatesOfManyTensorsAtOnce) {
  const optim::RMSpropElement<true, true> rule{0.1f, 1e-2f, 0.9f, 0.1f, 1e-2f, 0.9f};
  const size_t which = number_of<std::remove_cvref_t<decltype(rule)>>();
  std::vector<int64_t> sizes = {4096, 64, 0, 1, 31, 33, 4097};
  for (int64_t i = 0; i < 50; ++i) sizes.push_back(i % 5);  // more than one launch takes
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  auto& grad = this->random(all, -1, 1);
  auto p = this->angles(all);
  Array<float> states[] = {Array<float>(all), Array<float>(all), Array<float>(all)};
  for (Array<float>& state : states)
    state.fill([](int64_t i) { return 1 + 0.001f * static_cast<float>(i); });
  states[2].fill([](int64_t) { return 0.1f; });
  auto low = this->template zeros<Bf16>(all);
  std::vector<Span> spans;
  std::deque<std::array<float*, 3>> pointers;
  int64_t first = 0;
  for (const int64_t n : sizes) {
    std::array<float*, 3> cpu_states;
    auto& device_states = pointers.emplace_back();
    for (int i = 0; i < 3; ++i) {
      cpu_states[i] = states[i].cpu() + first;
      device_states[i] = states[i].device() + first;
    }
    const Type type = Of<TypeParam>::kType;
    table().update(which, &rule, 0.5f,
                   {n, p.cpu() + first, grad.cpu() + first, type, cpu_states.data(), 3,
                    low.cpu() + first, Type::BF16});
    spans.push_back({n, p.device() + first, grad.device() + first, type, device_states.data(), 3,
                     low.device() + first, Type::BF16});
    first += n;
  }
  const uint64_t before = emulated::launches();
  cuda::update({}, which, &rule, 0.5f, spans);
  EXPECT_EQ(emulated::launches() - before, 2u) << sizes.size() << " tensors";
  p.expect_close(2e-5, "p");
  for (const Array<float>& state : states) state.expect_close(2e-5, "state");
  low.expect_close(0x1p-7, "the 16-bit copy");
}

TYPED_TEST(CudaKernels, LambsSumsOfManyTensors) {
  const optim::LambMoments rule{{0.1f, 0.95f, 0.05f}, {1e-2f, 0.1f, false}};
  for (const int64_t n : {0, 1, 31, 33, 4096, 4097, 9000}) {
    SCOPED_TRACE(n);
    auto& grad = this->random(n, -1, 1);
    auto p = this->angles(n), m = this->angles(n), v = this->template zeros<float>(n);
    auto sums = this->template zeros<double>(2);
    const Type type = Of<TypeParam>::kType;
    float *cpu_states[] = {m.cpu(), v.cpu()}, *device_states[] = {m.device(), v.device()};
    table().lamb_moments(rule, 0.5f, {n, p.cpu(), grad.cpu(), type, cpu_states, 2}, sums.cpu());
    // In two spans, which share their sums.
    const int64_t half = n / 2;
    float* rest[] = {m.device() + half, v.device() + half};
    const Span spans[] = {{.n = half,
                           .p = p.device(),
                           .grad = grad.device(),
                           .grad_type = type,
                           .states = device_states,
                           .state_count = 2,
                           .sums = sums.device()},
                          {.n = n - half,
                           .p = p.device() + half,
                           .grad = grad.device() + half,
                           .grad_type = type,
                           .states = rest,
                           .state_count = 2,
                           .sums = sums.device()}};
    emulated::HeapScratch scratch;
    cuda::lamb_moments({}, rule, 0.5f, spans, scratch);
    m.expect_close(1e-6, "m");
    v.expect_close(1e-6, "v");
    sums.expect_close(1e-6, "sums");
  }
}

/// The rest of a row belongs to someone else.
TYPED_TEST(CudaKernels, RowsMayBeLongerThanWhatIsUsed) {
  const int64_t rows = 3, width = 24, stride = 40;
  auto &x = this->random(rows * stride, 1, 2), &w = this->random(width, 1, 2),
       &y = this->random(rows * stride, 0, 1);
  auto rstd = this->template zeros<float>(rows);
  const auto strided = [&](auto& of) {
    return Rows{of.device(), Of<TypeParam>::kType, rows, width, stride};
  };
  on_both(RmsNorm{strided(x), this->rows(w, 1, width), strided(y), rstd.values(), 1e-6f}, rows);
  y.expect_close(this->kStep, "y");
}

}  // namespace
}  // namespace dsj::kernels::cuda
