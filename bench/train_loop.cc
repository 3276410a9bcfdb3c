// The reference of scripts/bench_train.py: a plain libtorch training loop of a Qwen2-shaped model,
// with autograd, on the same weights and rows as `dsj run`.
//
//   bench_train_loop prepare DIR      writes DIR/model (25 M parameters) and DIR/data.json
//   bench_train_loop run DIR STEPS    prints one JSON line per step; several ranks by torchrun's
//                                     environment, gradients all-reduced over Gloo
//
// fp32, micro-batch 4, rows of 256 tokens, libtorch's fused AdamW, gradient norm clipped to 1.
#include <ATen/ATen.h>

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/comm/collectives.h"
#include "engine/weights/weight_source.h"
#include "tools/random.h"
#include "tools/random_model.h"

namespace {

using at::Tensor;
constexpr dsj::tools::ModelShape kShape = {.hidden = 384,
                                           .layers = 6,
                                           .heads = 6,
                                           .kv_heads = 6,
                                           .inner = 2048,
                                           .vocabulary = 8192,
                                           .positions = 512,
                                           .tied = false};
constexpr int64_t kRows = 256, kTokens = 256, kMicroBatch = 4;
constexpr double kRopeTheta = 10000.0, kEps = 1e-6;

template <typename T>
T must(dsj::Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "bench_train_loop: %s\n", result.error().to_string().c_str());
  std::exit(2);
}
void must(dsj::Status status) {
  if (status) return;
  std::fprintf(stderr, "bench_train_loop: %s\n", status.error().to_string().c_str());
  std::exit(2);
}

std::vector<int64_t> row(int64_t number) {
  dsj::tools::Random random(1000 + static_cast<uint64_t>(number));
  std::vector<int64_t> ids(kTokens);
  for (auto& id : ids) id = static_cast<int64_t>(random.below(kShape.vocabulary));
  return ids;
}

void prepare(const std::string& directory) {
  dsj::PosixFiles files;
  must(files.make_dirs(directory + "/model"));
  must(dsj::tools::write_random_model(files, directory + "/model", kShape, 1));
  nlohmann::json samples = nlohmann::json::array();
  for (int64_t i = 0; i < kRows; ++i) {
    const auto ids = row(i);
    samples.push_back({{"input_ids", ids}, {"labels", ids}});
  }
  must(files.write_atomically(directory + "/data.json",
                              nlohmann::json{{"samples", samples}}.dump()));
  std::printf("%lld parameters\n", static_cast<long long>(dsj::tools::parameter_count(kShape)));
}

/// The model as anyone would write it with libtorch.
class Model {
 public:
  explicit Model(const std::string& directory) {
    dsj::PosixFiles files;
    const auto source = must(dsj::weights::WeightSource::open(files, directory));
    for (const auto& info : source.tensors()) {
      Tensor tensor = at::empty(info.shape);
      must(source.read(info.name, 0, {tensor.data_ptr<float>(), size_t(info.elements)}));
      weights_[info.name] = tensor.requires_grad_();
      list.push_back(tensor);
    }
    const int64_t dim = kShape.hidden / kShape.heads;
    const Tensor inverse = at::pow(kRopeTheta, -at::arange(0, dim, 2, at::kFloat) / double(dim));
    const Tensor angles = at::outer(at::arange(kTokens, at::kFloat), inverse).repeat({1, 2});
    cos_ = angles.cos();
    sin_ = angles.sin();
  }

  Tensor loss(const Tensor& ids) const {
    Tensor x = at::embedding(at("model.embed_tokens.weight"), ids);
    for (int64_t i = 0; i < kShape.layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      x = x + attention(layer + "self_attn.", norm(layer + "input_layernorm", x));
      const Tensor h = norm(layer + "post_attention_layernorm", x);
      const Tensor gate = at::silu(at::linear(h, at(layer + "mlp.gate_proj.weight")));
      const Tensor up = at::linear(h, at(layer + "mlp.up_proj.weight"));
      x = x + at::linear(gate * up, at(layer + "mlp.down_proj.weight"));
    }
    const Tensor logits = at::linear(norm("model.norm", x), at("lm_head.weight"));
    return at::cross_entropy_loss(logits.narrow(1, 0, kTokens - 1).reshape({-1, kShape.vocabulary}),
                                  ids.narrow(1, 1, kTokens - 1).reshape({-1}));
  }

  std::vector<Tensor> list;

 private:
  const Tensor& at(const std::string& name) const { return weights_.at(name); }
  Tensor norm(const std::string& name, const Tensor& x) const {
    return x * at::rsqrt(x.pow(2).mean(-1, true) + kEps) * at(name + ".weight");
  }
  Tensor heads(const std::string& name, const Tensor& x) const {
    const Tensor y = at::linear(x, at(name + ".weight"), at(name + ".bias"));
    return y.view({x.size(0), x.size(1), -1, kShape.hidden / kShape.heads}).transpose(1, 2);
  }
  Tensor rotated(const Tensor& x) const {
    const auto halves = x.chunk(2, -1);
    return x * cos_ + at::cat({-halves[1], halves[0]}, -1) * sin_;
  }
  Tensor attention(const std::string& name, const Tensor& x) const {
    const Tensor y = at::scaled_dot_product_attention(
        rotated(heads(name + "q_proj", x)), rotated(heads(name + "k_proj", x)),
        heads(name + "v_proj", x), {}, 0.0, /*is_causal=*/true);
    return at::linear(y.transpose(1, 2).reshape(x.sizes()), at(name + "o_proj.weight"));
  }

  std::map<std::string, Tensor> weights_;
  Tensor cos_, sin_;
};

int environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

void run(const std::string& directory, int64_t steps) {
  const int rank = environment("RANK", 0), world = environment("WORLD_SIZE", 1);
  const auto ranks =
      must(dsj::comm::make_collectives({.rank = rank,
                                        .world = world,
                                        .master_port = environment("MASTER_PORT", 29500),
                                        .backend = world > 1 ? "gloo" : "auto"}));
  const Model model(directory + "/model");
  std::vector<Tensor> grads, m, v, counts;
  for (const Tensor& p : model.list) {
    m.push_back(at::zeros_like(p));
    v.push_back(at::zeros_like(p));
    counts.push_back(at::zeros({}));
  }
  for (int64_t step = 0; step < steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<int64_t> ids;
    for (int64_t j = 0; j < kMicroBatch; ++j) {
      const auto one = row(((step * world + rank) * kMicroBatch + j) % kRows);
      ids.insert(ids.end(), one.begin(), one.end());
    }
    const Tensor loss = model.loss(at::tensor(ids).view({kMicroBatch, kTokens}));
    loss.backward();
    grads.clear();
    std::vector<dsj::comm::WorkPtr> under_way;
    for (const Tensor& p : model.list) {
      grads.push_back(p.grad().contiguous());
      if (world > 1) {
        grads.back().div_(world);
        under_way.push_back(ranks->all_reduce(grads.back().view({-1}), dsj::comm::Op::Sum, {}));
      }
    }
    for (const auto& work : under_way) work->wait();
    double squares = 0;
    for (const Tensor& grad : grads) squares += grad.pow(2).sum().item<double>();
    const double scale = std::min(1.0, 1.0 / (std::sqrt(squares) + 1e-6));
    for (const Tensor& grad : grads) grad.mul_(scale);
    for (const Tensor& count : counts) count.add_(1);
    std::vector<Tensor> values;
    for (const Tensor& p : model.list) values.push_back(p.detach());
    at::_fused_adamw_(values, grads, m, v, {}, counts, 1e-3, 0.9, 0.999, 0.0, 1e-8, false, false);
    for (const Tensor& p : model.list) const_cast<Tensor&>(p).mutable_grad().reset();
    Tensor mean = loss.detach().clone().view({1}) / world;
    if (world > 1) ranks->all_reduce(mean, dsj::comm::Op::Sum, {})->wait();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    if (rank == 0) {
      const double tokens = static_cast<double>(kMicroBatch * kTokens * world);
      std::printf(
          "{\"step\":%lld,\"loss\":%.7f,\"tokens_per_second\":%.1f,\"host_rss_bytes\":%lld}\n",
          static_cast<long long>(step + 1), mean.item<double>(), tokens / time.count(),
          static_cast<long long>(usage.ru_maxrss) * 1024);
      std::fflush(stdout);
    }
  }
  ranks->shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "prepare" && argc == 3) return prepare(argv[2]), 0;
  if (verb == "run" && argc == 4) return run(argv[2], std::atoll(argv[3])), 0;
  std::fprintf(stderr, "usage: bench_train_loop prepare DIR | run DIR STEPS\n");
  return 2;
}
