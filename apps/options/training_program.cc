#include "apps/options/training_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/tuning.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/runtime/process_hooks.h"

namespace tutti::cli {
namespace {

Status take_local_rank(const std::string& given) {
  if (given.empty() || given == "-1") return {};
  const auto rank = TUTTI_TRY(whole_number("--local-rank", given, 0, 1 << 20));
  const auto known = env("LOCAL_RANK");
  if (known && *known != std::to_string(rank))
    return usage("--local-rank is " + std::to_string(rank) + ", but LOCAL_RANK is " + *known, "drop the option");
  for (const char* size : {"LOCAL_WORLD_SIZE", "WORLD_SIZE"}) {
    const auto ranks = parse_int(env(size).value_or(""));
    if (ranks && rank >= *ranks)
      return usage("--local-rank is " + std::to_string(rank) + ", not below " + size + ", which is " +
                   std::to_string(*ranks));
  }
  ::setenv("LOCAL_RANK", given.c_str(), 1);
  return {};
}

void restart_with_settings(const std::vector<std::string>& arguments) {
  const auto who = rendezvous::identify({}, current_environment());
  if (!who.ok() || who->started_by == "tutti run") return;
  // Another launcher may have bound each rank to its cores.
  const auto missing =
      launch::missing_settings(env, launch::cpu_features(), usable_cores(), /*threads=*/who->world_size == 1);
  std::error_code unknown;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (missing.empty() || unknown) return;
  for (const launch::Setting& setting : missing) ::setenv(setting.name.c_str(), setting.value.c_str(), 1);
  std::vector<std::string> words = {program_invocation_name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::fflush(nullptr);
  ::execv(self.c_str(), pointers.data());  // fails if the file was deleted: the process continues as it is
}

int exit_code(const Error& error) {
  constexpr int kUsageError = 2;
  const bool usage = error.code == Code::kUsage || error.code == Code::kInvalidArgument ||
                     error.code == Code::kNotFound || error.code == Code::kMismatch || error.code == Code::kUnsupported;
  const bool is_missing = error.code == Code::kSystem && (error.errno_value == ENOENT || error.errno_value == ENOTDIR);
  if (launch::is_of_joining(error)) return launch::exit_code_of(error.code);
  return usage || is_missing ? kUsageError : 1;
}

void warn(const OptionParser& line) {
  const auto who = rendezvous::identify({}, current_environment());
  if (who.ok() && who->rank != 0) return;
  if (const auto names = line.aliases_given(); !names.empty())
    log::info(fmt::format("option names of other programs: {}", join(names, ", ")));
  for (const std::string& sentence : line.without_effect()) log::warn(sentence);
}

int run_training(const std::vector<std::string>& arguments, const std::string& local_rank,
                 const std::function<int()>& train) {
  restart_with_settings(arguments);
  launch::keep_freed_memory(env);  // each step frees and allocates the same temporaries
  try {
    take_local_rank(local_rank).or_throw();
    return train();
  } catch (const Exception& failure) {
    log::error(failure.what());
    runtime::leave_last_words(failure.what());
    return exit_code(failure.error());
  } catch (const std::exception& failure) {
    log::error(failure.what());
    runtime::leave_last_words(failure.what());
    return 1;
  }
}

}  // namespace

int run_training_program(int argc, char** argv, const ProgramHelp& help, OptionTable table,
                         const std::function<int(const OptionParser& line)>& train) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return with_checked_output(help.name, [&] {
    OptionParser line(help, std::move(table));
    if (const auto code = line.parse(arguments)) return *code;
    return run_training(arguments, line.local_rank(), [&] {
      warn(line);
      return train(line);
    });
  });
}

}  // namespace tutti::cli
