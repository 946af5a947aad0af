#pragma once
// What hands that know mpirun, srun, deepspeed or accelerate type by habit.
#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::cli {

// The first option before the program that another launcher has and `app` (tutti run) has not: a kUsage that says what
// it is called here, or why it is not needed. None: there is no such option.
std::optional<Error> option_of_another_launcher(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace tutti::cli
