#define TUTTI_ISA generic
#include "tutti/embedding/bags_impl.h"
