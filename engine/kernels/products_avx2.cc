#define DSJ_PRODUCTS_ISA avx2
#include "engine/kernels/products_impl.h"
