#pragma once
// What the command lines of all programs share: parsing with sentences for mistakes, and numbers that mean something.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"

namespace CLI {
class App;
}

namespace tutti::cli {

// Tells an error as "command: sentence", with its hint on a line of its own.
void tell(const std::string& command, const Error& error);
using Teller = std::function<void(const std::string& command, const Error& error)>;

// Parses `arguments` into what was bound to `app`. An exit code if there is nothing left to do: 0 after --help and
// after --man alone (the manual page), 2 after a mistake, which has then been told, on standard error unless there is
// another teller (tell_once.h), together with the nearest known option.
std::optional<int> parse(CLI::App& app, std::vector<std::string> arguments, const Teller& teller = tell);

// --local-rank=N, which torch.distributed.launch gives each rank.
void add_local_rank(CLI::App& app, std::string& local_rank);
// Runs a training program and returns its exit code: that of `body`, or, if it throws, 2 for wrong usage, for a missing
// file and for ranks that differ, and 1 for all else. Reports the error.
// A program that `tutti run` did not start is executed once more, with the recommended_settings() that the user has not
// set: libraries read these variables when they are loaded. `arguments`: of this process, without its name.
// `local_rank`: the value of --local-rank, which must equal LOCAL_RANK if that is set, and becomes LOCAL_RANK for
// `body`; empty or -1: not given.
int run_training(const std::vector<std::string>& arguments, const std::string& local_rank,
                 const std::function<int()>& body);

Error usage(std::string detail, std::string hint = {});
// A kUsage for a command that was given too little: "no program given. Usage: tutti run ...", with an example.
// `synopsis` begins with the command's name.
Error not_given(const std::string& what, const std::string& synopsis, const std::string& example);
// The value of an option, or a kUsage that says what it needs and what was given.
Result<std::int64_t> whole_number(const std::string& option, const std::string& text, std::int64_t least,
                                  std::int64_t most);
Result<double> real_number(const std::string& option, const std::string& text, double least, double most);
Result<Duration> duration(const std::string& option, const std::string& text);
// The place of `given` in `known`; else a kUsage with the nearest of them. `what`: "dtype", "--op".
Result<std::size_t> choose(const std::string& what, const std::string& given, const std::vector<std::string>& known);

}  // namespace tutti::cli
