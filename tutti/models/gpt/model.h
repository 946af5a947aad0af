#pragma once
// The transformer and the groups that pretrain_gpt's options describe.
#include <memory>

#include "tutti/models/gpt/options.h"
#include "tutti/models/transformer/transformer.h"

namespace tutti::gpt {

// `options`: of for_world(). Every rank calls. Both throw Exception.
Parallel make_parallel(const Group& world, const Options& options);
std::shared_ptr<Transformer> make_model(const Parallel& parallel, const Options& options, at::Device device = at::kCPU);

}  // namespace tutti::gpt
