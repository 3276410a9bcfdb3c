// The reference of scripts/bench_train.py: a plain libtorch training loop with autograd, on the same
// weights and rows as `dsj run`.
//
//   bench_train_loop prepare DIR ROWS                       writes DIR/model and DIR/data.json
//   bench_train_loop run DIR STEPS MICRO [--bf16] [--lora]  prints one JSON line per step; several ranks
//                                                           by torchrun's environment, gradients over Gloo
//
// ROWS: fixed, alpaca, vocabulary (train_loop/rows.h). MICRO: rows of a micro-batch. libtorch's fused AdamW
// on fp32 weights, gradient norm clipped to 1. --bf16: computes in bf16 on a copy of them. Tokens per second:
// of the rows, without padding.
#include <ATen/ATen.h>

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "bench/train_loop/model.h"
#include "bench/train_loop/rows.h"
#include "engine/comm/collectives.h"

namespace {

using namespace dsj::bench;
using at::Tensor;

template <typename T>
T must(dsj::Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "bench_train_loop: %s\n", result.error().to_string().c_str());
  std::exit(2);
}

int environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

/// AdamW on fp32 weights, which are the leaves themselves or what they are copies of.
class Optimizer {
 public:
  explicit Optimizer(const std::vector<Tensor>& leaves) {
    for (const Tensor& leaf : leaves) {
      leaves_.push_back(leaf.detach());
      wide_.push_back(leaf.detach().to(at::kFloat));  // the leaf itself in fp32
      m_.push_back(at::zeros_like(wide_.back()));
      v_.push_back(at::zeros_like(wide_.back()));
      counts_.push_back(at::zeros({}));
    }
  }
  void step(std::vector<Tensor> grads) {
    double squares = 0;
    for (Tensor& grad : grads) {
      grad = grad.to(at::kFloat);
      squares += grad.pow(2).sum().item<double>();
    }
    const double scale = std::min(1.0, 1.0 / (std::sqrt(squares) + 1e-6));
    for (const Tensor& grad : grads) grad.mul_(scale);
    for (const Tensor& count : counts_) count.add_(1);
    at::_fused_adamw_(wide_, grads, m_, v_, {}, counts_, 1e-3, 0.9, 0.999, 0.0, 1e-8, false, false);
    for (size_t i = 0; i < wide_.size(); ++i)
      if (!leaves_[i].is_same(wide_[i])) leaves_[i].copy_(wide_[i]);
  }

 private:
  std::vector<Tensor> leaves_, wide_, m_, v_, counts_;
};

void run(const std::string& directory, int64_t steps, int64_t micro_batch,
         const ModelOptions& options) {
  const int rank = environment("RANK", 0), world = environment("WORLD_SIZE", 1);
  const auto ranks =
      must(dsj::comm::make_collectives({.rank = rank,
                                        .world = world,
                                        .master_port = environment("MASTER_PORT", 29500),
                                        .backend = world > 1 ? "gloo" : "auto"}));
  const Model model = must(Model::open(directory + "/model", options));
  const std::vector<Row> rows = read_rows(directory + "/data.json");
  Optimizer optimizer(model.trained());
  for (int64_t step = 0; step < steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    const Padded batch = padded(rows, (step * world + rank) * micro_batch, micro_batch);
    const Tensor loss = model.loss(batch.ids, batch.labels);
    loss.backward();
    std::vector<Tensor> grads;
    std::vector<dsj::comm::WorkPtr> under_way;
    for (const Tensor& leaf : model.trained()) {
      grads.push_back(leaf.grad().contiguous());
      if (world > 1) {
        grads.back().div_(world);
        under_way.push_back(ranks->all_reduce(grads.back().view({-1}), dsj::comm::Op::Sum, {}));
      }
    }
    for (const auto& work : under_way) work->wait();
    const auto sent = ranks->counters().bytes();
    optimizer.step(std::move(grads));
    for (const Tensor& leaf : model.trained()) const_cast<Tensor&>(leaf).mutable_grad().reset();
    Tensor mean = loss.detach().clone().view({1}) / world;
    if (world > 1) ranks->all_reduce(mean, dsj::comm::Op::Sum, {})->wait();
    ranks->reset_counters();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    if (rank != 0) continue;
    int64_t tokens = 0;
    for (int r = 0; r < world; ++r)
      tokens += padded(rows, (step * world + r) * micro_batch, micro_batch).tokens;
    std::printf(
        "{\"step\":%lld,\"loss\":%.7f,\"tokens_per_second\":%.1f,\"host_rss_bytes\":%lld,"
        "\"wire_bytes\":%lld}\n",
        static_cast<long long>(step + 1), mean.item<double>(),
        static_cast<double>(tokens) / time.count(), static_cast<long long>(usage.ru_maxrss) * 1024,
        static_cast<long long>(sent));
    std::fflush(stdout);
  }
  ranks->shutdown();
}

int usage() {
  std::fprintf(stderr,
               "usage: bench_train_loop prepare DIR fixed|alpaca|vocabulary\n"
               "       bench_train_loop run DIR STEPS MICRO [--bf16] [--lora]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 3 && words[0] == "prepare") {
    std::printf("%lld parameters\n", static_cast<long long>(must(prepare(words[1], words[2]))));
    return 0;
  }
  if (words.size() < 4 || words[0] != "run") return usage();
  ModelOptions options;
  for (size_t i = 4; i < words.size(); ++i) {
    if (words[i] == "--bf16")
      options.bf16 = true;
    else if (words[i] == "--lora")
      options.lora = true;
    else
      return usage();
  }
  run(words[1], std::atoll(words[2].c_str()), std::atoll(words[3].c_str()), options);
  return 0;
}
