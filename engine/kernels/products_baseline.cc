#define DSJ_PRODUCTS_ISA baseline
#include "engine/kernels/products_impl.h"
