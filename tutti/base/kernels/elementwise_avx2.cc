#define TUTTI_ISA avx2
#include "tutti/base/kernels/elementwise_impl.h"
