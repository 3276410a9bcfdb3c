// Muon's orthogonalisation: from a matrix U S V^T to about U V^T, by a quintic Newton-Schulz
// iteration whose singular values end near 1. Not collective.
#pragma once

#include <ATen/core/Tensor.h>

#include "job/dsconfig/config/optimizers.h"

namespace dsj::zero {

/// Takes matrix [rows, columns] fp32, unchanged. Returns fp32 of its shape, times
/// sqrt(max(1, rows / columns)). X = matrix / (norm + 1e-7), transposed if rows > columns. A step:
/// X = a X + (b A + c A A) X with A = X X^T and (a, b, c) = (3.4445, -4.775, 2.0315).
///
/// Standard  does exactly this in bf16. (K. Jordan, "Muon", 2024.)
/// Gram      computes the same polynomials of the smaller R = X X^T and multiplies X only after
///           step 2 and at the end. Square matrices use Standard. fp32 on a CPU, as DeepSpeed
///           without fp16 units; fp16 on a GPU. (T. Dao, "Gram Newton-Schulz", 2026.)
///
/// On a CPU each result of a 16-bit type is an fp32 one, rounded: no 16-bit units are needed.
at::Tensor orthogonalised(const at::Tensor& matrix, dsconfig::NewtonSchulz method, int steps);

}  // namespace dsj::zero
