// The contract of a port (engine/kernels/port.h): each port equals the oracle port at odd sizes, in
// every type, and gives the same bits on one thread and two, and in whatever order a device's threads
// run. A port of another device is one more line in kPorts.
#include "engine/kernels/port.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <tuple>
#include <vector>

#include "engine/device/device.h"
#include "engine/optim/optimizer.h"
#ifdef DSJ_EMULATED
#include "engine/kernels/cuda/cuda_port.h"
#include "tests/engine/kernels/emulated/block.h"
#include "tests/engine/kernels/emulated/heap_scratch.h"
#endif
#ifdef DSJ_GPU
#include "tests/engine/gpu/gpu.h"
#include "tests/engine/gpu/hosted_port.h"
#else
#define DSJ_NEEDS_GPU() (void)0
#endif

namespace dsj::device {
namespace {

using kernels::Port;
using kernels::Stream;

struct PortCase {
  const char* name;
  Port& (*port)();
};
#ifdef DSJ_EMULATED
/// The CUDA kernels on the emulated block; what has none runs as libtorch's operations.
Port& emulated_port() {
  static emulated::HeapScratch scratch;
  static const auto port = kernels::cuda::make_cuda_port(aten_port(at::kCPU), scratch);
  return *port;
}
const PortCase kPorts[] = {{"cpu", cpu_port}, {"cuda", emulated_port}};
#elif defined(DSJ_GPU)
const PortCase kPorts[] = {{"gpu", gpu::hosted_port}};
#else
const PortCase kPorts[] = {{"cpu", cpu_port}};
#endif

constexpr int64_t kRows[] = {0, 1, 33}, kWidths[] = {1, 31, 33, 4097};

class PortContract : public testing::TestWithParam<std::tuple<PortCase, at::ScalarType>> {
 protected:
  void SetUp() override {
    DSJ_NEEDS_GPU();
    at::manual_seed(3);
  }
  static at::ScalarType type() { return std::get<1>(GetParam()); }
  /// Away from 0, where a norm's gradient would be nothing but rounding.
  static at::Tensor random(at::IntArrayRef shape) { return at::rand(shape).add_(1).to(type()); }
  static at::Tensor fp32(at::IntArrayRef shape) { return at::zeros(shape); }
  /// What a norm's backward writes all of.
  static at::Tensor partials(Port& port, int64_t rows, int64_t width) {
    return at::full({port.partials(rows), width}, NAN);
  }

  using Results = std::vector<at::Tensor>;
  /// `f` runs an operation on a port and returns all that it wrote.
  static void compare(const std::function<Results(Port&)>& f) {
    Port& port = std::get<0>(GetParam()).port();
    const Results got = f(port), want = f(aten_port(at::kCPU));
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) expect_close(got[i], want[i], i);
    at::set_num_threads(1);
    const Results one = f(port);
    at::set_num_threads(2);
    const Results two = f(port);
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(one[i].equal(two[i])) << "threads change result " << i;
#ifdef DSJ_EMULATED
    emulated::set_options({.drawn = true, .seed = 11});
    const Results drawn = f(port);
    emulated::set_options({});
    for (size_t i = 0; i < one.size(); ++i)
      EXPECT_TRUE(one[i].equal(drawn[i])) << "the order of the threads changes result " << i;
#endif
  }
  /// Both sides round the same operations, at most two in a row. Where their sums differ in the
  /// last bit each may round to a neighbour: two steps of the type. The steps are those of the
  /// operands, of about 1, where two of them cancel.
  static void expect_close(const at::Tensor& got, const at::Tensor& want, size_t i) {
    ASSERT_EQ(got.sizes(), want.sizes());
    if (got.numel() == 0) return;
    const double step = got.scalar_type() == at::kBFloat16 ? 0x1p-6
                        : got.scalar_type() == at::kHalf   ? 0x1p-9
                                                           : 2e-5;
    const at::Tensor a = got.to(at::kDouble), b = want.to(at::kDouble);
    EXPECT_LT(((a - b).abs() / (b.abs() + 1)).max().item<double>(), step) << "result " << i;
  }
  static void for_sizes(const std::function<void(int64_t rows, int64_t width)>& f) {
    for (const int64_t rows : kRows) {
      for (const int64_t width : kWidths) {
        SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(width));
        f(rows, width);
      }
    }
  }
};

TEST_P(PortContract, RmsNorm) {
  for_sizes([](int64_t rows, int64_t width) {
    const at::Tensor x = random({rows, width}), w = random({width}), dy = random({rows, width});
    compare([&](Port& port) -> Results {
      const at::Tensor y = at::empty_like(x), rstd = fp32({rows}), dx = dy.clone(), dw = w.clone(),
                       partial = partials(port, rows, width);
      port.run({},
               kernels::RmsNorm{rows_of(x), rows_of(w), rows_of(y), values_of<float>(rstd), 1e-6f});
      port.run({}, kernels::RmsNormBackward{rows_of(dy), rows_of(x), rows_of(w),
                                            values_of<float>(rstd), rows_of(dx), rows_of(partial)});
      port.run({}, kernels::SumRows{rows_of(partial), row_of(dw), /*accumulate=*/true});
      return {y, rstd, dx, dw};
    });
  });
}

TEST_P(PortContract, LayerNorm) {
  for_sizes([](int64_t rows, int64_t width) {
    // Around 0: a common offset would cancel in x - mean, and leave its rounding.
    const at::Tensor x = at::randn({rows, width}).to(type());
    const at::Tensor w = random({width}), dy = random({rows, width});
    compare([&](Port& port) -> Results {
      const at::Tensor y = at::empty_like(x), mean = fp32({rows}), rstd = fp32({rows}),
                       dx = dy.clone(), dw = at::empty_like(w), db = at::empty_like(w),
                       dw_partial = partials(port, rows, width),
                       db_partial = partials(port, rows, width);
      port.run({}, kernels::LayerNorm{rows_of(x), rows_of(w), rows_of(w), rows_of(y),
                                      values_of<float>(mean), values_of<float>(rstd), 0.1f});
      port.run({},
               kernels::LayerNormBackward{rows_of(dy), rows_of(x), rows_of(w),
                                          values_of<float>(mean), values_of<float>(rstd),
                                          rows_of(dx), rows_of(dw_partial), rows_of(db_partial)});
      port.run({}, kernels::SumRows{rows_of(dw_partial), row_of(dw), /*accumulate=*/false});
      port.run({}, kernels::SumRows{rows_of(db_partial), row_of(db), /*accumulate=*/false});
      return {y, mean, rstd, dx, dw, db};
    });
  });
}

TEST_P(PortContract, HeadNormAndRopeOnAPartOfEachRow) {
  for (const int64_t rows : kRows) {
    for (const int64_t dim : {2, 62}) {
      SCOPED_TRACE(std::to_string(rows) + " rows, heads of " + std::to_string(dim));
      const int64_t heads = 3, width = heads * dim + 5, length = 7;
      const at::Tensor positions = at::randint(length, {rows}, at::kLong);
      const at::Tensor x = random({rows, width}), w = random({dim}), dy = random({rows, width});
      const at::Tensor angles = at::rand({length, dim / 2}).mul_(6);
      const at::Tensor cos = angles.cos().to(type()).to(at::kFloat),
                       sin = angles.sin().to(type()).to(at::kFloat);
      compare([&](Port& port) -> Results {
        const at::Tensor y = x.clone(), rstd = fp32({rows, heads}), gradient = dy.clone(),
                         turned = x.clone(), dw = at::empty_like(w),
                         partial = partials(port, rows, dim);
        port.run({},
                 kernels::HeadNorm{rows_of(y), rows_of(w), heads, values_of<float>(rstd), 1e-6f});
        port.run({}, kernels::HeadNormBackward{rows_of(gradient), rows_of(x), rows_of(w), heads,
                                               values_of<float>(rstd), rows_of(partial)});
        port.run({}, kernels::SumRows{rows_of(partial), row_of(dw), /*accumulate=*/false});
        port.run({}, kernels::Rope{rows_of(turned), values_of<float>(cos), values_of<float>(sin),
                                   values_of<const int64_t>(positions), heads, dim, -1.0f});
        for (const at::Tensor& part : {y, turned})
          EXPECT_TRUE(part.narrow(1, heads * dim, 5).equal(x.narrow(1, heads * dim, 5)));
        return {y, rstd, gradient, dw, turned};
      });
    }
  }
}

TEST_P(PortContract, Activations) {
  for_sizes([](int64_t rows, int64_t width) {
    const at::Tensor gate_up = random({rows, 2 * width}).sub_(1.5), da = random({rows, width});
    compare([&](Port& port) -> Results {
      const at::Tensor a = at::empty_like(da), gradient = gate_up.clone(),
                       gelu = at::empty_like(da), gelu_gradient = da.clone();
      port.run({}, kernels::Swiglu{rows_of(gate_up), rows_of(a)});
      port.run({}, kernels::SwigluBackward{rows_of(da), rows_of(gradient)});
      port.run({}, kernels::GeluNew{rows_of(da), rows_of(gelu)});
      port.run({}, kernels::GeluNewBackward{rows_of(da), rows_of(gelu_gradient)});
      return {a, gradient, gelu, gelu_gradient};
    });
  });
}

TEST_P(PortContract, CrossEntropyAddsItsLoss) {
  for_sizes([](int64_t rows, int64_t width) {
    const at::Tensor logits = random({rows, width}).mul_(3);
    const at::Tensor labels = at::randint(width, {rows}, at::kLong);
    compare([&](Port& port) -> Results {
      const at::Tensor gradient = logits.clone(), loss = at::full({}, 5.0, at::kDouble);
      port.run({}, kernels::CrossEntropy{rows_of(gradient), values_of<const int64_t>(labels), 0.5f,
                                         loss.data_ptr<double>()});
      if (rows == 0) {
        EXPECT_EQ(loss.item<double>(), 5);
      }
      return {gradient, loss};
    });
  });
}

TEST_P(PortContract, Sums) {
  for_sizes([](int64_t rows, int64_t width) {
    const at::Tensor x = random({rows, width}), index = at::randint(4, {rows}, at::kLong);
    const at::Tensor flat = random({300 * width});  // several blocks at the largest width
    compare([&](Port& port) -> Results {
      const at::Tensor sum = at::full({}, 2.0, at::kDouble),
                       out = at::zeros({4, width}, x.options());
      port.run({}, kernels::SumOfSquares{row_of(flat), sum.data_ptr<double>()});
      port.run({}, kernels::ScatterRows{rows_of(x), values_of<const int64_t>(index), rows_of(out)});
      return {sum, out};
    });
  });
}

/// A rule, and how many states it has.
struct RuleCase {
  optim::Rule rule;
  int states;
};
const RuleCase kRules[] = {
    {optim::AdamRule{1e-2, 0.9, 0.95, 1e-8, 0.1, true, 0.1, 0.05}, 2},
    {optim::AdamRule{1e-2, 0.9, 0.95, 1e-8, 0.1, false, 0.1, 0.05}, 2},
    {optim::SgdRule{1e-2, 0, 0, 0.1, false}, 0},
    {optim::SgdRule{1e-2, 0.9, 0.1, 0.1, false}, 1},
    {optim::SgdRule{1e-2, 0.9, 0.1, 0.1, true}, 1},
    {optim::AdagradRule{1e-2, 1e-8, 0.1}, 1},
    {optim::RMSpropRule{1e-2, 0.9, 1e-6, 0.1, 0, false}, 1},
    {optim::RMSpropRule{1e-2, 0.9, 1e-6, 0.1, 0.9, false}, 2},
    {optim::LionRule{1e-2, 0.9, 0.99, 0.1}, 1},
    {optim::LambRule{1e-2, 0.9, 0.95, 1e-6, 0.1, 0.01, 10, false}, 2},
    {optim::LambRule{1e-2, 0.9, 0.95, 1e-6, 0.1, 0.01, 10, true}, 2},
    {optim::AdadeltaRule{1e-2, 0.9, 1e-6, 0.1}, 2},
    {optim::AdamaxRule{1e-2, 0.9, 0.95, 1e-6, 0.1}, 2},
    {optim::NAdamRule{0.9, 0.95, 1e-8, 0.1, false, 1e-2, 0.05, 1e-3, 1e-3}, 2},
    {optim::RAdamRule{1e-2, 0.9, 0.95, 1e-8, 0.1, true, 1e-3, true}, 2},
    {optim::RAdamRule{1e-2, 0.9, 0.95, 1e-8, 0.1, false, 1e-3, false}, 2},
    {optim::AsgdRule{1e-2, 1, 1e-4, 0.1}, 1},
    {optim::AsgdRule{1e-2, 0.5, 1e-4, 0.1}, 1},
    {optim::RpropRule{1e-2, 0.5, 1.2, 1e-6, 50}, 2},
};

/// Parameters of many sizes in one vector, as in a flat: n, 1, 31, 33 and 0 elements. Some begin at
/// 16 bytes, some do not.
TEST_P(PortContract, UpdatesOfManyTensorsAtOnce) {
  for (const int64_t n : {0, 64, 4097}) {
    for (const auto& [rule, states] : kRules) {
      SCOPED_TRACE(std::to_string(n) + " elements, rule " + std::to_string(rule.index()));
      std::vector<int64_t> sizes = {n, 1, 31, 33, 0};
      // More than one launch takes.
      for (int i = 0; n == 64 && i < 60; ++i) sizes.push_back(i % 5);
      int64_t all = 0;
      for (const int64_t size : sizes) all += size;
      const optim::Update update{.rule = rule, .grad_scale = 0.5, .first = n == 64};
      // Lion's and Rprop's steps follow a sign: of random numbers none is near 0.
      const at::Tensor start = at::rand({all}).add_(1), grad = random({all});
      compare([&, states = states](Port& port) -> Results {
        const at::Tensor p = start.clone(), low = at::zeros({all}, at::kBFloat16),
                         state = start.repeat({std::max(states, 1), 1}),
                         sums = at::zeros({static_cast<int64_t>(sizes.size()), 2}, at::kDouble),
                         coefficients = at::ones({sums.size(0)}, at::kDouble);
        std::vector<std::vector<float*>> pointers(sizes.size());
        std::vector<kernels::Span> spans;
        int64_t first = 0;
        for (size_t i = 0; i < sizes.size(); first += sizes[i++]) {
          for (int k = 0; k < states; ++k)
            pointers[i].push_back(state.data_ptr<float>() + k * all + first);
          spans.push_back(
              {sizes[i], p.data_ptr<float>() + first,
               static_cast<char*>(grad.data_ptr()) + first * grad.element_size(),
               type_of(grad.scalar_type()), pointers[i].data(), states,
               static_cast<char*>(low.data_ptr()) + first * 2, kernels::Type::BF16,
               coefficients.data_ptr<double>() + i,
               sums.data_ptr<double>() + 2 * (i == 1 ? 0 : i)});  // 0 and 1 share theirs
        }
        if (const auto* one = std::get_if<optim::LambRule>(&rule)) {
          port.run({}, kernels::LambMoments{&update, spans});
          port.run({}, kernels::LambCoefficients{one, values_of<double>(sums),
                                                 values_of<double>(coefficients)});
        }
        port.run({}, kernels::UpdateSpans{&update, spans});
        EXPECT_TRUE(low.equal(p.to(at::kBFloat16))) << "the 16-bit copy is the rounded master";
        return {p, state, sums, coefficients};
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ports, PortContract,
                         testing::Combine(testing::ValuesIn(kPorts),
                                          testing::Values(at::kFloat, at::kBFloat16, at::kHalf)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" +
                                  at::toString(std::get<1>(info.param));
                         });

TEST(CpuPort, ANormsBackwardHasAShareForEveryThreadOfALargeHost) {
  EXPECT_GE(cpu_port().partials(4096), 128);
  EXPECT_EQ(cpu_port().partials(1), 1);
}

TEST(LambCoefficients, OfEveryPortAreTheRules) {
  DSJ_NEEDS_GPU();
  const optim::LambRule rule{.lr = 1, .min_coeff = 0.01, .max_coeff = 10};
  const at::Tensor sums =
      at::tensor({4.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1e9, 1.0, 1e-9, 1.0, static_cast<double>(NAN), 1.0},
                 at::kDouble);
  std::vector<Port*> ports = {&aten_port(at::kCPU)};
  for (const PortCase& one : kPorts) ports.push_back(&one.port());
  for (Port* port : ports) {
    const at::Tensor got = at::empty({6}, at::kDouble);
    port->run({},
              kernels::LambCoefficients{&rule, values_of<double>(sums), values_of<double>(got)});
    for (int64_t i = 0; i < 6; ++i) {
      const double want =
          optim::lamb_coefficient(rule, sums[2 * i].item<double>(), sums[2 * i + 1].item<double>());
      EXPECT_EQ(got[i].item<double>(), want) << i;
    }
  }
}

}  // namespace
}  // namespace dsj::device
