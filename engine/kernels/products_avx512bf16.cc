#define DSJ_PRODUCTS_ISA avx512bf16
#include "engine/kernels/products_impl.h"
