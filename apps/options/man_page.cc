#include "apps/options/man_page.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

#include "apps/options/help_text.h"
#include "tutti/base/text.h"
#include "tutti/version.h"

namespace tutti::cli {
namespace {

// Text as man reads it: a line that begins with a dot would be a request, and a bare '-' a hyphen.
std::string escaped(const std::string& text) {
  std::string out;
  bool at_line_start = true;
  for (const char c : text) {
    if (at_line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    at_line_start = c == '\n';
  }
  return out;
}

constexpr std::size_t kFooterWidth = 72;  // man indents it by 7 of 80 columns

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return char(std::toupper(c)); });
  return text;
}

// "-n, --nproc N"
std::string names_of(const CLI::Option& option) {
  return join(shown_names(option), ", ") +
         (option.get_type_name().empty() || option.get_type_size() == 0 ? "" : " " + option.get_type_name());
}

}  // namespace

std::string man_page(const CLI::App& app) {
  std::string name = app.get_name();
  std::replace(name.begin(), name.end(), ' ', '-');
  std::string page = ".TH " + upper(escaped(name)) + " 1 \"\" \"tutti " TUTTI_VERSION "\" \"Tutti\"\n.SH NAME\n" +
                     escaped(name) + " \\- " + escaped(app.get_description()) + "\n.SH SYNOPSIS\n.B " +
                     escaped(app.get_name()) + "\n[OPTIONS] ...\n";
  std::vector<std::string> groups;
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    if (!group.empty() && std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  for (const std::string& group : groups) {
    page += ".SH " + upper(escaped(group)) + "\n";
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() != group) continue;
      page += ".TP\n.B " + escaped(names_of(*option)) + "\n" + escaped(option->get_description()) + "\n";
    }
  }
  if (!app.get_footer().empty())
    page += ".SH NOTES\n.nf\n" + escaped(laid_out(app.get_footer(), kFooterWidth)) + ".fi\n";
  return page;
}

}  // namespace tutti::cli
