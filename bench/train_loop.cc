// The reference of scripts/bench_train.py: a plain libtorch training loop of a Qwen2-shaped model,
// with autograd, on the same weights and rows as `dsj run`.
//
//   bench_train_loop prepare DIR ROWS      writes DIR/model (24 M parameters) and DIR/data.json
//   bench_train_loop run DIR STEPS MICRO   prints one JSON line per step; several ranks by
//                                          torchrun's environment, gradients over Gloo
//
// ROWS: "fixed", 256 tokens each; "alpaca", lengths as alpaca has them, no loss on the prompt.
// MICRO: rows of a micro-batch, padded to the longest as Hugging Face's collator does. fp32, libtorch's
// fused AdamW, gradient norm clipped to 1. Tokens per second: of the rows, without padding.
#include <ATen/ATen.h>

#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
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
constexpr int64_t kRows = 256, kTokens = 256;
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

struct Row {
  std::vector<int64_t> ids, labels;
};

/// Prompt and all tokens of a row like alpaca's: a prompt of 34 tokens and more, 49 in the mean, and
/// a log-normal response, 44 in the median.
std::pair<int64_t, int64_t> alpaca_lengths(dsj::tools::Random& random) {
  const auto prompt = 34 + static_cast<int64_t>(19 * std::abs(random.normal()));
  const auto response = 1 + static_cast<int64_t>(44 * std::exp(0.8 * random.normal()));
  return {prompt, std::min(prompt + response, kShape.positions)};
}

Row row(int64_t number, bool alpaca) {
  dsj::tools::Random random(1000 + static_cast<uint64_t>(number));
  const auto [masked, tokens] = alpaca ? alpaca_lengths(random) : std::pair{int64_t{0}, kTokens};
  Row row;
  for (int64_t i = 0; i < tokens; ++i) {
    row.ids.push_back(static_cast<int64_t>(random.below(kShape.vocabulary)));
    row.labels.push_back(i < masked ? -100 : row.ids.back());
  }
  return row;
}

void prepare(const std::string& directory, bool alpaca) {
  dsj::PosixFiles files;
  must(files.make_dirs(directory + "/model"));
  must(dsj::tools::write_random_model(files, directory + "/model", kShape, 1));
  nlohmann::json samples = nlohmann::json::array();
  for (int64_t i = 0; i < kRows; ++i) {
    const Row one = row(i, alpaca);
    samples.push_back({{"input_ids", one.ids}, {"labels", one.labels}});
  }
  must(files.write_atomically(directory + "/data.json",
                              nlohmann::json{{"samples", samples}}.dump()));
  std::printf("%lld parameters\n", static_cast<long long>(dsj::tools::parameter_count(kShape)));
}

/// Rows as one rectangle.
struct Padded {
  Tensor ids, labels;  ///< [rows, longest]; labels -100 where there is no loss
  int64_t tokens = 0;  ///< without padding
};

/// The micro-batch of a rank in a step.
Padded padded(const std::vector<Row>& rows, int64_t first, int64_t count) {
  Padded batch;
  size_t longest = 0;
  for (int64_t i = 0; i < count; ++i) {
    longest = std::max(longest, rows[(first + i) % kRows].ids.size());
    batch.tokens += std::ssize(rows[(first + i) % kRows].ids);
  }
  std::vector<int64_t> ids, labels;
  for (int64_t i = 0; i < count; ++i) {
    Row one = rows[(first + i) % kRows];
    one.ids.resize(longest, 0), one.labels.resize(longest, -100);
    ids.insert(ids.end(), one.ids.begin(), one.ids.end());
    labels.insert(labels.end(), one.labels.begin(), one.labels.end());
  }
  batch.ids = at::tensor(ids).view({count, -1});
  batch.labels = at::tensor(labels).view({count, -1});
  return batch;
}

std::vector<Row> read_rows(const std::string& path) {
  std::vector<Row> rows;
  const nlohmann::json data = nlohmann::json::parse(std::ifstream(path));
  for (const auto& sample : data["samples"])
    rows.push_back({sample["input_ids"], sample["labels"]});
  return rows;
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
    const Tensor angles =
        at::outer(at::arange(kShape.positions, at::kFloat), inverse).repeat({1, 2});
    cos_ = angles.cos();
    sin_ = angles.sin();
  }

  Tensor loss(const Tensor& ids, const Tensor& labels) const {
    const int64_t length = ids.size(1);
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
    return at::cross_entropy_loss(logits.narrow(1, 0, length - 1).reshape({-1, kShape.vocabulary}),
                                  labels.narrow(1, 1, length - 1).reshape({-1}));
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
    const int64_t length = x.size(2);
    return x * cos_.narrow(0, 0, length) +
           at::cat({-halves[1], halves[0]}, -1) * sin_.narrow(0, 0, length);
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

void run(const std::string& directory, int64_t steps, int64_t micro_batch) {
  const int rank = environment("RANK", 0), world = environment("WORLD_SIZE", 1);
  const auto ranks =
      must(dsj::comm::make_collectives({.rank = rank,
                                        .world = world,
                                        .master_port = environment("MASTER_PORT", 29500),
                                        .backend = world > 1 ? "gloo" : "auto"}));
  const Model model(directory + "/model");
  const std::vector<Row> rows = read_rows(directory + "/data.json");
  std::vector<Tensor> grads, m, v, counts;
  for (const Tensor& p : model.list) {
    m.push_back(at::zeros_like(p));
    v.push_back(at::zeros_like(p));
    counts.push_back(at::zeros({}));
  }
  for (int64_t step = 0; step < steps; ++step) {
    const auto start = std::chrono::steady_clock::now();
    const Padded batch = padded(rows, (step * world + rank) * micro_batch, micro_batch);
    const Tensor loss = model.loss(batch.ids, batch.labels);
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
      int64_t tokens = 0;
      for (int r = 0; r < world; ++r)
        tokens += padded(rows, (step * world + r) * micro_batch, micro_batch).tokens;
      std::printf(
          "{\"step\":%lld,\"loss\":%.7f,\"tokens_per_second\":%.1f,\"host_rss_bytes\":%lld}\n",
          static_cast<long long>(step + 1), mean.item<double>(),
          static_cast<double>(tokens) / time.count(),
          static_cast<long long>(usage.ru_maxrss) * 1024);
      std::fflush(stdout);
    }
  }
  ranks->shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  const std::string rows = argc == 4 ? argv[3] : "";
  if (verb == "prepare" && (rows == "fixed" || rows == "alpaca"))
    return prepare(argv[2], rows == "alpaca"), 0;
  if (verb == "run" && argc == 5) return run(argv[2], std::atoll(argv[3]), std::atoll(argv[4])), 0;
  std::fprintf(stderr, "usage: bench_train_loop prepare DIR fixed|alpaca | run DIR STEPS MICRO\n");
  return 2;
}
