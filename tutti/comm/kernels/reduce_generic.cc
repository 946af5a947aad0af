#define TUTTI_ISA generic
#include "tutti/comm/kernels/finite_impl.h"
#include "tutti/comm/kernels/reduce_impl.h"
