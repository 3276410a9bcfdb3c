#include "engine/device/attention.h"

#include <ATen/ATen.h>

#include <optional>

#include "common/check.h"

namespace dsj::device {
namespace {

/// The window as the kernels count it: visible tokens before a token's own; nullopt means all.
std::optional<int64_t> before(const RowAttention& in) {
  if (in.window == 0 || in.window >= in.longest) return std::nullopt;
  return in.window - 1;
}

void check(const RowAttention& in) {
  DSJ_CHECK(in.qkv.is_contiguous() && in.qkv.size(1) == (in.heads + 2 * in.kv_heads) * in.dim);
  DSJ_CHECK(in.starts.scalar_type() == at::kInt && in.starts.device() == in.qkv.device());
  DSJ_CHECK(in.heads % in.kv_heads == 0 && in.longest > 0);
}

}  // namespace

AttentionChoice choose_attention(at::ScalarType type, int64_t dim, int capability) {
  constexpr const char* kOtherwise = ": a call for each run of rows of one length";
  const auto not_by_rows = [&](const std::string& why) {
    return AttentionChoice{false, why + kOtherwise};
  };
  if (capability == 0) return not_by_rows("the device's compute capability is not known");
  if (capability < 80)
    return not_by_rows("compute capability " + std::to_string(capability / 10) + "." +
                       std::to_string(capability % 10) + " is below flash attention's 8.0");
  if (type != at::kBFloat16 && type != at::kHalf)
    return not_by_rows(std::string("flash attention has no kernel of type ") + at::toString(type));
  if (dim > 256 || dim % 8 != 0)
    return not_by_rows("flash attention wants heads of a multiple of 8 up to 256, not " +
                       std::to_string(dim));
  const bool little_shared = (capability > 80 && capability < 90) || capability >= 120;
  if (little_shared && dim > 192 && dim <= 224)
    return not_by_rows("flash attention has no backward for heads of " + std::to_string(dim) +
                       " on compute capability " + std::to_string(capability / 10) + "." +
                       std::to_string(capability % 10));
  return {true, "flash attention over all rows at once"};
}

RowHeads heads_of(const RowAttention& in) {
  const at::Tensor all = in.qkv.view({in.qkv.size(0), in.heads + 2 * in.kv_heads, in.dim});
  return {all.narrow(1, 0, in.heads), all.narrow(1, in.heads, in.kv_heads),
          all.narrow(1, in.heads + in.kv_heads, in.kv_heads)};
}

RowAttended attention_by_rows(const RowAttention& in) {
  check(in);
  const RowHeads h = heads_of(in);
  auto [out, logsumexp, state, unused, mask] = at::_flash_attention_forward(
      h.q, h.k, h.v, in.starts, in.starts, in.longest, in.longest, /*dropout_p=*/0.0,
      /*is_causal=*/true, /*return_debug_mask=*/false, in.scale, before(in),
      before(in) ? std::optional<int64_t>(0) : std::nullopt);
  return {out.view({in.qkv.size(0), in.heads * in.dim}), logsumexp, state, unused};
}

at::Tensor attention_by_rows_backward(const at::Tensor& dout, const RowAttention& in,
                                      const RowAttended& attended) {
  check(in);
  const RowHeads h = heads_of(in);
  const auto by_head = [&](const at::Tensor& x) { return x.view({x.size(0), in.heads, in.dim}); };
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      by_head(dout), h.q, h.k, h.v, by_head(attended.out), attended.logsumexp, in.starts, in.starts,
      in.longest, in.longest, /*dropout_p=*/0.0, /*is_causal=*/true, attended.generator_state,
      attended.unused, in.scale, before(in), before(in) ? std::optional<int64_t>(0) : std::nullopt);
  return at::cat({dq, dk, dv}, 1).view_as(in.qkv);
}

}  // namespace dsj::device
