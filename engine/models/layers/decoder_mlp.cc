// The layer after its attention: an MLP, experts, or both in parallel. Methods of decoder_layer.h.
#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "engine/models/layers/decoder_layer.h"
#include "engine/models/ops/factors.h"

namespace dsj::models {

using layout::Role;

at::Tensor DecoderLayer::scaled(const zero::UnitParameters& p, at::Tensor y) const {
  return config_.layer_scale ? y.mul_(p.buffer(0).to(y.scalar_type())) : y;
}

at::Tensor DecoderLayer::backward_sum(const zero::UnitParameters& p, at::Tensor dy,
                                      const LayerCall& call) const {
  if (config_.layer_input > 0 && call.outputs) {
    // Tokens without an output do not read their input.
    const at::Tensor own = own_inputs(call);
    const at::Tensor reads = at::zeros({own.size(0), 1}, own.options().dtype(at::kBool));
    own.masked_fill_(reads.index_fill_(0, *call.outputs, 1).logical_not_(), 0);
  }
  return scaled(p, std::move(dy));
}

// ---- the layer's own input

at::Tensor DecoderLayer::own_inputs(const LayerCall& call) const {
  return call.carried->inputs.narrow(1, call.layer * config_.layer_input, config_.layer_input);
}

at::Tensor DecoderLayer::layer_input(const LayerCall& call, int64_t rows) const {
  const at::Tensor own = own_inputs(call);
  if (!call.outputs) return own.narrow(0, call.first_output, rows);
  return own.index_select(0, call.outputs->narrow(0, call.first_output, rows));
}

at::Tensor DecoderLayer::add_input(const zero::UnitParameters& p, const at::Tensor& y,
                                   const LayerCall& call, LayerSaved* saved) const {
  if (config_.layer_input == 0) return y;
  const at::Tensor gate = project(p, input_gate_, y.to(p.product_type()), call.dropout_key);
  const at::Tensor gated =
      ops::activated(gate, config_.activation, /*gated=*/false).mul_(layer_input(call, y.size(0)));
  const at::Tensor out = project(p, input_out_, gated, call.dropout_key);
  if (saved) saved->summed = y, saved->input_gate = gate;
  return added(y, branch_norm(p, input_branch(), out, nullptr));
}

void DecoderLayer::backward_input(const zero::UnitParameters& p, const at::Tensor& dy,
                                  const LayerCall& call, LayerSaved& saved) const {
  if (config_.layer_input == 0) return;
  if (!saved.summed.defined()) {
    saved.summed =
        add_branch(p, mlp_branch(), activated(p, saved.inner), saved.x2, call, &saved.mlp);
    saved.input_gate = project(p, input_gate_, saved.summed.to(p.product_type()), call.dropout_key);
  }
  const at::Tensor gate = std::exchange(saved.input_gate, {});
  const at::Tensor input = layer_input(call, dy.size(0));
  const at::Tensor open = ops::activated(gate, config_.activation, /*gated=*/false);
  const at::Tensor gated = open * input.to(open.scalar_type());
  LayerSaved::Branch branch;
  branch_norm(p, input_branch(), project(p, input_out_, gated, call.dropout_key), &branch);
  const at::Tensor dout = branch_norm_backward(p, input_branch(), dy, std::move(branch));
  const at::Tensor dgated = project_backward(p, input_out_, dout, gated, call.dropout_key);
  ops::activated_backward(dgated * input.to(dgated.scalar_type()), gate, config_.activation,
                          /*gated=*/false);
  const at::Tensor dinput = (dgated * open).to(input.scalar_type());
  if (call.outputs)
    own_inputs(call).index_copy_(0, call.outputs->narrow(0, call.first_output, dy.size(0)), dinput);
  else
    input.copy_(dinput);
  dy.add_(
      project_backward(p, input_gate_, gate, saved.summed.to(p.product_type()), call.dropout_key));
  saved.summed.reset();
}

at::Tensor DecoderLayer::activated(const zero::UnitParameters& p, const at::Tensor& inner) const {
  return xielu_ ? xielu_->forward(p, inner)
                : ops::activated(inner, config_.activation, config_.gated);
}

void DecoderLayer::activated_backward(const zero::UnitParameters& p, const at::Tensor& da,
                                      at::Tensor inner) const {
  if (xielu_) return xielu_->backward(p, da, std::move(inner));
  ops::activated_backward(da, std::move(inner), config_.activation, config_.gated);
}

at::Tensor DecoderLayer::mlp_inner(const zero::UnitParameters& p, const at::Tensor& read,
                                   const LayerCall& call, LayerSaved* saved) const {
  const bool there =
      config_.shared_norm && saved && saved->norm1.y.defined() && call.outputs == nullptr;
  const ops::Normed norm2 =
      there ? saved->norm1 : before(p, config_.shared_norm ? Role::Norm1 : Role::Norm2, read);
  if (config_.has_experts(call.layer) && !config_.experts.beside_mlp) {
    saved->norm2 = norm2;
    saved->inner = experts_->inner(p, {norm2.y}, call.dropout_key, saved->experts);
    return saved->inner;
  }
  if (config_.has_experts(call.layer)) {
    saved->experts_read = before(p, Role::ExpertsNorm, read);
    saved->router_read = as_factor(p, norm(p, config_, router_norm(), read));
    saved->experts_inner = experts_->inner(p, {saved->experts_read.y, saved->router_read.y},
                                           call.dropout_key, saved->experts);
  }
  const at::Tensor inner = project(p, gate_up_, norm2.y, call.dropout_key);
  if (saved) {
    saved->norm2 = norm2;
    saved->inner = inner;
  }
  return inner;
}

at::Tensor DecoderLayer::mlp(const zero::UnitParameters& p, const MlpInput& in,
                             const LayerCall& call, LayerSaved* saved) const {
  LayerSaved::Branch* branch = saved ? &saved->mlp : nullptr;
  if (!config_.has_experts(call.layer)) {
    const at::Tensor inner = mlp_inner(p, in.read, call, saved);
    const at::Tensor sum =
        add_branch(p, mlp_branch(), activated(p, inner), in.residual, call, branch);
    return scaled(p, add_input(p, sum, call, saved));
  }
  LayerSaved own;
  LayerSaved& of_mlp = saved ? *saved : own;
  const at::Tensor inner = mlp_inner(p, in.read, call, &of_mlp);
  if (call.balance) call.balance->add(of_mlp.experts.routing);
  const at::Tensor out =
      config_.experts.beside_mlp
          ? beside_output(p, call, of_mlp)
          : experts_->output(p, of_mlp.norm2.y, inner, of_mlp.experts, call.dropout_key);
  return scaled(p, add_result(p, mlp_branch(), out, in.residual, call, branch));
}

// ---- experts in parallel with an MLP

NormAt DecoderLayer::router_norm() const {
  return {.weight = at(Role::RouterScale),
          .factor = 1 / std::sqrt(static_cast<double>(config_.hidden_size))};
}

at::Tensor DecoderLayer::beside_output(const zero::UnitParameters& p, const LayerCall& call,
                                       LayerSaved& saved) const {
  const at::Tensor plain = project(p, down_, activated(p, saved.inner), call.dropout_key);
  const at::Tensor experts = experts_->output(p, saved.experts_read.y, saved.experts_inner,
                                              saved.experts, call.dropout_key);
  at::Tensor sum = branch_norm(p, plain_branch(), plain, &saved.plain_mlp);
  return sum.add_(branch_norm(p, experts_branch(), experts, &saved.expert_mlp));
}

void DecoderLayer::backward_beside(const zero::UnitParameters& p, const at::Tensor& dy,
                                   const at::Tensor& dread, const LayerCall& call,
                                   LayerSaved& saved) const {
  if (!saved.mlp.out.defined())
    branch_norm(p, mlp_branch(), beside_output(p, call, saved), &saved.mlp);
  const at::Tensor d = branch_norm_backward(p, mlp_branch(), scaled_back(mlp_branch(), dy, call),
                                            std::exchange(saved.mlp, {}));
  const auto of = [&](const Branch& branch, LayerSaved::Branch& kept) {
    return branch_norm_backward(p, branch, d, std::exchange(kept, {}));
  };
  at::Tensor dinner = std::move(saved.inner);
  activated_backward(p,
                     project_backward(p, down_, of(plain_branch(), saved.plain_mlp),
                                      activated(p, dinner), call.dropout_key),
                     dinner);
  backward_before(p, Role::Norm2,
                  project_backward(p, gate_up_, dinner, saved.norm2.y, call.dropout_key), saved.x2,
                  saved.norm2, dread);
  dinner.reset();
  const ExpertInput dexperts = experts_->backward(
      p, of(experts_branch(), saved.expert_mlp), {saved.experts_read.y, saved.router_read.y},
      std::move(saved.experts_inner), std::move(saved.experts), call.balance, call.dropout_key);
  backward_before(p, Role::ExpertsNorm, dexperts.h, saved.x2, saved.experts_read, dread);
  norm_backward(p, config_, router_norm(), dexperts.router, saved.x2, saved.router_read, dread);
  saved.experts_read = saved.router_read = {};
}

at::Tensor DecoderLayer::backward_experts(const zero::UnitParameters& p, const at::Tensor& dy,
                                          const LayerCall& call, LayerSaved& saved) const {
  at::Tensor d = scaled_back(mlp_branch(), dy, call);
  if (config_.post_norms) {
    if (!saved.mlp.out.defined())
      branch_norm(p, mlp_branch(),
                  experts_->output(p, saved.norm2.y, saved.inner, saved.experts, call.dropout_key),
                  &saved.mlp);
    d = branch_norm_backward(p, mlp_branch(), d, std::exchange(saved.mlp, {}));
  }
  return experts_
      ->backward(p, d, {saved.norm2.y}, std::move(saved.inner), std::move(saved.experts),
                 call.balance, call.dropout_key)
      .h;
}

at::Tensor DecoderLayer::backward_inner(const zero::UnitParameters& p, const at::Tensor& dy,
                                        const LayerCall& call, LayerSaved& saved) const {
  at::Tensor dinner = std::move(saved.inner);
  activated_backward(
      p, branch_backward(p, mlp_branch(), dy, activated(p, dinner), call, std::move(saved.mlp)),
      dinner);
  return project_backward(p, gate_up_, dinner, saved.norm2.y, call.dropout_key);
}

void DecoderLayer::backward_mlp(const zero::UnitParameters& p, const at::Tensor& dy,
                                const at::Tensor& dread, const LayerCall& call,
                                LayerSaved& saved) const {
  if (config_.has_experts(call.layer) && config_.experts.beside_mlp) {
    backward_beside(p, dy, dread, call, saved);
    saved.x2.reset();
    saved.norm2 = {};
    return;
  }
  backward_input(p, dy, call, saved);
  const at::Tensor dh = config_.has_experts(call.layer) ? backward_experts(p, dy, call, saved)
                                                        : backward_inner(p, dy, call, saved);
  // If attention shares the norm, backward_attention() takes both gradients together.
  if (config_.shared_norm)
    dread.add_(dh);
  else
    backward_before(p, Role::Norm2, dh, saved.x2, saved.norm2, dread);
  saved.x2.reset();
  saved.norm2 = {};
}

}  // namespace dsj::models
