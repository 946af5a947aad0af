#include "tutti/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr Grade kGrades[] = {Grade::kOk, Grade::kWarn, Grade::kFail};

}  // namespace

const char* name(Grade grade) {
  switch (grade) {
    case Grade::kOk:
      return "OK";
    case Grade::kWarn:
      return "WARN";
    case Grade::kFail:
      return "FAIL";
  }
  return "?";
}

std::string to_text(const std::vector<Finding>& findings) {
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, std::min<std::size_t>(finding.subject.size(), 32));
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<4}  {:<{}}  {}{}\n", name(finding.grade), finding.subject, width, finding.fact,
                        finding.fix.empty() ? "" : " (fix: " + finding.fix + ")");
  }
  return text;
}

std::string summary(const std::vector<Finding>& findings) {
  std::vector<std::string> parts;
  for (const Grade grade : kGrades) {
    const auto count =
        std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.grade == grade; });
    parts.push_back(std::to_string(count) + " " + name(grade));
  }
  return join(parts, ", ");
}

Grade worst(const std::vector<Finding>& findings) {
  Grade grade = Grade::kOk;
  for (const Finding& finding : findings) grade = std::max(grade, finding.grade);
  return grade;
}

std::string to_json(const std::vector<Finding>& findings) {
  auto list = nlohmann::json::array();
  for (const Finding& finding : findings)
    list.push_back(
        {{"grade", name(finding.grade)}, {"subject", finding.subject}, {"fact", finding.fact}, {"fix", finding.fix}});
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::vector<Finding>> findings_from_json(const std::string& text) {
  const auto damaged = [](const std::string& what) {
    return Error{.code = Code::kCorrupt, .detail = "what a node found cannot be read: " + what};
  };
  const auto list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array()) return damaged("it is no list");
  std::vector<Finding> findings;
  for (const auto& item : list) {
    Finding finding;
    const auto take = [&](const char* member, std::string& into) {
      const auto found = item.is_object() ? item.find(member) : item.end();
      if (!item.is_object() || found == item.end() || !found->is_string()) return false;
      into = found->get<std::string>();
      return true;
    };
    std::string grade;
    if (!take("grade", grade) || !take("subject", finding.subject) || !take("fact", finding.fact) ||
        !take("fix", finding.fix))
      return damaged("a member is missing");
    const auto known = std::find_if(std::begin(kGrades), std::end(kGrades), [&](Grade g) { return grade == name(g); });
    if (known == std::end(kGrades)) return damaged("there is no grade " + grade);
    finding.grade = *known;
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace tutti
