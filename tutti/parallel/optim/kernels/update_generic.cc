#define TUTTI_ISA generic
#include "tutti/parallel/optim/kernels/update_impl.h"
