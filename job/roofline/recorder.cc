#include "job/roofline/recorder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "job/layout/row_pieces.h"

namespace dsj::roofline {

int64_t Projection::width() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

Recorder::Recorder(const std::vector<layout::UnitSpec>& units, const layout::FlatPlan& plan,
                   int64_t element, int64_t rank)
    : units_(units), plan_(plan), element_(element), rank_(rank), gradients_(plan.flats.size()) {}

Ops Recorder::take() {
  return std::exchange(ops_, {});
}

bool Recorder::trained(int parameter) const {
  return !units_[unit_].parameters[parameter].frozen;
}

bool Recorder::accumulates(int parameter) {
  const auto [flat, slot] = plan_.places[unit_][parameter];
  Gradient& gradient = gradients_[flat];
  if (!gradient.there) {
    gradient = {true, std::vector<bool>(plan_.flats[flat].slots().size(), false)};
    for (const layout::Gap& gap : plan_.flats[flat].gaps()) zero(gap.numel);
  }
  const bool before = gradient.written[slot];
  gradient.written[slot] = true;
  return before;
}

void Recorder::forget(int flat) {
  gradients_[flat] = {};
}

bool Recorder::together(int first, int count) const {
  if (first < 0) return false;
  const auto& places = plan_.places[unit_];
  const auto& slots = plan_.flats[places[first].flat].slots();
  for (int i = 1; i < count; ++i) {
    const auto &before = places[first + i - 1], &place = places[first + i];
    if (place.flat != before.flat || place.slot != before.slot + 1) return false;
    if (slots[before.slot].offset + slots[before.slot].numel != slots[place.slot].offset)
      return false;
  }
  return true;
}

const layout::Adapter* Recorder::adapter(int weight) const {
  const auto& adapters = units_[unit_].adapters;
  const auto found = std::ranges::find(adapters, weight, &layout::Adapter::weight);
  return found == adapters.end() ? nullptr : &*found;
}

bool Recorder::has_adapters(const Projection& projection) const {
  for (size_t i = 0; i < projection.sizes.size(); ++i)
    if (adapter(projection.weight + static_cast<int>(i))) return true;
  return false;
}

// ---- products

void Recorder::product(int64_t n, int64_t i, int64_t o, int64_t more_elements) {
  add({Kind::Product, 2 * n * i * o, (n * i + i * o + n * o + more_elements) * element_, 1});
}

void Recorder::linear(int64_t n, int64_t i, int64_t o, bool bias) {
  product(n, i, o, bias ? o : 0);
}

void Recorder::grad_input(int64_t n, int64_t i, int64_t o, bool accumulate) {
  product(n, i, o, accumulate ? n * i : 0);
}

void Recorder::grad_weight(int64_t n, int64_t i, int64_t o, bool accumulate) {
  product(n, i, o, accumulate ? i * o : 0);
}

void Recorder::grad_bias(int64_t n, int64_t o, bool accumulate) {
  pass((n * o + o) * element_);
  if (accumulate) add_to(o);
}

void Recorder::begin_weight_sum(int64_t i, int64_t o, bool accumulate) {
  pass(i * o * (accumulate ? element_ + 4 : 4));  // convert to fp32, or zero
}

void Recorder::add_grad_weight(int64_t n, int64_t i, int64_t o) {
  add({Kind::Product, 2 * n * i * o, (n * i + n * o) * element_ + 2 * 4 * i * o, 1});
}

void Recorder::end_weight_sum(int64_t i, int64_t o) {
  pass(i * o * (4 + element_));  // round
}

// ---- projections

void Recorder::project(const Projection& projection, int64_t n) {
  const int count = static_cast<int>(projection.sizes.size());
  const bool bias = projection.bias >= 0;
  if (together(projection.weight, count) && (!bias || together(projection.bias, count))) {
    linear(n, projection.in, projection.width(), bias);
  } else {
    for (const int64_t size : projection.sizes) linear(n, projection.in, size, bias);
  }
  adapters_forward(projection, n);
}

void Recorder::project_add(const Projection& projection, int64_t n) {
  project(projection, n);
  add_to(n * projection.width());
}

void Recorder::project_backward(const Projection& projection, int64_t n) {
  const int count = static_cast<int>(projection.sizes.size());
  const bool trains = trained(projection.weight);
  if (together(projection.weight, count)) {
    if (trains) {
      const bool accumulate = accumulates(projection.weight);
      for (int i = 1; i < count; ++i) accumulates(projection.weight + i);
      grad_weight(n, projection.in, projection.width(), accumulate);
    }
    grad_input(n, projection.in, projection.width());
  } else {
    for (int i = 0; i < count; ++i) {
      if (trains)
        grad_weight(n, projection.in, projection.sizes[i], accumulates(projection.weight + i));
      grad_input(n, projection.in, projection.sizes[i], i > 0);
    }
  }
  if (projection.bias >= 0) bias_backward(projection, n);
  adapters_backward(projection, n);
}

void Recorder::bias_backward(const Projection& projection, int64_t n) {
  const int count = static_cast<int>(projection.sizes.size());
  if (!trained(projection.bias)) return;
  if (together(projection.bias, count)) {
    const bool accumulate = accumulates(projection.bias);
    for (int i = 1; i < count; ++i) accumulates(projection.bias + i);
    return grad_bias(n, projection.width(), accumulate);
  }
  for (int i = 0; i < count; ++i)
    grad_bias(n, projection.sizes[i], accumulates(projection.bias + i));
}

// ---- adapters

std::vector<Recorder::Part> Recorder::parts_of(const Projection& projection) const {
  std::vector<Part> parts;
  for (size_t i = 0; i < projection.sizes.size(); ++i)
    if (const auto* found = adapter(projection.weight + static_cast<int>(i)))
      parts.push_back({found, projection.sizes[i]});
  return parts;
}

bool Recorder::are_neighbours(const std::vector<Part>& parts) const {
  const int count = static_cast<int>(parts.size());
  for (int i = 0; i < count; ++i)
    if (parts[i].adapter->a != parts[0].adapter->a + i) return false;
  return together(parts[0].adapter->a, count);
}

void Recorder::adapters_forward(const Projection& projection, int64_t n) {
  const auto parts = parts_of(projection);
  if (parts.empty()) return;
  const int count = static_cast<int>(parts.size());
  const bool neighbours = are_neighbours(parts);
  if (neighbours) linear(n, projection.in, count * rank_);
  for (const auto& [one, size] : parts) {
    if (!neighbours) linear(n, projection.in, rank_);
    product(n, rank_, size, n * size);  // scaled and added
  }
}

void Recorder::adapters_backward(const Projection& projection, int64_t n) {
  const auto parts = parts_of(projection);
  if (parts.size() > 1 && are_neighbours(parts)) {
    const int64_t all = std::ssize(parts) * rank_;
    linear(n, projection.in, all);
    pass(2 * n * all * element_);  // scaled
    bool accumulate = false;
    for (const auto& [one, size] : parts) {
      grad_weight(n, rank_, size, accumulates(one->b));
      grad_input(n, rank_, size);
      accumulate = accumulates(one->a);
    }
    pass(2 * n * all * element_);
    grad_weight(n, projection.in, all, accumulate);
    grad_input(n, projection.in, all, true);
    return;
  }
  for (const auto& [one, size] : parts) {
    linear(n, projection.in, rank_);
    pass(2 * n * rank_ * element_);  // scaled
    grad_weight(n, rank_, size, accumulates(one->b));
    grad_input(n, rank_, size);
    pass(2 * n * rank_ * element_);
    grad_weight(n, projection.in, rank_, accumulates(one->a));
    grad_input(n, projection.in, rank_, true);
  }
}

}  // namespace dsj::roofline
