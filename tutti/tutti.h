#pragma once
// Everything: the core, and what needs LibTorch.
#include "tutti/core.h"
#include "tutti/data/sampler.h"
#include "tutti/parallel/ddp/data_parallel.h"
#include "tutti/tensor/collectives.h"
