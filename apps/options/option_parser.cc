#include "apps/options/option_parser.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "apps/options/help_text.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

constexpr int kUsageError = 2;
constexpr int kSeveral = 1 << 20;

CLI::Option* add(CLI::App& app, const char* name, Setter::Takes takes, const std::string& help) {
  if (takes == Setter::Takes::kNothing) return app.add_flag(std::string(name), help);
  auto* const option = app.add_option(
      name, [](const CLI::results_t&) { return true; }, help);
  if (takes == Setter::Takes::kWords) option->multi_option_policy(CLI::MultiOptionPolicy::Throw)->expected(1, kSeveral);
  return option;
}

// "a", "a and b", "a, b and c"
std::string listed(const std::vector<std::string>& words) {
  if (words.size() < 2) return join(words, "");
  return join({words.begin(), words.end() - 1}, ", ") + " and " + words.back();
}

struct Rejection {
  std::string name;
  const char *why, *instead;
};

}  // namespace

OptionParser::OptionParser(const ProgramHelp& help, OptionTable table)
    : help_(help), table_(std::move(table)), app_(std::make_unique<CLI::App>(help.about, help.name)) {
  declare();
}

OptionParser::~OptionParser() = default;

template <class Do>
void OptionParser::for_each(const Do& run) const {
  for (const OptionGroup& group : table_.groups)
    for (const Option& option : group.options) run(option);
}

void OptionParser::declare() {
  set_help(*app_, help_.footer);
  app_->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (const OptionGroup& group : table_.groups) {
    for (const Option& option : group.options) {
      const std::string help =
          *option.by_default ? fmt::format("{} ({})", option.help, option.by_default) : std::string(option.help);
      Declared& made = declared_[option.name];
      made.option = add(*app_, option.name, option.setter.takes, help)->group(group.title);
      if (option.setter.takes != Setter::Takes::kNothing) made.option->type_name(option.type);
      for (const char* alias : option.aliases)
        made.aliases.emplace_back(alias, add(*app_, alias, option.setter.takes, "")->group(""));
    }
  }
  for (const ForeignOption& option : table_.foreign) {
    auto*& made = foreign_[option.name];
    made = add(*app_, option.name, option.takes_value ? Setter::Takes::kWords : Setter::Takes::kNothing, "");
    made->group("");
    if (option.takes_value) made->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  if (!help_.has_local_rank) return;
  app_->add_option("--local-rank,--local_rank", local_rank_, "local rank, as torch.distributed.launch passes it")
      ->group("Ranks")
      ->type_name("N");
}

void OptionParser::collect() {
  texts_ = {};
  for_each([&](const Option& option) {
    const Declared& declared = declared_.at(option.name);
    const CLI::Option* given = declared.option;
    for (const auto& [name, alias] : declared.aliases)
      if (alias->count() > 0 && given->count() == 0) given = alias;
    std::vector<std::string> words;
    if (option.setter.takes != Setter::Takes::kNothing) words = given->results();
    if (option.setter.takes == Setter::Takes::kValue && words.size() > 1) words = {words.back()};
    texts_.add(option.name, given->count() > 0, std::move(words), option.by_default);
  });
}

std::optional<int> OptionParser::parse(const std::vector<std::string>& arguments, const Reporter& reporter) {
  const auto report_all = [&](const std::string& command, const Error& mistake) {
    collect();
    reporter(command, with_rejected(mistake));
  };
  if (const auto code = cli::parse(*app_, arguments, report_all)) return code;
  collect();
  const Status checked = check();
  if (checked.ok()) return std::nullopt;
  reporter(help_.name, checked.error());
  return kUsageError;
}

Status OptionParser::check() const {
  TUTTI_TRY(check_foreign());
  TUTTI_TRY(check_empty());
  TUTTI_TRY(check_pairs());
  TUTTI_TRY(check_needs());
  Status status;
  for_each([&](const Option& option) {
    if (status.ok()) status = option.setter.set(option.name, texts_.words(option.name), texts_.is_given(option.name));
  });
  TUTTI_TRY(std::move(status));
  for (const auto& check : table_.checks) TUTTI_TRY(check(texts_));
  return {};
}

Status OptionParser::check_foreign() const {
  std::vector<Rejection> rejected;
  for (const ForeignOption& option : table_.foreign) {
    const CLI::Option& given = *foreign_.at(option.name);
    if (!*option.instead || given.count() == 0) continue;
    if (!option.accepted) {
      rejected.push_back({option.name, option.why, option.instead});
    } else if (given.results().back() != option.accepted) {
      rejected.push_back({std::string(option.name) + " " + given.results().back(), option.why, option.instead});
    }
  }
  for_each([&](const Option& option) {
    for (const Rule& rule : option.rules)
      if (rule.kind == Rule::Kind::kRejects && rule.condition.holds(texts_))
        rejected.push_back({rule.condition.shown(), rule.why, rule.hint});
  });
  if (rejected.empty()) return {};
  if (rejected.size() == 1)
    return usage(fmt::format("{} is not supported: {}", rejected[0].name, rejected[0].why), rejected[0].instead);
  std::string all = fmt::format("{} options are not supported:", rejected.size());
  for (const auto& [name, why, instead] : rejected) all += fmt::format("\n  {}: {} (hint: {})", name, why, instead);
  return usage(all);
}

Error OptionParser::with_rejected(const Error& mistake) const {
  const Status rejected = check_foreign();
  if (rejected.ok()) return mistake;
  const auto text = [](const Error& error) {
    return error.detail + (error.hint.empty() ? "" : " (hint: " + error.hint + ")");
  };
  return usage(text(mistake) + "\n" + text(rejected.error()));
}

// --save "$FILE", and FILE is not set: this does not mean the same as no --save.
Status OptionParser::check_empty() const {
  for (const CLI::Option* const option : std::as_const(*app_).get_options())
    for (const std::string& value : option->results())
      if (value.empty() && option->get_items_expected_max() > 0)
        return usage(option->get_name() + ": an empty value (is a variable that it comes from not set?)",
                     "give it a value, or drop the option");
  return {};
}

std::vector<ExcludedPair> OptionParser::pairs() const {
  std::vector<ExcludedPair> pairs;
  for_each([&](const Option& option) {
    for (const Rule& rule : option.rules)
      if (rule.kind == Rule::Kind::kExcludes)
        pairs.push_back({rule.own ? rule.own->text : option.name, rule.condition.text, rule.hint});
  });
  return pairs;
}

Status OptionParser::check_pairs() const {
  Status status;
  for_each([&](const Option& option) {
    for (const auto& [name, alias] : declared_.at(option.name).aliases)
      if (status.ok() && alias->count() > 0 && declared_.at(option.name).option->count() > 0)
        status = usage(fmt::format("{} and {} were both given", option.name, name),
                       "drop one of the two: they are one option");
    for (const Rule& rule : option.rules) {
      if (!status.ok() || rule.kind != Rule::Kind::kExcludes) continue;
      const bool counts = rule.own ? rule.own->holds(texts_) : texts_.is_active(option.name);
      if (counts && rule.condition.holds(texts_))
        status = usage(fmt::format("{} and {} were both given", rule.own ? rule.own->shown() : option.name,
                                   rule.condition.shown()),
                       rule.hint);
    }
  });
  return status;
}

Status OptionParser::check_needs() const {
  std::vector<std::string> names;  // all with the same need
  const Rule* unmet = nullptr;
  for_each([&](const Option& option) {
    for (const Rule& rule : option.rules) {
      if (rule.kind != Rule::Kind::kNeeds || !texts_.is_active(option.name) || rule.condition.holds(texts_)) continue;
      if (!unmet) unmet = &rule;
      if (std::string_view(unmet->condition.text) == rule.condition.text && std::string_view(unmet->why) == rule.why)
        names.push_back(option.name);
    }
  });
  if (!unmet) return {};
  std::string why = unmet->condition.value().empty() ? ", which is not given" : "";
  if (*unmet->why) why = std::string(": ") + unmet->why;
  return usage(
      fmt::format("{} {} for {}{}", listed(names), names.size() == 1 ? "is" : "are", unmet->condition.shown(), why),
      unmet->hint);
}

std::vector<std::string> OptionParser::without_effect() const {
  std::vector<std::string> sentences;
  for_each([&](const Option& option) {
    for (const Rule& rule : option.rules)
      if (rule.kind == Rule::Kind::kNoEffect && texts_.is_given(option.name) && !rule.condition.holds(texts_))
        sentences.push_back(fmt::format("{} has no effect {}", option.name,
                                        *rule.why ? rule.why : "without " + rule.condition.shown()));
  });
  for (const ForeignOption& option : table_.foreign)
    if (!*option.instead && foreign_.at(option.name)->count() > 0)
      sentences.push_back(fmt::format("{} has no effect: {}", option.name, option.why));
  return sentences;
}

std::vector<std::string> OptionParser::aliases_given() const {
  std::vector<std::string> sentences;
  for_each([&](const Option& option) {
    for (const auto& [name, alias] : declared_.at(option.name).aliases)
      if (alias->count() > 0) sentences.push_back(fmt::format("{} is {}", name, option.name));
  });
  return sentences;
}

std::vector<std::pair<std::string, std::string>> OptionParser::compared(
    std::initializer_list<std::string_view> of_a_host) const {
  std::vector<std::pair<std::string, std::string>> texts;
  for_each([&](const Option& option) {
    const auto& words = texts_.words(option.name);
    const bool has_text = std::find(of_a_host.begin(), of_a_host.end(), option.name) == of_a_host.end();
    texts.emplace_back(option.name, !words.empty() && has_text                       ? join(words, " ")
                                    : !words.empty() || texts_.is_given(option.name) ? "given"
                                                                                     : "not given");
  });
  return texts;
}

}  // namespace tutti::cli
