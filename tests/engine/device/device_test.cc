// Which port a tensor gets, and what a device with one kernel of its own needs.
#include "engine/device/device.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/engine/support/oracle_port.h"

namespace dsj::device {
namespace {

/// A device with one kernel: all that a first one takes.
class OneKernel final : public kernels::PartialPort {
 public:
  OneKernel() : PartialPort(aten_port(at::kCPU)) {}
  const char* name() const override { return "one kernel"; }
  using PartialPort::run;
  void run(kernels::Stream, const kernels::Swiglu& op) override {
    ++calls;
    auto* out = static_cast<float*>(op.a.data);
    for (int64_t i = 0; i < op.a.rows * op.a.width; ++i) out[i] = 7;
    rows = op.gate_up.rows;
  }
  int calls = 0;
  int64_t rows = 0;
};

TEST(Device, OneKernelOfItsOwnIsOneOverride) {
  OneKernel port;
  const at::Tensor gate_up = at::rand({3, 8}), a = at::zeros({3, 4}), b = a.clone();
  {
    const testing_support::UsePort use(port);
    const On on(gate_up);
    on.run(kernels::Swiglu{.gate_up = rows_of(gate_up), .a = rows_of(a)});
    on.run(kernels::GeluNew{.x = rows_of(a), .y = rows_of(b)});
    EXPECT_STREQ(of(gate_up).kernels().name(), "one kernel");
  }
  EXPECT_EQ(port.calls, 1);
  EXPECT_EQ(port.rows, 3);
  EXPECT_TRUE(a.eq(7).all().item<bool>());
  EXPECT_NEAR(b[0][0].item<float>(), 7, 1e-5) << "the rest runs as libtorch's operations";
  EXPECT_EQ(&of(a).kernels(), &cpu_port()) << "uninstalled";
}

TEST(Device, AnotherKindRunsLibtorchsOperationsUntilAPortIsInstalled) {
  const at::Device place(at::kCUDA, 0);
  EXPECT_EQ(&of(place).kernels(), &aten_port(at::kCUDA));
  OneKernel port;
  EXPECT_EQ(&install(at::kCUDA, port), &aten_port(at::kCUDA));
  EXPECT_EQ(&of(place).kernels(), &port);
  install(at::kCUDA, aten_port(at::kCUDA));
  EXPECT_TRUE(of(place).multiplies(at::kHalf));
  EXPECT_FALSE(of(at::Device(at::kCPU)).multiplies(at::kHalf));
  EXPECT_TRUE(of(at::Device(at::kCPU)).multiplies(at::kFloat));
}

TEST(Device, RowsSayWhereElementsLie) {
  const at::Tensor x = at::zeros({3, 8}, at::kHalf);
  const kernels::Rows all = rows_of(x), part = rows_of(x.narrow(1, 2, 4)), flat = row_of(x);
  EXPECT_EQ(std::make_tuple(all.rows, all.width, all.stride, all.type),
            std::make_tuple(3, 8, 8, kernels::Type::F16));
  EXPECT_EQ(std::make_tuple(part.rows, part.width, part.stride), std::make_tuple(3, 4, 8));
  EXPECT_EQ(static_cast<char*>(part.data) - static_cast<char*>(all.data), 4);
  EXPECT_EQ(std::make_tuple(flat.rows, flat.width), std::make_tuple(1, 24));
  EXPECT_EQ(rows_of(at::Tensor()).data, nullptr);
}

TEST(HostRead, OfTheHostIsTheTensorItself) {
  const at::Tensor x = at::rand({3});
  HostRead read(x);
  EXPECT_TRUE(read.get().is_same(x));
  EXPECT_TRUE(upload(x, at::kCPU).is_same(x));
}

}  // namespace
}  // namespace dsj::device
