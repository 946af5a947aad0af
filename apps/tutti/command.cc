// CLI11 2.1.2 answers mistakes with exit codes from 100 on and suggests nothing; here every mistake is a sentence, the
// nearest known option, and exit code 2.
#include "apps/tutti/command.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tutti/base/text.h"

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

Error unknown_option(const CLI::App& app, const std::string& given) {
  const std::string name = given.substr(0, given.find('='));
  const auto best = name.size() > 2 ? nearest(name, known_options(app)) : std::nullopt;
  return Error{.code = Code::kUsage,
               .detail = "unknown option " + name,
               .hint = best ? "did you mean " + *best + "?" : app.get_name() + " --help lists the options"};
}

}  // namespace

void tell(const std::string& command, const Error& error) {
  Error fact = error;
  fact.hint.clear();
  std::string text = to_string(fact);
  if (error.code == Code::kUsage || error.code == Code::kInvalidArgument) text.erase(0, text.find(": ") + 2);
  std::fprintf(stderr, "%s: %s\n", command.c_str(), text.c_str());
  if (!error.hint.empty()) std::fprintf(stderr, "hint: %s\n", error.hint.c_str());
}

std::optional<int> parse(CLI::App& app, std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  try {
    app.parse(arguments);
    const auto rest = app.remaining();
    if (!rest.empty() && rest[0].size() > 1 && rest[0][0] == '-' && rest[0] != "--") {
      tell(app.get_name(), unknown_option(app, rest[0]));
      return 2;
    }
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    std::string help = app.help();
    for (std::size_t at; (at = help.find("\n\n\n")) != std::string::npos;) help.erase(at, 1);
    std::fputs(help.c_str(), stdout);
    return 0;
  } catch (const CLI::ExtrasError&) {
    const auto rest = app.remaining();
    if (!rest.empty() && rest[0][0] == '-') {
      tell(app.get_name(), unknown_option(app, rest[0]));
    } else {
      tell(app.get_name(), Error{.code = Code::kUsage,
                                 .detail = "unexpected argument '" + (rest.empty() ? std::string() : rest[0]) + "'"});
    }
    return 2;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what(), option = what.substr(0, what.find(':'));
    tell(app.get_name(), Error{.code = Code::kUsage,
                               .detail = option + " needs a value",
                               .hint = app.get_name() + " --help explains the options"});
    return 2;
  } catch (const CLI::ParseError& error) {
    tell(app.get_name(),
         Error{.code = Code::kUsage, .detail = error.what(), .hint = app.get_name() + " --help explains the options"});
    return 2;
  }
}

}  // namespace tutti::cli
