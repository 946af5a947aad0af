#define TUTTI_ISA avx2
#include "tutti/embedding/bags_impl.h"
