#pragma once
// Everything: the core, and what needs LibTorch, with LibTorch itself.
#include <torch/torch.h>

#include "tutti/core.h"
#include "tutti/data/batch_sampler.h"
#include "tutti/data/epoch_batches.h"
#include "tutti/data/loader.h"
#include "tutti/data/sampler.h"
#include "tutti/parallel/data/scattered_batches.h"
#include "tutti/parallel/ddp/data_parallel.h"
#include "tutti/parallel/embedding/sharded_embeddings.h"
#include "tutti/parallel/optim/sgd.h"
#include "tutti/parallel/optim/sharded_sgd.h"
#include "tutti/parallel/replicas/replica_check.h"
#include "tutti/planning/tables/plan_file.h"
#include "tutti/planning/tables/planner.h"
#include "tutti/tensor/autograd_collectives.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/checkpoint.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/seed.h"
