#pragma once
// What the command lines of all programs share: parsing with messages for mistakes, and values with units and ranges.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/options/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace CLI {
class App;
}

namespace tutti::cli {

// Parses `arguments` into what was bound to `app`. An exit code if there is nothing left to do: 0 after --help,
// 2 after a mistake, which was then given to `reporter` with the nearest known option.
std::optional<int> parse(CLI::App& app, std::vector<std::string> arguments, const Reporter& reporter = report);

Error usage(std::string detail, std::string hint = {});
// A kUsage for a command without a required argument: "no program given. Usage: tutti run ...", with an example.
// `synopsis` begins with the command's name.
Error not_given(const std::string& what, const std::string& synopsis, const std::string& example);
// The value of an option, or a kUsage that says what it needs and what was given.
Result<std::int64_t> whole_number(const std::string& option, const std::string& text, std::int64_t least,
                                  std::int64_t most);
Result<double> real_number(const std::string& option, const std::string& text, double least, double most);
Result<Duration> duration(const std::string& option, const std::string& text);
// The index of `given` in `known`; else a kUsage with the nearest of them. `what`: "dtype", "--op".
Result<std::size_t> choose(const std::string& what, const std::string& given, const std::vector<std::string>& known);

}  // namespace tutti::cli
