#include "apps/options/dlrm_model_options.h"

#include <fmt/format.h>

namespace tutti::cli {
namespace {

using dlrm::WeightedPooling;

Setter sizes(std::vector<std::int64_t>& target) {
  return value([&target](const std::string& name, const std::string& text) -> Status {
    target = TUTTI_TRY(dlrm::parse_sizes(name, text));
    return {};
  });
}

}  // namespace

// dlrm_s_pytorch.py declares these with type=bool, by which every text but the empty one is true, "False" too.
Setter dlrm_boolean(bool& target) {
  return value([&target](const std::string& name, const std::string& text) -> Status {
    for (const char* yes : {"true", "True", "1"}) {
      if (text == yes) return target = true, Status();
    }
    for (const char* no : {"false", "False", "0"}) {
      if (text == no) return target = false, Status();
    }
    return usage(fmt::format("{} needs true or false (or 1 or 0), not '{}'", name, text),
                 "dlrm_s_pytorch.py takes any text for true, also \"False\"");
  });
}

OptionGroup dlrm_architecture_options(dlrm::Options& o) {
  return {"Architecture",
          {{"--arch-sparse-feature-size", "N", "2", "columns of an embedding table",
            whole(o.architecture.sparse_feature_size, 1)},
           {"--arch-embedding-size", "N-N-..", "4-3-2", "rows of each table (a dataset brings its own)",
            sizes(o.architecture.embedding_size)},
           {"--arch-mlp-bot", "N-N-..", "4-3-2", "bottom MLP, from the dense features to the columns",
            sizes(o.architecture.mlp_bottom)},
           {"--arch-mlp-top", "N-N-..", "4-2-1", "top MLP; the width of the interaction is put in front",
            sizes(o.architecture.mlp_top)},
           {"--arch-interaction-op", "OP", "dot", "dot: products of all pairs; cat: side by side",
            choice(o.architecture.interaction, {"dot", "cat"})},
           {"--weighted-pooling", "HOW", "", "weigh the rows of a bag: fixed (all by 1) or learned",
            choice_of<WeightedPooling>(o.architecture.weighted_pooling,
                                       {{"fixed", WeightedPooling::kFixed}, {"learned", WeightedPooling::kLearned}}),
            excludes("--qr-flag", kPlainTablesOnly) + excludes("--md-flag", kPlainTablesOnly)},
           {"--arch-interaction-itself", "", "", "dot: products of a vector with itself, too",
            flag(o.architecture.interaction_itself)}}};
}

OptionGroup dlrm_smaller_tables_options(dlrm::Options& o) {
  return {
      "Smaller tables",
      {{"--md-threshold", "N", "200", "mixed dimensions: tables with more rows are made narrower",
        whole(o.architecture.md_threshold, 0)},
       {"--md-temperature", "X", "0.3", "mixed dimensions: 0 leaves all alike", real(o.architecture.md_temperature, 0)},
       {"--qr-threshold", "N", "200", "quotient-remainder: tables with more rows are split",
        whole(o.architecture.qr_threshold, 0)},
       {"--qr-operation", "OP", "mult", "quotient-remainder: mult, add or concat",
        choice(o.architecture.qr_operation, {"mult", "add", "concat"})},
       {"--qr-collisions", "N", "4", "quotient-remainder: ids that share a quotient",
        whole(o.architecture.qr_collisions, 1)},
       {"--md-flag", "", "", "mixed dimensions: fewer columns for larger tables", flag(o.architecture.md)},
       {"--md-round-dims", "", "", "mixed dimensions: powers of two", flag(o.architecture.md_round_dims)},
       {"--qr-flag", "", "", "quotient-remainder: two small tables for a large one", flag(o.architecture.qr),
        excludes("--md-flag", "drop one of the two: each replaces the large tables")}}};
}

std::vector<Option> dlrm_lookup_options(dlrm::Options& o) {
  return {
      {"--num-indices-per-lookup", "N", "10", "random lookups of a bag, at most", whole(o.data.indices_per_lookup, 1)},
      {"--num-indices-per-lookup-fixed", "BOOL", "False", "draw the same number of lookups for every bag",
       dlrm_boolean(o.data.indices_per_lookup_fixed)}};
}

Option dlrm_optimizer_option(dlrm::Options& o) {
  return {"--optimizer", "NAME", "sgd", "sgd, rwsadagrad (one sum of squares a row) or adagrad",
          choice(o.training.optimizer, {"sgd", "rwsadagrad", "adagrad"})};
}

std::vector<Option> dlrm_exchange_options(dlrm::Options& o) {
  return {{"--wire", "FORM", "exact", "format of rows that are sent between hosts: exact, bf16 or int8",
           choice(o.placement.wire, {"exact", "bf16", "int8"})},
          {"--no-shared-tables", "", "", "exchange rows by messages on one host too, as between hosts",
           flag(o.placement.links_only)}};
}

}  // namespace tutti::cli
