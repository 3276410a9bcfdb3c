// Muon's orthogonalisation: from a matrix U S V^T to about U V^T, by a quintic Newton-Schulz
// iteration whose singular values end near 1. Not collective.
#pragma once

#include <ATen/core/Tensor.h>

#include "job/dsconfig/optimizers.h"

namespace dsj::zero {

/// matrix [rows, columns] fp32, not changed; returns fp32 of its shape, times
/// sqrt(max(1, rows / columns)). X = matrix / (norm + 1e-7),
/// lying so that rows <= columns; each step X = a X + (b A + c A A) X with A = X X^T and
/// (a, b, c) = (3.4445, -4.775, 2.0315).
///
/// Standard  does just that in bf16. (K. Jordan, "Muon", 2024.)
/// Gram      the same polynomials of R = X X^T, which is smaller; X is multiplied twice only, after
///           step 2 and at the end. A square matrix goes the standard way. fp32 on a CPU, as
///           DeepSpeed without fp16 units; fp16 on a GPU. (T. Dao, "Gram Newton-Schulz", 2026.)
///
/// On a CPU each result of a 16-bit type is an fp32 one, rounded: no 16-bit units are needed.
at::Tensor orthogonalised(const at::Tensor& matrix, dsconfig::NewtonSchulz method, int steps);

}  // namespace dsj::zero
