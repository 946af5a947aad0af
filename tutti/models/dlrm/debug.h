#pragma once
// What --debug-mode shows: the architecture, the data, and all parameters.
#include "tutti/models/dlrm/model.h"
#include "tutti/models/dlrm/printer.h"
#include "tutti/models/dlrm/sources.h"

namespace tutti::dlrm {

void print_data(const Printer& printer, ClickSource& source, std::int64_t batches, int precision);
// Collective: rows come from the ranks that have them.
void print_parameters(const Printer& printer, Model& model, int precision);

}  // namespace tutti::dlrm
