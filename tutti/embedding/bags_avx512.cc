#define TUTTI_ISA avx512
#include "tutti/embedding/bags_impl.h"
