#include "apps/options/option.h"

#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

bool is_same(const std::string& one, const std::string& other) {
  if (one == other) return true;
  const auto number = parse_double(one), wanted = parse_double(other);
  return number && wanted && *number == *wanted;
}

}  // namespace

void OptionTexts::add(const std::string& name, bool is_given, std::vector<std::string> words, std::string by_default) {
  if (words.empty() && !by_default.empty()) words = {by_default};
  texts_[name] = {is_given, std::move(words), std::move(by_default)};
}

bool OptionTexts::is_flag_given(const std::string& name) const {
  const Text& text = texts_.at(name);
  return text.is_given && text.words.empty();
}

bool OptionTexts::is_active(const std::string& name) const {
  const Text& text = texts_.at(name);
  return text.is_given && (text.words.size() != 1 || !is_same(text.words[0], text.by_default));
}

const std::string& OptionTexts::value(const std::string& name) const {
  static const std::string kNone;
  const auto& words = texts_.at(name).words;
  return words.empty() ? kNone : words.back();
}

bool OptionTexts::is(const std::string& name, const std::string& text) const { return is_same(value(name), text); }

double OptionTexts::number(const std::string& name) const { return parse_double(value(name)).value_or(0); }

bool Condition::holds(const OptionTexts& texts) const {
  if (test) return test(texts);
  const std::string wanted = value();
  return wanted.empty() ? texts.is_active(option()) : texts.is(option(), wanted);
}

std::string Condition::shown() const {
  const std::string_view all = text;
  return std::string(all.substr(0, all.find(" (")));
}

std::string Condition::option() const {
  const std::string all = shown();
  return all.substr(0, all.find(' '));
}

std::string Condition::value() const {
  const std::string all = shown();
  const std::size_t space = all.find(' ');
  return space == std::string::npos ? "" : all.substr(space + 1);
}

Rules operator+(Rules one, const Rules& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

Rules excludes(Condition other, const char* hint) { return {{Rule::Kind::kExcludes, {}, other, "", hint}}; }

Rules excludes(Condition own, Condition other, const char* hint) {
  return {{Rule::Kind::kExcludes, own, other, "", hint}};
}

Rules needs(Condition condition, const char* why, const char* hint) {
  return {{Rule::Kind::kNeeds, {}, condition, why, hint}};
}

Rules no_effect(const char* why, Condition effect) { return {{Rule::Kind::kNoEffect, {}, effect, why}}; }

Rules only_with(Condition condition) { return no_effect("", condition); }

Rules rejects(Condition own, const char* why, const char* hint) {
  return {{Rule::Kind::kRejects, own, own, why, hint}};
}

Setter text_only() {
  return value([](const std::string&, const std::string&) { return Status(); });
}

Setter flag(bool& target) {
  return {Setter::Takes::kNothing, [&target](const std::string&, const std::vector<std::string>&, bool is_given) {
            target = is_given;
            return Status();
          }};
}

Setter flag_off(bool& target) {
  return {Setter::Takes::kNothing, [&target](const std::string&, const std::vector<std::string>&, bool is_given) {
            target = !is_given;
            return Status();
          }};
}

Setter flag_only() {
  return {Setter::Takes::kNothing, [](const std::string&, const std::vector<std::string>&, bool) { return Status(); }};
}

Setter value(std::function<Status(const std::string& name, const std::string& text)> set) {
  return {Setter::Takes::kValue,
          [set = std::move(set)](const std::string& name, const std::vector<std::string>& words, bool) {
            return words.empty() ? Status() : set(name, words.back());
          }};
}

Option device_option(std::string& device, Rules rules) {
  return {"--device",
          "NAME",
          "cpu",
          "where to train: cpu, cuda, or auto (cuda if every rank has a GPU)",
          choice(device, {"cpu", "cuda", "auto"}),
          std::move(rules)};
}

Setter words(std::function<Status(const std::string& name, const std::vector<std::string>& words)> set) {
  return {Setter::Takes::kWords, [set = std::move(set)](const std::string& name, const std::vector<std::string>& words,
                                                        bool) { return words.empty() ? Status() : set(name, words); }};
}

}  // namespace tutti::cli
