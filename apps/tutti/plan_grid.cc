// tutti plan grid: where the ranks of a grid are, and which of them form a group along each axis.
#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/options/help_text.h"
#include "apps/tutti/command.h"
#include "apps/tutti/not_empty.h"
#include "apps/tutti/plan_shared.h"
#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/planning/grid_drawing.h"

namespace tutti::cli {
namespace in_plan_grid {
namespace {

constexpr const char* kSynopsis = "tutti plan grid --ranks N [OPTIONS]";
constexpr const char* kFooter = R"(
A row of the picture is a pipeline stage. The ranks of a tensor group are side by side, and further replicas are to the
right. The table below it has a line for each kind of group. With --hosts it also says how many hosts a group covers,
and how many groups of that kind use the network of one host at the same time: they share its cards.

The data-parallel size is what the other sizes leave of the ranks. With --dp, give the ranks or leave them to Tutti.

Examples:
  tutti plan grid --ranks 16 --tp 2 --pp 4
  tutti plan grid --ranks 64 --tp 4 --pp 4 --hosts 8 --svg grid.svg
  tutti plan grid --ranks 16 --tp 2 --pp 4 --order tp-cp-ep-pp-dp --axis dp
  tutti plan grid --tp 2 --pp 4 --dp 2 --rank 5

Exit codes:
  0  planned
  1  the picture cannot be written
  2  wrong usage, or sizes that do not divide the ranks)";

// Kinds of groups: the token of Grid::groups(), and what they are for.
constexpr struct {
  const char* token;
  const char* meaning;
} kKinds[] = {{"tp", "share the matrices of a layer"}, {"cp", "share a sequence"},     {"dp", "see different samples"},
              {"pp", "are the stages of a pipeline"},  {"dp-cp", "average gradients"}, {"tp-pp", "hold one model"},
              {"tp-cp-pp", "work on the same samples"}};

struct Texts {
  std::string ranks, tensor = "1", pipeline = "1", context = "1", data, order = GridOptions().order;
  std::string hosts, axis, rank, svg;
  bool json = false;
};

void declare(CLI::App& app, Texts& texts) {
  set_help(app, kFooter, kSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto add = [&](const char* group, const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group(group)->type_name(type)->check(kNotEmpty);
  };
  add("The grid", "-n,--ranks", texts.ranks, "number of ranks", "N");
  add("The grid", "--tp", texts.tensor, "tensor-parallel size (1)", "T");
  add("The grid", "--pp", texts.pipeline, "pipeline-parallel size (1)", "P");
  add("The grid", "--cp", texts.context, "context-parallel size (1)", "C");
  add("The grid", "--dp", texts.data, "data-parallel size (the ranks divided by the other sizes)", "D");
  add("The grid", "--order", texts.order, "the axes, the fastest first (tp-cp-ep-dp-pp)", "AXES");
  add("The grid", "--hosts", texts.hosts, "number of hosts, or the ranks of each: 8,8,2", "H");
  add("Output", "--axis", texts.axis, "list all groups of this kind: tp, cp, dp, pp, dp-cp, tp-pp, ...", "AXES");
  add("Output", "--rank", texts.rank, "show the place and the groups of this rank", "R");
  add("Output", "--svg", texts.svg, "write the picture to this file", "FILE");
  app.add_flag("--json", texts.json, "print the grid and all groups as a line of JSON")->group("Output");
}

// The hosts of ranks that are numbered host by host; empty: unknown.
using HostOf = std::vector<int>;

struct Question {
  Grid grid;
  HostOf host_of;
  int hosts = 0;
};

struct Kind {
  std::string token;
  std::vector<std::vector<int>> groups;
  int hosts = 0;    // that a group covers, at most
  int at_once = 0;  // groups that use the network of one host, at most
};

Kind kind_of(const Question& question, const std::string& token) {
  Kind kind{.token = token, .groups = question.grid.groups(token)};
  std::map<int, int> users;  // of a host's network
  for (const std::vector<int>& group : kind.groups) {
    std::set<int> hosts;
    if (!question.host_of.empty())
      for (const int rank : group) hosts.insert(question.host_of[std::size_t(rank)]);
    kind.hosts = std::max(kind.hosts, int(hosts.size()));
    if (hosts.size() < 2) continue;
    for (const int host : hosts) kind.at_once = std::max(kind.at_once, ++users[host]);
  }
  return kind;
}

// Those that say something: the groups of dp-cp are those of dp where there is one context rank.
std::vector<Kind> kinds_of(const Question& question) {
  std::vector<Kind> kinds;
  for (const auto& [token, meaning] : kKinds) {
    int axes = 0, larger = 0;
    for (const std::string& axis : split(token, '-')) ++axes, larger += question.grid.mesh().axis_size(axis) > 1;
    if (larger == axes) kinds.push_back(kind_of(question, token));
  }
  return kinds;
}

std::string meaning_of(const std::string& token) {
  for (const auto& [known, meaning] : kKinds)
    if (token == known) return meaning;
  return "";
}

Result<Question> interpret(const Texts& texts) {
  const auto size = [](const char* option, const std::string& text) -> Result<int> {
    return int(TUTTI_TRY(whole_number(option, text, 1, kMostPlannedRanks)));
  };
  const GridOptions options{.tensor = TUTTI_TRY(size("--tp", texts.tensor)),
                            .pipeline = TUTTI_TRY(size("--pp", texts.pipeline)),
                            .context = TUTTI_TRY(size("--cp", texts.context)),
                            .order = texts.order};
  const char* const example = "tutti plan grid --ranks 16 --tp 2 --pp 4";
  std::optional<int> ranks;
  if (!texts.ranks.empty()) ranks = TUTTI_TRY(size("--ranks", texts.ranks));
  if (!texts.data.empty()) {
    const std::int64_t product =
        std::int64_t(options.tensor) * options.pipeline * options.context * TUTTI_TRY(size("--dp", texts.data));
    if (product > kMostPlannedRanks)
      return usage("the sizes make " + std::to_string(product) + " ranks, and at most " +
                   std::to_string(kMostPlannedRanks) + " can be planned");
    if (ranks && *ranks != product)
      return usage("--ranks is " + texts.ranks + ", but the sizes with --dp " + texts.data + " make " +
                       std::to_string(product) + " ranks",
                   "drop --ranks or --dp");
    ranks = int(product);
  }
  HostOf host_of;
  int hosts = 0;
  if (!texts.hosts.empty()) {
    const std::vector<int> sizes = TUTTI_TRY(planned_host_sizes(ranks, texts.hosts, kSynopsis, example));
    for (const int count : sizes) host_of.insert(host_of.end(), std::size_t(count), hosts++);
    ranks = int(host_of.size());
  }
  if (!ranks) return not_given("--ranks", kSynopsis, example);
  return Question{Grid(*ranks, options), std::move(host_of), hosts};
}

std::string headline(const Question& question, const Texts& texts) {
  std::string text = question.grid.to_string() + ", order " + texts.order;
  if (question.hosts > 0) text += fmt::format(", {} {}", question.hosts, question.hosts == 1 ? "host" : "hosts");
  return text;
}

// "[0 4 8 12]"
std::string group_text(const std::vector<int>& group) { return fmt::format("[{}]", fmt::join(group, " ")); }

// As many groups as fit in `width`, at least one number of the first.
std::string some_groups(const std::vector<std::vector<int>>& groups, std::size_t width) {
  std::string text;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string next = (i == 0 ? "" : " ") + group_text(groups[i]);
    const std::size_t rest = i + 1 < groups.size() ? 4 : 0;  // " ..."
    if (text.size() + next.size() + rest > width) {
      if (!text.empty()) return text + " ...";
      const std::size_t end = next.rfind(' ', std::max<std::size_t>(width, 12) - 8);
      return next.substr(0, end == next.npos ? next.find_first_of(" ]") : end) + " ...] ...";
    }
    text += next;
  }
  return text;
}

std::string table_of(const Question& question, std::size_t width) {
  const std::vector<Kind> kinds = kinds_of(question);
  if (kinds.empty()) return "one rank, and no groups\n";
  const bool placed = question.hosts > 0;
  std::string text =
      fmt::format("{:<9} {:>7} {:>6}{}  ranks\n", "axes", "groups", "size", placed ? "  hosts  at once" : "");
  for (const Kind& kind : kinds) {
    std::string line = fmt::format("{:<9} {:>7} {:>6}", kind.token, kind.groups.size(), kind.groups[0].size());
    if (placed) line += fmt::format(" {:>6} {:>8}", kind.hosts, kind.at_once > 0 ? std::to_string(kind.at_once) : "-");
    line += "  ";
    text += line + some_groups(kind.groups, width > line.size() + 16 ? width - line.size() : 16) + "\n";
  }
  text += "\n";
  for (const Kind& kind : kinds) text += fmt::format("{:<9} ranks that {}\n", kind.token, meaning_of(kind.token));
  if (placed)
    text += "hosts: of a group; at once: groups that share the network cards of one host; -: groups inside a host\n";
  return text;
}

std::string list_of(const Question& question, const std::string& token) {
  const Kind kind = kind_of(question, token);
  std::string text;
  for (const std::vector<int>& group : kind.groups) text += group_text(group) + "\n";
  return text;
}

std::string text_of_rank(const Question& question, int rank) {
  const Grid& grid = question.grid;
  std::string text = fmt::format("rank {}", rank);
  if (question.hosts > 0) text += fmt::format(", host {}", question.host_of[std::size_t(rank)]);
  text += "\n";
  for (const Kind& kind : kinds_of(question)) {
    std::string place = "in";
    if (kind.token.find('-') == std::string::npos)
      place = fmt::format("{} of {}, in", grid.mesh().coordinate(rank, kind.token), kind.groups[0].size());
    text += fmt::format("{:<9} {} {}\n", kind.token, place, group_text(grid.group_of(rank, kind.token)));
  }
  if (grid.pipeline_size() > 1)
    text += fmt::format("sends to rank {}, receives from rank {}\n",
                        grid.is_last_stage(rank) ? "-" : std::to_string(grid.next_stage(rank)),
                        grid.is_first_stage(rank) ? "-" : std::to_string(grid.previous_stage(rank)));
  return text;
}

std::string to_json(const Question& question, const Texts& texts) {
  const Grid& grid = question.grid;
  nlohmann::ordered_json line = {{"ranks", grid.size()},      {"order", texts.order},   {"tp", grid.tensor_size()},
                                 {"cp", grid.context_size()}, {"dp", grid.data_size()}, {"pp", grid.pipeline_size()}};
  if (question.hosts > 0) line["hosts"] = question.hosts;
  line["groups"] = nlohmann::ordered_json::object();
  for (const Kind& kind : kinds_of(question)) {
    nlohmann::ordered_json& entry = line["groups"][kind.token];
    if (question.hosts > 0) entry["hosts"] = kind.hosts, entry["at_once"] = kind.at_once;
    entry["ranks"] = kind.groups;
  }
  return line.dump() + "\n";
}

Status act(const Texts& texts) {
  if (int(texts.json) + int(!texts.axis.empty()) + int(!texts.rank.empty()) > 1)
    return usage("--json, --axis and --rank each say what is printed", "give one of them");
  const Question question = TUTTI_TRY(interpret(texts));
  if (!texts.svg.empty())
    TUTTI_TRY(write_picture(texts.svg, draw_svg(question.grid, question.host_of, headline(question, texts))));
  if (texts.json) {
    fmt::print("{}", to_json(question, texts));
  } else if (!texts.axis.empty()) {
    fmt::print("{}", list_of(question, texts.axis));
  } else if (!texts.rank.empty()) {
    const std::int64_t most = question.grid.size() - 1;
    fmt::print("{}", text_of_rank(question, int(TUTTI_TRY(whole_number("--rank", texts.rank, 0, most)))));
  } else {
    const std::size_t width = help_width();
    fmt::print("{}\n\n{}\n{}", headline(question, texts), draw_text(question.grid, int(width)),
               table_of(question, width));
  }
  return {};
}

}  // namespace
}  // namespace in_plan_grid

int plan_grid_command(std::vector<std::string> arguments) {
  using namespace in_plan_grid;
  CLI::App app("Lists and draws the groups of a grid of ranks.", "tutti plan grid");
  Texts texts;
  declare(app, texts);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  try {
    act(texts).or_throw();
    return 0;
  } catch (const Exception& error) {
    report("tutti plan grid", error.error());
    return tutti::launch::exit_code_of(error.error().code);
  }
}

}  // namespace tutti::cli
