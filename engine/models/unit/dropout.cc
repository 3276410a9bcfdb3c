#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "engine/models/ops/ops.h"
#include "engine/models/unit/unit.h"

namespace dsj::models {

uint64_t dropout_key(uint64_t key, int64_t part) {
  // splitmix64's finaliser over the sum.
  uint64_t z = key + 0x9e3779b97f4a7c15ull * (static_cast<uint64_t>(part) + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

namespace ops {
namespace {

/// A separate generator, so that the process's default one does not advance.
at::Generator generator(at::Device device, uint64_t key) {
  at::Generator made = at::globalContext().defaultGenerator(device).clone();
  made.set_current_seed(key);
  return made;
}

}  // namespace

void dropout(at::Tensor x, const Dropout& dropout) {
  if (dropout.p <= 0) return;
  at::Tensor mask = at::empty(x.sizes(), x.options());
  mask.bernoulli_(1 - dropout.p, generator(x.device(), dropout.key));
  x.mul_(mask.div_(1 - dropout.p));
}

}  // namespace ops
}  // namespace dsj::models
