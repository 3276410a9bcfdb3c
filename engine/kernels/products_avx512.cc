#define DSJ_PRODUCTS_ISA avx512
#include "engine/kernels/products_impl.h"
