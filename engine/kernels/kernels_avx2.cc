#define DSJ_KERNELS_ISA avx2
#include "engine/kernels/kernels_impl.h"
