#include "tests/engine/simulated/traffic.h"

#include "engine/kernels/cuda/launchers.h"

namespace dsj::simulated {

using kernels::Rows;
using kernels::Stream;

namespace {

int64_t of(Rows rows) {
  return rows.data == nullptr ? 0 : rows.rows * rows.width * size_of(rows.type);
}
/// The first heads of each row.
int64_t of_heads(Rows x, int64_t heads, int64_t dim) {
  return x.rows * heads * dim * size_of(x.type);
}
/// fp32 values, one for each row.
int64_t of_each(Rows rows) {
  return 4 * rows.rows;
}

}  // namespace

void Traffic::rms_norm(Stream s, Rows x, Rows w, Rows y, float* rstd, float eps) {
  bytes_ += of(x) + of(w) + of(y) + of_each(x);
  rest().rms_norm(s, x, w, y, rstd, eps);
}
void Traffic::rms_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* rstd, Rows dx,
                                Rows dw) {
  bytes_ += of(dy) + of(x) + of(w) + of_each(x) + 2 * of(dx) + of(dw);
  rest().rms_norm_backward(s, dy, x, w, rstd, dx, dw);
}
void Traffic::layer_norm(Stream s, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd,
                         float eps) {
  bytes_ += of(x) + of(w) + of(b) + of(y) + 2 * of_each(x);
  rest().layer_norm(s, x, w, b, y, mean, rstd, eps);
}
void Traffic::layer_norm_backward(Stream s, Rows dy, Rows x, Rows w, const float* mean,
                                  const float* rstd, Rows dx, Rows dw, Rows db) {
  bytes_ += of(dy) + of(x) + of(w) + 2 * of_each(x) + 2 * of(dx) + of(dw) + of(db);
  rest().layer_norm_backward(s, dy, x, w, mean, rstd, dx, dw, db);
}
void Traffic::head_norm(Stream s, Rows x, Rows w, int64_t heads, float* rstd, float eps) {
  bytes_ += 2 * of_heads(x, heads, w.width) + of(w) + heads * of_each(x);
  rest().head_norm(s, x, w, heads, rstd, eps);
}
void Traffic::head_norm_backward(Stream s, Rows dy, Rows x, Rows w, int64_t heads,
                                 const float* rstd, Rows dw) {
  bytes_ += 3 * of_heads(x, heads, w.width) + of(w) + heads * of_each(x) + of(dw);
  rest().head_norm_backward(s, dy, x, w, heads, rstd, dw);
}
void Traffic::sum_rows(Stream s, Rows partial, Rows out, bool accumulate) {
  bytes_ += of(partial) + (accumulate ? 2 : 1) * of(out);
  rest().sum_rows(s, partial, out, accumulate);
}
void Traffic::rope(Stream s, Rows x, const float* cos, const float* sin, int64_t length,
                   const int64_t* positions, int64_t heads, int64_t dim, float sign) {
  bytes_ += 2 * of_heads(x, heads, dim) + 4 * length * dim + 8 * x.rows;  // two tables of dim / 2
  rest().rope(s, x, cos, sin, length, positions, heads, dim, sign);
}
void Traffic::swiglu(Stream s, Rows gate_up, Rows a) {
  bytes_ += of(gate_up) + of(a);
  rest().swiglu(s, gate_up, a);
}
void Traffic::swiglu_backward(Stream s, Rows da, Rows gate_up) {
  bytes_ += of(da) + 2 * of(gate_up);
  rest().swiglu_backward(s, da, gate_up);
}
void Traffic::gelu_new(Stream s, Rows x, Rows y) {
  bytes_ += of(x) + of(y);
  rest().gelu_new(s, x, y);
}
void Traffic::gelu_new_backward(Stream s, Rows dy, Rows x) {
  bytes_ += of(dy) + 2 * of(x);
  rest().gelu_new_backward(s, dy, x);
}
void Traffic::cross_entropy(Stream s, Rows logits, const int64_t* labels, float scale,
                            double* loss) {
  // A pass for peak and sum, one that writes; a label a row, and a loss that is written and added.
  bytes_ += 3 * of(logits) + (8 + 2 * 8) * logits.rows;
  rest().cross_entropy(s, logits, labels, scale, loss);
}
void Traffic::scatter_rows(Stream s, Rows x, const int64_t* index, Rows out) {
  // The order is written and read; as if each row went to a row of its own.
  bytes_ += of(x) + 2 * x.rows * out.width * size_of(out.type) + 2 * 8 * x.rows;
  rest().scatter_rows(s, x, index, out);
}
void Traffic::sum_of_squares(Stream s, Rows x, double* sum) {
  bytes_ += of(x) + 2 * 8 * kernels::cuda::square_blocks(x.width);
  rest().sum_of_squares(s, x, sum);
}
void Traffic::update(Stream s, const optim::Update& update, kernels::Spans spans) {
  for (const kernels::Span& span : spans) {
    int64_t element = 2 * 4 * (1 + span.state_count) + size_of(span.grad_type);
    if (span.low != nullptr) element += size_of(span.low_type);
    bytes_ += span.n * element;
  }
  rest().update(s, update, spans);
}

}  // namespace dsj::simulated
