#pragma once
// The options of a DLRM's sizes, with the names of dlrm_s_pytorch.py: what train_dlrm and `tutti plan train` share.
#include <vector>

#include "apps/options/option.h"
#include "tutti/models/dlrm/options.h"

namespace tutti::cli {

inline constexpr const char* kPlainTablesOnly =
    "drop one of the two: with --qr-flag and --md-flag tables are not plain rows";

// The tables set `options`.
OptionGroup dlrm_architecture_options(dlrm::Options& options);
OptionGroup dlrm_smaller_tables_options(dlrm::Options& options);
// --num-indices-per-lookup and --num-indices-per-lookup-fixed.
std::vector<Option> dlrm_lookup_options(dlrm::Options& options);
Option dlrm_optimizer_option(dlrm::Options& options);
// --no-shared-tables and --wire.
std::vector<Option> dlrm_exchange_options(dlrm::Options& options);
// "true", "False", "1" or "0".
Setter dlrm_boolean(bool& target);

}  // namespace tutti::cli
