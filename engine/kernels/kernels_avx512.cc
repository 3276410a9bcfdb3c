#define DSJ_KERNELS_ISA avx512
#include "engine/kernels/kernels_impl.h"
