#include "tutti/parallel/data_parallel/option_pairs.h"

namespace tutti {
namespace {

using Use = DataParallelUse;

constexpr NamedOption<Use> kDataParallelOptions[] = {
    {"a hook", [](const Use& use) { return use.options.hook != nullptr; }},
    {"gradient_as_bucket_view", [](const Use& use) { return use.options.gradient_as_bucket_view; }},
    {"find_unused_parameters", [](const Use& use) { return use.options.find_unused_parameters; }},
    {"static_graph", [](const Use& use) { return use.options.static_graph; }},
    {"delayed parameters", [](const Use& use) { return !use.options.delay_all_reduce_named_params.empty(); }},
    {"sparse gradients", [](const Use& use) { return use.sparse_gradients; }},
    {"logical_ranks", [](const Use& use) { return use.options.logical_ranks != 0; }},
    {"broadcast_buffers = false", [](const Use& use) { return !use.options.broadcast_buffers; }},
    {"a sharded optimizer", [](const Use& use) { return use.sharded_optimizer; }},
    {"a LossScaler", [](const Use& use) { return use.loss_scaler; }},
    {"no_sync()", [](const Use& use) { return use.no_sync; }},
    {"take_gradients()", [](const Use& use) { return use.take_gradients; }},
    {"join_uneven()", [](const Use& use) { return use.join_uneven; }},
};

constexpr std::string_view kOrderOfItsOwn =
    "drop one of the two: logical_ranks adds gradients in the order of the logical ranks";
constexpr std::string_view kAveragesItself = "drop one of the two: a sharded optimizer averages the gradients";

constexpr ExcludedPair kDataParallelPairs[] = {
    {"a hook", "gradient_as_bucket_view",
     "drop gradient_as_bucket_view: a hook may return averages in memory outside the bucket"},
    {"find_unused_parameters", "static_graph",
     "drop find_unused_parameters: static_graph detects unused parameters in the first step"},
    {"logical_ranks", "a hook", kOrderOfItsOwn},
    {"logical_ranks", "gradient_as_bucket_view", kOrderOfItsOwn},
    {"logical_ranks", "static_graph", kOrderOfItsOwn},
    {"logical_ranks", "delayed parameters", kOrderOfItsOwn},
    {"logical_ranks", "sparse gradients", kOrderOfItsOwn},
    {"logical_ranks", "broadcast_buffers = false", kOrderOfItsOwn},
    {"logical_ranks", "no_sync()", kOrderOfItsOwn},
    {"logical_ranks", "take_gradients()", kOrderOfItsOwn},
    {"logical_ranks", "join_uneven()", kOrderOfItsOwn},
    {"take_gradients()", "join_uneven()",
     "drop one of the two: a forward() without synchronisation does not announce that this rank has data"},
    {"a sharded optimizer", "a hook", kAveragesItself},
    {"a sharded optimizer", "delayed parameters", kAveragesItself},
    {"a sharded optimizer", "sparse gradients", kAveragesItself},
    {"a LossScaler", "delayed parameters",
     "drop one of the two: delayed gradients accumulate over steps, and the loss scale changes between steps"},
};

}  // namespace

std::span<const NamedOption<DataParallelUse>> data_parallel_options() { return kDataParallelOptions; }
std::span<const ExcludedPair> data_parallel_pairs() { return kDataParallelPairs; }

}  // namespace tutti
