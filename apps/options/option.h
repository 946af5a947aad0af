#pragma once
// A training program's options are one table. A row has the name, the help, the default as text, what its text sets,
// and how the option relates to other options:
//
//   struct Command { std::string optimizer; double lr; bool nesterov; } command;
//   OptionTable table{.groups = {{"Optimizer",
//       {{"--optimizer", "NAME", "sgd", "sgd or adam", choice(command.optimizer, {"sgd", "adam"})},
//        {"--lr", "X", "0.1", "learning rate", real(command.lr, 0)},
//        {"--nesterov", "", "", "use Nesterov's momentum", flag(command.nesterov), needs("--optimizer sgd")}}}}};
//
// option_parser.h parses a command line by such a table. A table refers to what it sets, which has to outlive it.
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/options/command_line.h"
#include "tutti/base/error.h"

namespace tutti::cli {

inline constexpr double kAnyReal = std::numeric_limits<double>::max();
inline constexpr std::int64_t kMostWhole = std::int64_t(1) << 40;

// The texts of all options of a command line, by name ("--lr").
class OptionTexts {
 public:
  // On the command line, whatever its value.
  bool is_given(const std::string& name) const { return texts_.at(name).is_given; }
  // Given, with another value than the default.
  bool is_active(const std::string& name) const;
  // Given or the default; empty: neither.
  const std::string& value(const std::string& name) const;
  const std::vector<std::string>& words(const std::string& name) const { return texts_.at(name).words; }
  bool has(const std::string& name) const { return !texts_.at(name).words.empty() || is_flag_given(name); }
  // Whether the value is `text`, or the same number.
  bool is(const std::string& name, const std::string& text) const;
  double number(const std::string& name) const;  // 0: none

  // For option_parser.cc. `words`: of a flag none.
  void add(const std::string& name, bool is_given, std::vector<std::string> words, std::string by_default);

 private:
  struct Text {
    bool is_given = false;
    std::vector<std::string> words;
    std::string by_default;
  };
  bool is_flag_given(const std::string& name) const;

  std::map<std::string, Text> texts_;
};

// What a command line says, as messages print it: "--save-dir" holds if that option is active, "--optimizer adam" if it
// has that value. Where `test` is given, it decides. Messages omit what is in brackets: "--resume (a path)".
struct Condition {
  Condition(const char* text, bool (*test)(const OptionTexts&) = nullptr) : text(text), test(test) {}
  bool holds(const OptionTexts& texts) const;
  std::string shown() const;   // without brackets
  std::string option() const;  // "--optimizer"
  std::string value() const;   // "adam"; may be empty

  const char* text;
  bool (*test)(const OptionTexts&);
};

// How an option relates to others. excludes() and needs() are mistakes of the user, no_effect() is a warning.
struct Rule {
  enum class Kind { kExcludes, kNeeds, kNoEffect, kRejects };
  Kind kind;
  std::optional<Condition> own;  // when the rule counts; none: whenever the option is active (kNoEffect: given)
  Condition condition;           // kNoEffect: when the option has an effect
  const char* why = "";
  const char* hint = "";
};

using Rules = std::vector<Rule>;
Rules operator+(Rules one, const Rules& other);

// "--fp16 and --bf16 were both given", and the hint.
Rules excludes(Condition other, const char* hint);
Rules excludes(Condition own, Condition other, const char* hint);
// "--nesterov is for --optimizer sgd"; with `why`: "--keep-every is for --keep: <why>".
Rules needs(Condition condition, const char* why = "", const char* hint = "");
// "--top-k has no effect without --generate": `why` is "without --generate". `effect`: when it has one.
Rules no_effect(const char* why, Condition effect);
// The option has no effect unless `condition` holds.
Rules only_with(Condition condition);
// A value that the original program has and this program does not: "--dist-backend nccl is not supported: <why>".
Rules rejects(Condition own, const char* why, const char* hint);

// What the text of an option does.
struct Setter {
  enum class Takes { kNothing, kValue, kWords };
  Takes takes = Takes::kValue;
  // `words`: the one value, or several. Called if the option has a text, given or by default; of a flag always.
  std::function<Status(const std::string& name, const std::vector<std::string>& words, bool is_given)> set;
};

struct Option {
  const char* name;
  const char* type;  // in the help: "N", "DIR"
  const char* by_default;
  const char* help;
  Setter setter;
  Rules rules = {};
  std::vector<const char*> aliases = {};  // other programs' names of the same option
};

struct OptionGroup {
  const char* title;
  std::vector<Option> options;
};

// An option of the original program that this program does not have. It is not in the help.
struct ForeignOption {
  const char* name;
  bool takes_value;  // one or several
  const char* why;
  const char* instead = "";  // what to do, if it is rejected; empty: accepted, with a warning that it has no effect
  const char* accepted = nullptr;  // a value that says what is so anyway: no mistake, no warning
};

struct OptionTable {
  std::vector<OptionGroup> groups;
  std::vector<ForeignOption> foreign = {};
  // What options mean together: called in turn after all setters.
  std::vector<std::function<Status(const OptionTexts&)>> checks = {};
};

// ---- Setters

namespace detail {
template <class T>
struct ValueOf {
  using type = T;
};
template <class T>
struct ValueOf<std::optional<T>> {
  using type = T;
};
}  // namespace detail

// For an option that a check reads from the texts.
Setter text_only();
Setter flag(bool& target);
Setter flag_off(bool& target);  // the option turns off what is on by default
Setter flag_only();
Setter value(std::function<Status(const std::string& name, const std::string& text)> set);
Setter words(std::function<Status(const std::string& name, const std::vector<std::string>& words)> set);

template <class T>  // a string, or an optional one
Setter text(T& target) {
  return value([&target](const std::string&, const std::string& text) {
    target = text;
    return Status();
  });
}
template <class T>  // a double, or an optional one
Setter real(T& target, double least = -kAnyReal, double most = kAnyReal) {
  return value([&target, least, most](const std::string& name, const std::string& text) -> Status {
    target = TUTTI_TRY(real_number(name, text, least, most));
    return {};
  });
}
template <class T>  // an integer, or an optional one
Setter whole(T& target, std::int64_t least = 0, std::int64_t most = kMostWhole) {
  return value([&target, least, most](const std::string& name, const std::string& text) -> Status {
    target = static_cast<typename detail::ValueOf<T>::type>(TUTTI_TRY(whole_number(name, text, least, most)));
    return {};
  });
}
// One of `names`; of an enumeration the values in the order of `names`.
template <class T>
Setter choice(T& target, std::vector<std::string> names) {
  return value([&target, names = std::move(names)](const std::string& name, const std::string& text) -> Status {
    const auto place = TUTTI_TRY(choose(name, text, names));
    if constexpr (std::is_same_v<T, std::string>) {
      target = names[place];
    } else {
      target = static_cast<T>(place);
    }
    return {};
  });
}
// --device, as rank_device() has it.
Option device_option(std::string& device, Rules rules);
// Of a backend as other programs name it: nccl carries GPU memory, and tutti the rest.
inline std::string engine_of(const std::string& backend) { return backend == "nccl" ? "cuda:nccl" : backend; }

// One of `known`, by name.
template <class T>
Setter choice_of(T& target, std::vector<std::pair<std::string, T>> known) {
  return value([&target, known = std::move(known)](const std::string& name, const std::string& text) -> Status {
    std::vector<std::string> names;
    for (const auto& [one, meaning] : known) names.push_back(one);
    target = known[TUTTI_TRY(choose(name, text, names))].second;
    return {};
  });
}

}  // namespace tutti::cli
