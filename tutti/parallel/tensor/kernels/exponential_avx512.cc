#define TUTTI_ISA avx512
#include "tutti/parallel/tensor/kernels/exponential_impl.h"
