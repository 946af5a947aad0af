#define TUTTI_ISA avx512
#include "tutti/base/kernels/elementwise_impl.h"
