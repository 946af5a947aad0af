#define TUTTI_ISA avx2
#include "tutti/comm/kernels/finite_impl.h"
#include "tutti/comm/kernels/reduce_impl.h"
