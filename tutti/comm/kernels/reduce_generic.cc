#define TUTTI_ISA generic
#include "tutti/comm/kernels/reduce_impl.h"
