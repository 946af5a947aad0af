#pragma once
// The features of a Reducer, one file each.
#include <memory>

#include "tutti/parallel/data_parallel/reducer/reducer_state.h"

namespace tutti {

class GradientConsumer;

std::unique_ptr<ReducerFeature> consumer_feature();
GradientConsumer* consumer_of(const Reducer::State& core) TUTTI_REQUIRES(core.mutex);  // null: none is attached
std::unique_ptr<ReducerFeature> delayed_feature(Reducer::State& core) TUTTI_REQUIRES(core.mutex);
std::unique_ptr<ReducerFeature> hook_feature();
std::unique_ptr<ReducerFeature> join_feature();
std::unique_ptr<ReducerFeature> logical_feature(Reducer::State& core) TUTTI_REQUIRES(core.mutex);  // collective
std::unique_ptr<ReducerFeature> sparse_feature();
// The names of the parameters whose modules (torch::nn::Embedding, EmbeddingBag) were made with sparse(true).
std::vector<std::string> sparse_parameters_of(const std::shared_ptr<torch::nn::Module>& module);
std::unique_ptr<ReducerFeature> static_graph_feature(Reducer::State& core) TUTTI_REQUIRES(core.mutex);

}  // namespace tutti
