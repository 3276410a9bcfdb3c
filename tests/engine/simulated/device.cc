#include "tests/engine/simulated/device.h"

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <utility>
#include <vector>

#include "engine/device/device.h"
#include "engine/kernels/cuda/cuda_port.h"
#include "tests/engine/kernels/emulated/block.h"
#include "tests/engine/kernels/emulated/heap_scratch.h"
#include "tests/engine/simulated/flash.h"
#include "tests/engine/simulated/late_queues.h"
#include "tests/engine/simulated/traffic.h"

namespace dsj::simulated {
namespace {

/// The device multiplies as libtorch does on a CPU. So must the CPU whose bits it is to have.
const int library_multiplies = setenv("DSJ_PRODUCTS", "library", /*overwrite=*/1);

Work work;
uint64_t launches_before = 0;

/// Launches of an operation on a GPU, without those of its arguments. By reading libtorch 2.11's
/// CUDA operations: one pass over elements, one reduction, or one call of cuBLAS.
const std::map<std::string, int64_t> kLaunches = {
    {"aten::mm.out", 1},
    {"aten::add.out", 1},
    {"aten::mul.out", 1},
    {"aten::zero_", 1},
    {"aten::fill_.Scalar", 1},
    {"aten::sum.IntList_out", 1},
    {"aten::index_select", 1},
    {"aten::index_copy.out", 1},
    {"aten::div.out", 1},
    {"aten::sub.out", 1},
    {"aten::gelu.out", 1},
    {"aten::gelu_backward.grad_input", 1},
    {"aten::silu.out", 1},
    {"aten::silu_backward.grad_input", 1},
    {"aten::relu", 1},
    {"aten::threshold_backward.grad_input", 1},
    {"aten::tanh.out", 1},
    {"aten::pow.Tensor_Scalar_out", 1},
    {"aten::eq.Scalar_out", 1},
    {"aten::masked_fill_.Scalar", 1},
    {"aten::addmm.dtype_out", 1},
};

int64_t launches_of(const c10::OperatorHandle& op, const std::vector<at::Tensor>& inputs) {
  const std::string name = toString(op.operator_name());
  // A matrix that is added is copied to the result first, unless it is the result; a bias is a part
  // of the product.
  if (name == "aten::addmm.out")
    return inputs[0].dim() == 2 && !inputs[0].is_alias_of(inputs.back()) ? 2 : 1;
  // At most 128 tensors: one launch.
  if (name == "aten::cat.out") return 1;
  const auto found = kLaunches.find(name);
  if (found == kLaunches.end()) {
    work.uncounted += name + " ";
    return 0;
  }
  return found->second;
}

int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

/// Bytes that an operation moves and the operations of its products. Picked rows move, and not what
/// they are picked from.
void count_traffic(const std::string& name, const std::vector<at::Tensor>& inputs,
                   const at::Tensor& result) {
  if (name == "aten::index_select") {
    work.bytes += 2 * bytes_of(result) + bytes_of(inputs.back());
  } else if (name == "aten::index_copy.out") {
    work.bytes += bytes_of(inputs[1]) + 2 * bytes_of(inputs[2]);
  } else {
    for (const at::Tensor& input : inputs) work.bytes += bytes_of(input);
    // What no argument is: a result of its own; what is read where it is written.
    if (name == "aten::relu" || name == "aten::masked_fill_.Scalar") work.bytes += bytes_of(result);
  }
  const bool adds = name == "aten::addmm.out" || name == "aten::addmm.dtype_out";
  if (adds || name == "aten::mm.out") {
    const at::Tensor& a = inputs[adds ? 1 : 0];
    work.product_flops += 2 * a.size(0) * a.size(1) * inputs[adds ? 2 : 1].size(1);
  }
}

// ---- tensors

/// The same memory, as a tensor of the CPU.
at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != kKind) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> type,
                 std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(size, c10::GetAllocator(kKind),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   type.value_or(at::kFloat), format);
}
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> type, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(kKind),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           type.value_or(at::kFloat));
}
at::Tensor place_for(const at::Tensor& made) {
  return at::empty_strided(made.sizes(), made.strides(), made.options().device(kKind));
}
/// A result that an operation made on the device.
at::Tensor made_there(const at::Tensor& made) {
  const at::Tensor there = place_for(made);
  on_host(there).copy_(made);
  return there;
}

/// The bytes that a tensor's elements lie in.
Touch touch(const at::Tensor& tensor, bool writes) {
  if (!tensor.defined() || tensor.numel() == 0) return {};
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {tensor.const_data_ptr(), static_cast<size_t>(last + 1) * tensor.element_size(), writes};
}

/// A copy on a late device. Pageable memory of the host is read before the call returns, and waited
/// for where it is written, as CUDA does.
void late_copy(LateQueues& queues, const at::Tensor& self, const at::Tensor& from, bool goes_on) {
  const bool down = self.is_cpu(), up = from.is_cpu();
  if (down) queues.count_read();
  const at::Tensor& host = down ? self : from;
  const bool locked =
      (down || up) && host.numel() > 0 && is_page_locked(queues, host.const_data_ptr());
  const at::Tensor to = down ? self : on_host(self);
  const at::Tensor source = up && !locked ? from.clone() : up ? from : on_host(from);
  // What belongs to the host must not be kept alive by the queue.
  const auto view = [](const at::Tensor& x) {
    return at::from_blob(x.data_ptr(), x.sizes(), x.strides(), x.options());
  };
  const at::Tensor to_view = view(to), source_view = up && !locked ? source : view(source);
  submit(queues,
         down ? "copy to the host"
         : up ? "copy to the device"
              : "copy",
         {touch(source_view, false), touch(to_view, true)},
         [to_view, source_view] { at::Tensor(to_view).copy_(source_view); });
  if ((down || up) && (!goes_on || (down && !locked))) wait_for_stream(queues);
}
at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool goes_on) {
  if (LateQueues* const queues = queues_here()) {
    late_copy(*queues, self, from, goes_on);
    return self;
  }
  if (self.device().type() != from.device().type()) {
    ++work.copies;
  } else {
    ++work.libtorchs;
    ++work.operations["aten::copy_"];
    work.bytes += bytes_of(self) + bytes_of(from);
  }
  on_host(self).copy_(on_host(from));
  return self;
}
at::Scalar value_of(const at::Tensor& self) {
  if (LateQueues* const queues = queues_here()) {
    wait_for_stream(*queues);
    return on_host(self).item();
  }
  ++work.stops;
  return on_host(self).item();
}
/// Of one product of queries and keys, or of probabilities and values: what the mask leaves.
int64_t product_flops(const FlashCall& call) {
  const auto* const starts = call.starts_q.const_data_ptr<int32_t>();
  int64_t pairs = 0;
  for (int64_t row = 0; row + 1 < call.starts_q.size(0); ++row) {
    for (int64_t t = 0; t < starts[row + 1] - starts[row]; ++t)
      pairs += 1 + (call.left && *call.left < t ? *call.left : t);
  }
  return 2 * call.q.size(1) * call.q.size(2) * pairs;
}
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> flash(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>& starts_q, const std::optional<at::Tensor>& starts_k,
    int64_t longest_q, int64_t longest_k, double dropout, bool causal, bool,
    std::optional<double> scale, std::optional<int64_t> left, std::optional<int64_t> right,
    const std::optional<at::Tensor>&, const std::optional<at::Tensor>&) {
  ++work.attention;
  const FlashCall call{on_host(q),
                       on_host(k),
                       on_host(v),
                       on_host(*starts_q),
                       on_host(*starts_k),
                       longest_q,
                       longest_k,
                       dropout,
                       causal,
                       *scale,
                       left,
                       right};
  const auto [out, logsumexp] = flash_forward(call);
  work.attention_flops += 2 * product_flops(call);
  work.bytes += bytes_of(q) + bytes_of(k) + bytes_of(v) + bytes_of(out) + bytes_of(logsumexp);
  const at::Tensor state = at::empty({2}, at::kLong);
  return {made_there(out), made_there(logsumexp), state, at::empty({0}), at::empty({0})};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_gradient(
    const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& starts_q,
    const at::Tensor& starts_k, int64_t longest_q, int64_t longest_k, double dropout, bool causal,
    const at::Tensor&, const at::Tensor&, std::optional<double> scale, std::optional<int64_t> left,
    std::optional<int64_t> right) {
  ++work.attention;
  const FlashCall call{on_host(q),
                       on_host(k),
                       on_host(v),
                       on_host(starts_q),
                       on_host(starts_k),
                       longest_q,
                       longest_k,
                       dropout,
                       causal,
                       *scale,
                       left,
                       right};
  const auto [dq, dk, dv] = flash_backward(call, on_host(dout), on_host(out), on_host(logsumexp));
  work.attention_flops += 5 * product_flops(call);
  for (const at::Tensor& tensor : {dout, q, k, v, out, logsumexp, dq, dk, dv})
    work.bytes += bytes_of(tensor);
  return {made_there(dq), made_there(dk), made_there(dv)};
}

/// What the kernel on a GPU demands of its operands, and what it makes of the sums of the scores: 32
/// queries together, and infinity where there is none.
void check_aligned(const at::Tensor& heads) {
  TORCH_CHECK(heads.size(-1) * heads.element_size() % 16 == 0, "no kernel found to launch");
}
at::Tensor padded_sums(const at::Tensor& sums) {
  const int64_t queries = sums.size(2);
  return at::constant_pad_nd(sums, {0, (32 - queries % 32) % 32}, INFINITY);
}

/// Attention as Device::attention() asks for it: the CPU's, so that numbers are the CPU's.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const std::optional<at::Tensor>& bias, bool, double dropout, bool causal,
    std::optional<double> scale) {
  for (const at::Tensor& heads : {q, k, v}) check_aligned(heads);
  LateQueues& queues = *queues_here();
  const at::Tensor mask = bias ? on_host(*bias) : at::Tensor();
  const auto run = [=, q = on_host(q), k = on_host(k), v = on_host(v)] {
    return at::_scaled_dot_product_flash_attention_for_cpu(
        q, k, v, dropout, causal, mask.defined() ? std::optional(mask) : std::nullopt, scale);
  };
  const auto shape = [](const at::Tensor& x) { return at::zeros_like(on_host(x)); };
  const auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      shape(q), shape(k), shape(v), dropout, causal,
      bias ? std::optional(shape(*bias)) : std::nullopt, scale);
  const at::Tensor out_there = place_for(out), sums_there = place_for(padded_sums(sums));
  submit(
      queues, "attention",
      {touch(q, false), touch(k, false), touch(v, false), touch(bias.value_or(at::Tensor()), false),
       touch(out_there, true), touch(sums_there, true)},
      [run, out = on_host(out_there), sums = on_host(sums_there)] {
        const auto [made, made_sums] = run();
        out.copy_(made);
        sums.copy_(padded_sums(made_sums));
      });
  return {out_there, sums_there, at::Tensor(), at::Tensor()};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> efficient_gradient(
    const at::Tensor& dout, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
    const at::Tensor& bias, const at::Tensor& out, const at::Tensor& sums, const at::Tensor&,
    const at::Tensor&, double dropout, std::array<bool, 4>, bool causal,
    std::optional<double> scale) {
  for (const at::Tensor& heads : {dout, q, k, v, out}) check_aligned(heads);
  TORCH_CHECK(out.size(2) == 1 || out.stride(2) == out.size(1) * out.size(3),
              "in 16 bits the kernel takes the heads of a token for adjacent");
  LateQueues& queues = *queues_here();
  const std::array<at::Tensor, 6> in = {dout, q, k, v, out, sums};
  std::vector<Touch> touches = {touch(bias, false)};
  std::vector<at::Tensor> here, shapes, there, made;
  for (const at::Tensor& x : in) {
    touches.push_back(touch(x, false));
    here.push_back(x.is_same(sums) ? on_host(x).narrow(2, 0, q.size(2)) : on_host(x));
    shapes.push_back(at::zeros_like(here.back()));
  }
  const at::Tensor mask = on_host(bias);
  const auto gradient = [=](const std::vector<at::Tensor>& x) {
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(
        x[0], x[1], x[2], x[3], x[4], x[5], dropout, causal,
        mask.defined() ? std::optional(at::zeros_like(mask)) : std::nullopt, scale);
  };
  const auto [dq, dk, dv] = gradient(shapes);
  for (const at::Tensor& x : {dq, dk, dv}) {
    there.push_back(place_for(x));
    made.push_back(on_host(there.back()));
    touches.push_back(touch(there.back(), true));
  }
  submit(queues, "attention backward", touches, [=] {
    const auto [a, b, c] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        here[0], here[1], here[2], here[3], here[4], here[5], dropout, causal,
        mask.defined() ? std::optional(mask) : std::nullopt, scale);
    made[0].copy_(a);
    made[1].copy_(b);
    made[2].copy_(c);
  });
  return {there[0], there[1], there[2], at::Tensor()};
}

/// The arguments of a call, and what they become on the host.
struct Arguments {
  torch::jit::Stack device, host, shapes;  ///< shapes: zeros, to ask an operation what it makes
  std::vector<Touch> touches;
  std::vector<at::Tensor> written;
  bool grows = false;  ///< a result is empty yet: the operation finds its shape
};
Arguments arguments_of(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Arguments a;
  const auto& schema = op.schema().arguments();
  const auto add = [&](const at::Tensor& tensor, bool writes) {
    if (!tensor.defined() || tensor.device().type() != kKind) return std::pair(tensor, tensor);
    a.touches.push_back(touch(tensor, writes));
    if (writes) a.written.push_back(tensor);
    a.grows |= writes && tensor.numel() == 0;
    return std::pair(on_host(tensor), at::zeros_like(on_host(tensor)));
  };
  for (size_t i = 0; i < schema.size(); ++i) {
    c10::IValue value = (*stack)[stack->size() - schema.size() + i], shape = value;
    const bool writes = schema[i].alias_info() && schema[i].alias_info()->isWrite();
    if (value.isTensor()) {
      const auto [host, zeros] = add(value.toTensor(), writes);
      value = host, shape = zeros;
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> hosts, zeros;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        const auto [host, zero] = add(tensor, writes);
        hosts.push_back(host), zeros.push_back(zero);
      }
      value = hosts, shape = zeros;
    } else if (value.isDevice()) {
      value = shape = at::Device(at::kCPU);
    }
    a.host.push_back(value), a.shapes.push_back(shape);
  }
  return a;
}

/// Whether the sizes of a result are in the values of the arguments. libtorch does not mark _unique().
bool shape_in_values(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::dynamic_output_shape) || op.operator_name().name == "aten::_unique";
}

/// Such an operation on a late device: the host waits for the values, as on a GPU.
void run_waited_for(LateQueues& queues, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Arguments a = arguments_of(op, stack);
  const std::string name = toString(op.operator_name());
  submit(queues, name, a.touches, [] {});
  wait_for_stream(queues);
  op.callBoxed(&a.host);
  stack->erase(stack->end() - static_cast<int64_t>(op.schema().arguments().size()), stack->end());
  for (const c10::IValue& value : a.host) {
    const at::Tensor made = value.toTensor(), there = place_for(made);
    submit(queues, name, {touch(there, true)}, [made, to = on_host(there)] { to.copy_(made); });
    stack->emplace_back(there);
  }
}

/// As CUDA's operations do, refuses tensors of two devices; only numbers may be on the host.
void check_one_device(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const size_t count = op.schema().arguments().size();
  bool here = false, there = false;
  const auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    there = there || tensor.device().type() == kKind;
    here = here || (tensor.is_cpu() && tensor.dim() > 0);
  };
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (stack[i].isTensor()) look(stack[i].toTensor());
    if (stack[i].isTensorList())
      for (const at::Tensor& tensor : stack[i].toTensorVector()) look(tensor);
  }
  TORCH_CHECK(!(here && there), toString(op.operator_name()), ": tensors of two devices");
}

/// An operation of libtorch on a late device: results are made now, filled when its turn comes.
void run_late(LateQueues& queues, const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (shape_in_values(op)) return run_waited_for(queues, op, stack);
  Arguments a = arguments_of(op, stack);
  std::vector<at::Tensor> made, results;
  if (a.written.empty() || a.grows) {
    op.callBoxed(&a.shapes);
    for (const c10::IValue& value : a.shapes) {
      made.push_back(place_for(value.toTensor()));
      a.touches.push_back(touch(made.back(), true));
    }
  }
  if (a.grows) {
    const at::Tensor& grown = a.written[0];
    grown.unsafeGetTensorImpl()->set_storage_keep_dtype(made[0].storage());
    grown.unsafeGetTensorImpl()->set_sizes_and_strides(made[0].sizes(), made[0].strides());
    results = a.written;
  } else {
    results = a.written.empty() ? made : a.written;
  }
  if (a.grows)
    for (c10::IValue& value : a.host)
      if (value.isTensor() && value.toTensor().defined() && value.toTensor().numel() == 0)
        value = at::empty({0}, value.toTensor().options());
  std::vector<at::Tensor> filled;
  for (const at::Tensor& one : made) filled.push_back(on_host(one));
  submit(queues, toString(op.operator_name()), a.touches,
         [op, filled, arguments = std::move(a.host)]() mutable {
           op.callBoxed(&arguments);
           for (size_t i = 0; i < filled.size(); ++i) filled[i].copy_(arguments[i].toTensor());
         });
  stack->erase(stack->end() - static_cast<int64_t>(op.schema().arguments().size()), stack->end());
  for (size_t i = 0; i < op.schema().returns().size(); ++i) stack->emplace_back(results[i]);
}

/// Every other operation: on the CPU, with the same memory.
void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_one_device(op, *stack);
  if (LateQueues* const queues = queues_here()) return run_late(*queues, op, stack);
  const size_t count = op.schema().arguments().size();
  std::vector<at::Tensor> inputs;
  const auto host = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.device().type() != kKind) return tensor;
    inputs.push_back(tensor);
    // An empty one may be a result whose shape the operation finds.
    return tensor.numel() == 0 ? at::empty(tensor.sizes(), tensor.options().device(at::kCPU))
                               : on_host(tensor);
  };
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = host(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(host(tensor));
      value = list;
    } else if (value.isDevice()) {
      value = at::Device(at::kCPU);
    }
  }
  work.libtorchs += launches_of(op, inputs);
  ++work.operations[toString(op.operator_name())];
  op.callBoxed(stack);
  count_traffic(toString(op.operator_name()), inputs,
                stack->back().isTensor() ? stack->back().toTensor() : at::Tensor());
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (!value.isTensor()) continue;
    const at::Tensor made = value.toTensor();
    at::Tensor there;
    for (const at::Tensor& input : inputs) {
      if (input.numel() == 0 && op.schema().returns()[0].alias_info() != nullptr) {
        const at::Tensor grown = made_there(made);
        input.unsafeGetTensorImpl()->set_storage_keep_dtype(grown.storage());
        input.unsafeGetTensorImpl()->set_sizes_and_strides(grown.sizes(), grown.strides());
        there = input;
      } else if (input.data_ptr() == made.data_ptr() && input.sizes() == made.sizes()) {
        there = input;
      }
    }
    value = there.defined() ? there : made_there(made);
  }
}

/// libtorch has it for CUDA alone.
at::Tensor& addmm_wide(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                       at::ScalarType type, const at::Scalar& beta, const at::Scalar& alpha,
                       at::Tensor& out) {
  return out.copy_(at::addmm(self.to(type), a.to(type), b.to(type), beta, alpha));
}
TORCH_LIBRARY_IMPL(aten, CPU, m) {
  m.impl("addmm.dtype_out", TORCH_FN(addmm_wide));
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("copy_", TORCH_FN(copy));
  m.impl("_local_scalar_dense", TORCH_FN(value_of));
  m.impl("_scaled_dot_product_efficient_attention", TORCH_FN(efficient));
  m.impl("_scaled_dot_product_efficient_attention_backward", TORCH_FN(efficient_gradient));
  m.impl("_flash_attention_forward", TORCH_FN(flash));
  m.impl("_flash_attention_backward", TORCH_FN(flash_gradient));
}

// ---- the device

class Memory final : public c10::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    if (LateQueues* const queues = queues_here()) return simulated::allocate(*queues, bytes);
    at::DataPtr host = c10::GetAllocator(at::kCPU)->allocate(bytes);
    void* const data = host.get();
    auto* const owner = new at::DataPtr(std::move(host));
    return {data, owner, [](void* it) { delete static_cast<at::DataPtr*>(it); },
            at::Device(kKind, 0)};
  }
  at::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

/// Devices with streams and events. Without a late device on the thread nothing is ever late.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  at::DeviceType type() const override { return kKind; }
  at::Device exchangeDevice(at::Device to) const override {
    const at::Device before = getDevice();
    if (to.has_index()) here_of_thread().index = to.index();
    return before;
  }
  at::Device getDevice() const override {
    return {kKind, static_cast<at::DeviceIndex>(here_of_thread().index)};
  }
  void setDevice(at::Device to) const override { exchangeDevice(to); }
  void uncheckedSetDevice(at::Device to) const noexcept override { exchangeDevice(to); }
  c10::Stream getStream(at::Device) const override { return stream(here_of_thread().stream); }
  c10::Stream getDefaultStream(at::Device place) const override { return stream(0, place); }
  c10::Stream getStreamFromGlobalPool(at::Device place, bool) const override {
    static std::array<std::atomic<int>, kStreams> taken{};
    return stream(1 + taken[static_cast<size_t>(place.index())]++ % (kStreams - 1), place);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    return stream(std::exchange(here_of_thread().stream, static_cast<int>(to.id())));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return reinterpret_cast<void*>(static_cast<intptr_t>(stream.id()));
  }
  at::DeviceIndex deviceCount() const noexcept override { return kStreams; }

  void record(void** event, const c10::Stream& stream, const at::DeviceIndex,
              const c10::EventFlag) const override {
    if (!*event) *event = new HappenedPtr;
    if (LateQueues* const queues = queues_here())
      happened(*event) = queues->record(int(stream.id()));
  }
  void destroyEvent(void* event, const at::DeviceIndex) const noexcept override {
    delete static_cast<HappenedPtr*>(event);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (happened(event)) happened(event)->queues->hold(int(stream.id()), happened(event));
  }
  bool queryEvent(void* event) const override {
    return !happened(event) || happened(event)->queues->query(*happened(event));
  }
  void synchronizeEvent(void* event) const override {
    if (happened(event)) happened(event)->queues->wait(happened(event));
  }
  void synchronizeDevice(const at::DeviceIndex) const override {
    if (LateQueues* const queues = queues_here()) queues->drain();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (LateQueues* const queues = queues_here()) queues->wait(queues->record(int(stream.id())));
  }

 private:
  static c10::Stream stream(int id, std::optional<at::Device> place = {}) {
    const at::Device here(kKind, static_cast<at::DeviceIndex>(here_of_thread().index));
    return c10::Stream(c10::Stream::UNSAFE, place.value_or(here), id);
  }
  static HappenedPtr& happened(void* event) { return *static_cast<HappenedPtr*>(event); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

at::Device device() {
  static const bool begun = [] {
    static Memory memory;
    static emulated::HeapScratch scratch;
    static const auto port = kernels::cuda::make_cuda_port(device::aten_port(kKind), scratch);
    c10::SetAllocator(kKind, &memory);
    static const auto counted = counting_port(*port, work.bytes);
    device::install(kKind, *counted);
    device::set_capability(kKind, 90);
    return true;
  }();
  (void)begun;
  return {kKind, 0};
}

Work take() {
  const uint64_t launches = emulated::launches();
  work.ours = static_cast<int64_t>(launches - launches_before);
  launches_before = launches;
  return std::exchange(work, {});
}

}  // namespace dsj::simulated
