#define TUTTI_ISA generic
#include "tutti/parallel/tensor/kernels/exponential_impl.h"
