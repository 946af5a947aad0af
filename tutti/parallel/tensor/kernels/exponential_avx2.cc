#define TUTTI_ISA avx2
#include "tutti/parallel/tensor/kernels/exponential_impl.h"
