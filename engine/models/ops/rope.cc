// The rotary table of each scaling, as transformers' modeling_rope_utils computes it: inverse
// frequencies and angles in fp32.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/models/ops/ops.h"

namespace dsj::models::ops {
namespace {

using layout::RopeConfig;
using Scaling = RopeConfig::Scaling;

/// The base grows with the part of the sequence beyond the original length.
double dynamic_theta(const RopeConfig& c, int64_t dim, int64_t length) {
  const auto original = static_cast<double>(c.original_max);
  const double seq = std::max(static_cast<double>(length), original);
  const double exponent = static_cast<double>(dim) / static_cast<double>(dim - 2);
  return c.theta * std::pow(c.factor * seq / original - (c.factor - 1), exponent);
}

/// Divides low frequencies by the factor, keeps high ones, and ramps between.
at::Tensor llama3(const RopeConfig& c, const at::Tensor& inverse) {
  const auto original = static_cast<double>(c.original_max);
  const at::Tensor wavelength = inverse.reciprocal() * (2 * std::numbers::pi);
  const at::Tensor low = inverse / c.factor;
  const at::Tensor ramp = (wavelength.reciprocal() * original - c.low_freq_factor) /
                          (c.high_freq_factor - c.low_freq_factor);
  const at::Tensor middle = low * (1 - ramp) + inverse * ramp;
  return at::where(wavelength > original / c.low_freq_factor, low,
                   at::where(wavelength < original / c.high_freq_factor, inverse, middle));
}

/// Interpolates low frequencies, keeps high ones, and ramps between
/// (https://arxiv.org/abs/2309.00071).
at::Tensor yarn(const RopeConfig& c, int64_t dim, const at::Tensor& inverse) {
  const auto turns = [&](double rotations) {
    return static_cast<double>(dim) *
           std::log(static_cast<double>(c.original_max) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(c.theta));
  };
  double low = turns(c.beta_fast), high = turns(c.beta_slow);
  if (c.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  const at::Tensor ramp =
      at::arange(dim / 2, inverse.options()).sub_(low).div_(high - low).clamp_(0, 1);
  return inverse / c.factor * ramp + inverse * (1 - ramp);
}

/// The divisors for sequences of this length.
const std::vector<double>& divisors(const RopeConfig& c, int64_t length) {
  return length > c.original_max ? c.long_factor : c.short_factor;
}

}  // namespace

RopeTable rope_table(const RopeConfig& c, int64_t dim, int64_t length,
                     const at::TensorOptions& options) {
  const auto wide = options.dtype(at::kFloat);
  const double theta = c.scaling == Scaling::Dynamic ? dynamic_theta(c, dim, length) : c.theta;
  const at::Tensor exponent =
      at::arange(0, dim, 2, options.dtype(at::kLong)).to(at::kFloat).div_(dim);
  at::Tensor inverse = at::pow(theta, exponent).reciprocal_();
  if (c.scaling == Scaling::Linear || c.scaling == Scaling::Proportional) inverse.div_(c.factor);
  if (c.scaling == Scaling::Proportional)
    inverse.narrow(0, c.turning / 2, (dim - c.turning) / 2).zero_();
  if (c.scaling == Scaling::Llama3) inverse = llama3(c, inverse);
  if (c.scaling == Scaling::Yarn) inverse = yarn(c, dim, inverse);
  if (c.scaling == Scaling::LongRope)
    inverse = (at::tensor(divisors(c, length)).to(wide) * inverse.reciprocal()).reciprocal_();
  const at::Tensor angles = at::arange(length, wide).unsqueeze(1) * inverse.unsqueeze(0);
  const auto type = c10::typeMetaToScalarType(options.dtype());
  const auto rounded = [&](const at::Tensor& x) {
    return (c.attention_factor == 1 ? x : x * c.attention_factor).to(type).to(at::kFloat);
  };
  return {rounded(angles.cos()), rounded(angles.sin())};
}

const RopeTable& RopeTables::below(int64_t length) {
  int64_t scaled_for = 0;
  if (config_.scaling == Scaling::Dynamic) scaled_for = std::max(length, config_.original_max);
  if (config_.scaling == Scaling::LongRope) scaled_for = length > config_.original_max ? 1 : 0;
  if (table_.cos.defined() && table_.cos.size(0) >= length && scaled_for == scaled_for_)
    return table_;
  table_ = {};  // frees the old table before the new one is made
  table_ = rope_table(config_, dim_, length, options_);
  table_.in_pairs = in_pairs_;
  scaled_for_ = scaled_for;
  return table_;
}

namespace {

/// The number of rotated elements of a head, by kind of rope.
int64_t rotary_size(const layout::ModelConfig& model, bool local) {
  for (int64_t layer = 0; layer < model.num_layers; ++layer)
    if (model.rotates_locally(layer) == local) return model.of_layer(layer).rotary_size();
  return model.rotary_size();
}

}  // namespace

Ropes::Ropes(const layout::ModelConfig& model, const at::TensorOptions& options)
    : model_(model), all_(model.rope, rotary_size(model, false), options, model.rope_in_pairs) {
  if (model.local_rope)
    local_.emplace(*model.local_rope, rotary_size(model, true), options, model.rope_in_pairs);
}

const RopeTable* Ropes::of(int64_t layer, int64_t length) {
  if (!model_.rotates(layer)) return nullptr;
  return &(model_.rotates_locally(layer) ? *local_ : all_).below(length);
}

}  // namespace dsj::models::ops
