#define DSJ_KERNELS_ISA baseline
#include "engine/kernels/kernels_impl.h"
