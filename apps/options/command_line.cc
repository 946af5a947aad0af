// CLI11 2.1.2 answers mistakes with exit codes from 100 on and suggests nothing; here every mistake is a sentence, the
// nearest known option, and exit code 2.
#include "apps/options/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <limits>

#include "tutti/base/text.h"
#include "tutti/version.h"

namespace tutti::cli {
namespace {

std::vector<std::string> known_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// The long options in whose name the word given stands whole, as --max-restarts is for --restarts; where they are many
// the word says nothing.
std::vector<std::string> options_with(const std::string& name, const std::vector<std::string>& known) {
  constexpr std::size_t kShortestWord = 4, kMost = 2;
  const std::string word = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::vector<std::string> found;
  for (const std::string& option : known) {
    const bool alias = option.find('_') != std::string::npos;  // torchrun's spelling of the same
    if (word.size() >= kShortestWord && !alias && option.find("-" + word) != std::string::npos) found.push_back(option);
  }
  if (found.size() > kMost) found.clear();
  return found;
}

constexpr std::string_view kUnknown = "unknown option ";

Error unknown_option(const CLI::App& app, const std::string& given) {
  const std::string name = given.substr(0, given.find('='));
  if (const auto found = options_with(name, known_options(app)); !found.empty())
    return Error{
        .code = Code::kUsage, .detail = std::string(kUnknown) + name, .hint = did_you_mean(join(found, " or "))};
  // -rank is nearer to --rank than to -r; one letter is near to nothing.
  const bool one_dash = name.size() > 2 && name[1] != '-';
  const auto best = name.size() > 2 ? nearest(one_dash ? "-" + name : name, known_options(app)) : std::nullopt;
  return Error{.code = Code::kUsage,
               .detail = std::string(kUnknown) + name,
               .hint = did_you_mean(best, app.get_name() + " --help lists the options")};
}

// Not a negative number, which is the value of some option.
bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word != "--" && !parse_double(word);
}

// All of them, each with what it may have been: a script has several. Without one, the first word.
Error unknown_options(const CLI::App& app, const std::vector<std::string>& rest) {
  std::vector<Error> errors;
  for (const std::string& word : rest)
    if (is_option(word)) errors.push_back(unknown_option(app, word));
  if (errors.empty()) return Error{.code = Code::kUsage, .detail = "unexpected argument '" + rest[0] + "'"};
  if (errors.size() == 1) return errors[0];
  std::string all = "unknown options:";
  for (const Error& error : errors)
    all += "\n  " + error.detail.substr(kUnknown.size()) + " (hint: " + error.hint + ")";
  return Error{.code = Code::kUsage, .detail = all};
}

// "--log-dir=$DIR", and DIR is not set: CLI11 then takes the next word for the value, which may be the program.
std::optional<Error> empty_value(const CLI::App& app, const std::vector<std::string>& words) {
  const auto takes_a_value = [&](const std::string& name) {
    const CLI::Option* const option = name.starts_with("-") ? app.get_option_no_throw(name) : nullptr;
    return option && option->get_items_expected_max() > 0;
  };
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--") || !words[i].ends_with("=")) continue;
    const std::string name = words[i].substr(0, words[i].size() - 1);
    if (takes_a_value(name) && (i == 0 || !takes_a_value(words[i - 1])))
      return Error{.code = Code::kUsage,
                   .detail = name + ": an empty value (is a variable that it comes from not set?)",
                   .hint = app.get_name() + " --help explains the options"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<int> parse(CLI::App& app, std::vector<std::string> arguments, const Reporter& reporter) {
  if (arguments == std::vector<std::string>{"--version"}) {
    std::puts("tutti " TUTTI_VERSION);
    return 0;
  }
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // CLI11 takes them from the back
  try {
    app.parse(reversed);
    const auto rest = app.remaining();
    arguments.resize(arguments.size() - std::min(arguments.size(), rest.size()));
    if (const auto error = empty_value(app, arguments)) {
      reporter(app.get_name(), *error);
      return 2;
    }
    if (!rest.empty() && rest[0].size() > 1 && rest[0][0] == '-' && rest[0] != "--") {
      reporter(app.get_name(), unknown_option(app, rest[0]));
      return 2;
    }
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ExtrasError&) {
    const auto rest = app.remaining();
    reporter(app.get_name(), rest.empty() ? usage("unexpected argument") : unknown_options(app, rest));
    return 2;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what(), option = what.substr(0, what.find(':'));
    reporter(app.get_name(), Error{.code = Code::kUsage,
                                   .detail = option + " needs a value",
                                   .hint = app.get_name() + " --help explains the options"});
    return 2;
  } catch (const CLI::ParseError& error) {
    reporter(
        app.get_name(),
        Error{.code = Code::kUsage, .detail = error.what(), .hint = app.get_name() + " --help explains the options"});
    return 2;
  }
}

Error usage(std::string detail, std::string hint) {
  return Error{.code = Code::kUsage, .detail = std::move(detail), .hint = std::move(hint)};
}

Error not_given(const std::string& what, const std::string& synopsis, const std::string& example) {
  std::vector<std::string> command;
  for (const std::string& word : split(synopsis, ' ')) {
    if (word.empty() || std::islower(static_cast<unsigned char>(word[0])) == 0) break;
    command.push_back(word);
  }
  return usage("no " + what + " given. Usage: " + synopsis,
               "for example: " + example + "; " + join(command, " ") + " --help explains the options");
}

Result<std::int64_t> whole_number(const std::string& option, const std::string& text, std::int64_t least,
                                  std::int64_t most) {
  const auto value = parse_int(text);
  if (value && *value >= least && *value <= most) return *value;
  const bool open = most == std::numeric_limits<std::int64_t>::max();
  return usage(option + " needs a number from " + std::to_string(least) +
               (open ? " up" : " to " + std::to_string(most)) + ", not '" + text + "'");
}

Result<double> real_number(const std::string& option, const std::string& text, double least, double most) {
  constexpr double kAny = std::numeric_limits<double>::max();
  const auto value = parse_double(text);
  if (value && std::isfinite(*value) && *value >= least && *value <= most) return *value;
  const auto bound = [](double limit) { return std::to_string(std::int64_t(limit)); };  // all of ours are whole
  std::string range;
  if (least > -kAny) range = " from " + bound(least) + (most < kAny ? " to " + bound(most) : " up");
  return usage(option + " needs a number" + range + ", not '" + text + "'");
}

Result<Duration> duration(const std::string& option, const std::string& text) {
  const auto seconds = parse_seconds(text);
  if (!seconds || *seconds < 0 || *seconds > 1e9)
    return usage(option + " needs a duration such as 30s or 5min, not '" + text + "'");
  return from_seconds(*seconds);
}

Result<std::size_t> choose(const std::string& what, const std::string& given, const std::vector<std::string>& known) {
  const auto found = std::find(known.begin(), known.end(), given);
  if (found != known.end()) return std::size_t(found - known.begin());
  return usage("there is no " + what + " '" + given + "'",
               did_you_mean(nearest(given, known), "known are " + join(known, ", ")));
}

}  // namespace tutti::cli
