#define TUTTI_ISA avx512
#include "tutti/parallel/optim/kernels/update_impl.h"
