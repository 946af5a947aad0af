#define TUTTI_ISA generic
#include "tutti/base/kernels/elementwise_impl.h"
