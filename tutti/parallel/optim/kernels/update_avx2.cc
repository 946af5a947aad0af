#define TUTTI_ISA avx2
#include "tutti/parallel/optim/kernels/update_impl.h"
