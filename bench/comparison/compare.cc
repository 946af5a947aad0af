#include "bench/comparison/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/comparison/turns.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"

namespace tutti::bench {
namespace {

constexpr Duration kPatienceForPlan = std::chrono::minutes(2);
constexpr double kMostPlanSeconds = 10;
constexpr const char* kTargetLine = "  {:<15}{:>8}{:>12}  {:<13}{:>12}  {:<24}{:>9}{:>9}{:>9}  {}\n";

void print_now(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

void note(const std::string& text) { fmt::print(stderr, "tutti bench: {}\n", text); }

std::string sentence(const Error& error) { return error.detail + (error.hint.empty() ? "" : " (" + error.hint + ")"); }

// Those that are here. Who is not is left out with a sentence, unless the user asked for it by name.
Result<std::vector<Entrant>> rivals_here(const CompareOptions& options, TwoHosts* hosts) {
  std::vector<Entrant> here;
  for (const std::string& key : options.rivals) {
    auto found = rival(key, hosts);
    if (found.ok()) {
      here.push_back(std::move(*found));
    } else if (options.all_must_be_here) {
      return Error{.code = Code::kUsage, .detail = found.error().detail, .hint = found.error().hint};
    } else {
      note(key + " is left out: " + sentence(found.error()));
    }
  }
  if (here.empty() && !options.rivals.empty())
    return Error{.code = Code::kUsage,
                 .detail = "there is no peer to compare with here",
                 .hint = "Debian: libopenmpi-dev openmpi-bin libgloo-dev, then configure and build again"};
  return here;
}

// For the items of this section in which it is a rival. What has nothing around it is measured with all.
Entrant for_section(Entrant entrant, const Section& section) {
  if (entrant.key == "bare" || entrant.key == "bare_wire") return entrant;
  entrant.part = [part = entrant.part, key = entrant.key, section](const Task& task) {
    std::vector<Item> wanted;
    for (const Item& item : part(task))
      if (std::any_of(section.targets.begin(), section.targets.end(), [&](const Target& t) {
            return t.item == item && std::find(t.rivals.begin(), t.rivals.end(), key) != t.rivals.end();
          }))
        wanted.push_back(item);
    return wanted;
  };
  return entrant;
}

struct Tally {
  int met = 0, not_met = 0, beyond_floor = 0, unknown = 0;
  void count(Judgement::Verdict verdict) {
    switch (verdict) {
      case Judgement::Verdict::kMet:
        ++met;
        break;
      case Judgement::Verdict::kNotMet:
        ++not_met;
        break;
      case Judgement::Verdict::kBeyondFloor:
        ++beyond_floor;
        break;
      case Judgement::Verdict::kUnknown:
        ++unknown;
        break;
    }
  }
};

struct Simulation {
  const char* words;
  std::vector<std::string> arguments;
};
const std::vector<Simulation>& simulations() {
  static const std::vector<Simulation> all = {
      {"a ring all_reduce of 64 MiB on 1024 ranks, simulated", {"--ranks", "1024", "--algorithm", "ring"}},
      {"one of two levels on 4096 ranks of 512 hosts, simulated",
       {"--ranks", "4096", "--hosts", "512", "--algorithm", "two_level"}}};
  return all;
}

void judge_allocations(double most, bool json, Tally& tally) {
  const bool met = most == 0;
  tally.count(met ? Judgement::Verdict::kMet : Judgement::Verdict::kNotMet);
  print_now(
      json ? nlohmann::ordered_json{{"setting", "allocations in a call"}, {"most", most}, {"wanted", 0}, {"met", met}}
                     .dump() +
                 "\n"
           : fmt::format("allocations of memory in a call, at most: {:.3g}, wanted 0: {}\n", most,
                         met ? "met" : "NOT MET"));
}

Status judge_simulations(const std::string& only, bool json, Tally& tally) {
  for (const Simulation& simulation : simulations()) {
    if (std::string(simulation.words).find(only) == std::string::npos) continue;
    Program program{
        .path = own_path(), .arguments = {"plan", "all_reduce", "--bytes", "64M"}, .environment = clean_environment()};
    program.arguments.insert(program.arguments.end(), simulation.arguments.begin(), simulation.arguments.end());
    const auto begin = now();
    (void)TUTTI_TRY(run_program(program, Deadline::after(kPatienceForPlan)));
    const double seconds = seconds_since(begin);
    const bool met = seconds <= kMostPlanSeconds;
    tally.count(met ? Judgement::Verdict::kMet : Judgement::Verdict::kNotMet);
    if (json)
      print_now(nlohmann::ordered_json{
                    {"setting", simulation.words}, {"seconds", seconds}, {"wanted", kMostPlanSeconds}, {"met", met}}
                    .dump() +
                "\n");
    else
      print_now(fmt::format("{}: {}, wanted at most {}: {}\n", simulation.words, seconds_text(seconds),
                            seconds_text(kMostPlanSeconds), met ? "met" : "NOT MET"));
  }
  return {};
}

std::vector<Target> chosen_targets(const std::string& only) {
  std::vector<Target> chosen;
  for (const Target& target : targets())
    if (target_line(target, {}).find(only) != std::string::npos ||
        to_string(target.setting).find(only) != std::string::npos)
      chosen.push_back(target);
  return chosen;
}

}  // namespace

Result<int> compare_operation(const Task& task, const CompareOptions& options) {
  if (!options.plot.empty()) TUTTI_TRY(can_plot(options.plot));
  std::unique_ptr<TwoHosts> hosts;
  if (task.two_hosts) {
    hosts = TUTTI_TRY(TwoHosts::make());
  }
  const std::vector<Entrant> rivals = TUTTI_TRY(rivals_here(options, hosts.get()));
  std::vector<Entrant> entrants = {our_entrant(hosts.get())};
  entrants.insert(entrants.end(), rivals.begin(), rivals.end());
  const int count = rivals.empty() ? 1 : options.turns;
  std::optional<ProgressLine> progress(std::in_place, steps_of(entrants, task, count));
  const Turns turns = TUTTI_TRY(run_turns(entrants, task, count, task.items.at(0).op, *progress));
  progress.reset();
  print_now(options.json ? operation_lines(task, entrants, turns)
                         : operation_table(task, rivals, turns) + operation_verdict(task, rivals, turns));
  if (!options.plot.empty()) TUTTI_TRY(draw(plot_of(task, entrants, turns), options.plot));
  return 0;
}

std::string target_line(const Target& target, const Judgement& judgement) {
  using Verdict = Judgement::Verdict;
  const char* const word = judgement.verdict == Verdict::kMet           ? "met"
                           : judgement.verdict == Verdict::kNotMet      ? "NOT MET"
                           : judgement.verdict == Verdict::kBeyondFloor ? "NOT MET, beyond the floor"
                                                                        : "not measured";
  const std::string size = target.item.bytes ? bytes_text(target.item.bytes) : "";
  const auto us = [](const Spread& spread) {
    return spread.count ? fmt::format("{:.2f}", spread.median) : std::string();
  };
  const auto line = [&](const std::string& rival, const std::string& ratio, const std::string& least,
                        const std::string& wanted) {
    return fmt::format(kTargetLine, target.item.op, size, us(judgement.ours_us), rival, us(judgement.rival_us), ratio,
                       least, wanted,
                       judgement.floor_ratio.count ? fmt::format("{:.2f}x", judgement.floor_ratio.median) : "", word);
  };
  if (target.rivals.empty()) return line("p99", "", "", "< " + seconds_text(target.wanted * 1e-6));
  std::vector<std::string> names;
  for (const std::string& key : target.rivals)
    names.push_back(key == "mpi" ? "Open MPI" : key == "gloo" ? "Gloo" : key == "bare" ? "bare loop" : key);
  return line(names.size() > 1 ? "best of both" : names[0], ratio_text(judgement.ratio),
              judgement.ratio.count ? fmt::format("{:.2f}x", judgement.ratio_of_least) : "",
              fmt::format("{}x", target.wanted));
}

std::string target_json(const Target& target, const Judgement& judgement) {
  const auto rounded = [](double value) { return std::round(value * 1000) / 1000; };
  nlohmann::ordered_json line = {{"setting", to_string(target.setting)},
                                 {"op", target.item.op},
                                 {"ranks", target.setting.ranks},
                                 {"bytes", target.item.bytes},
                                 {"against", target.rivals},
                                 {"us", rounded(judgement.ours_us.median)},
                                 {"wanted", target.wanted}};
  if (!target.rivals.empty()) {
    line["peer_us"] = rounded(judgement.rival_us.median);
    line["ratio"] = rounded(judgement.ratio.median), line["ratio_least"] = rounded(judgement.ratio.least);
    line["ratio_most"] = rounded(judgement.ratio.most), line["ratio_of_least"] = rounded(judgement.ratio_of_least);
  }
  if (judgement.floor_ratio.count > 0) line["floor_ratio"] = rounded(judgement.floor_ratio.median);
  if (judgement.verdict == Judgement::Verdict::kUnknown)
    line["met"] = nullptr;
  else
    line["met"] = judgement.verdict == Judgement::Verdict::kMet;
  return line.dump() + "\n";
}

Result<int> compare_targets(const Method& method, const std::string& only, const CompareOptions& options) {
  const auto all = sections(chosen_targets(only));
  const bool any_simulation = std::any_of(simulations().begin(), simulations().end(), [&](const Simulation& s) {
    return std::string(s.words).find(only) != std::string::npos;
  });
  if (all.empty() && !any_simulation)
    return Error{.code = Code::kUsage, .detail = "no line of the table holds '" + only + "'"};

  std::unique_ptr<TwoHosts> hosts;
  if (std::any_of(all.begin(), all.end(), [](const Section& s) { return s.setting.two_hosts; })) {
    auto made = TwoHosts::make();
    if (made.ok())
      hosts = std::move(*made);
    else
      note("the lines between two hosts are left out: " + sentence(made.error()));
  }
  const std::vector<Entrant> rivals =
      all.empty() ? std::vector<Entrant>() : TUTTI_TRY(rivals_here(options, hosts.get()));
  const auto entrants_of = [&](const Section& section) {
    std::vector<Entrant> entrants = {our_entrant(hosts.get())};
    for (const Entrant& rival : rivals) entrants.push_back(for_section(rival, section));
    return entrants;
  };
  int steps = 0;
  for (const Section& section : all)
    if (!section.setting.two_hosts || hosts)
      steps += steps_of(entrants_of(section), section.task(method), options.turns);

  if (!options.json)
    print_now(fmt::format(
        "Median of {} turns, each a run of every entrant one after another, on {} cores; ratio: the peer's "
        "time / ours (least-most); floor: the same for a loop with nothing around it, or for what the memory "
        "gives\n",
        options.turns, usable_cores()));
  Tally tally;
  double most_allocations = 0;
  bool any_turns = false;
  {
    ProgressLine progress(steps);
    for (const Section& section : all) {
      Turns turns;
      if (!section.setting.two_hosts || hosts) {
        turns = TUTTI_TRY(
            run_turns(entrants_of(section), section.task(method), options.turns, to_string(section.setting), progress));
      }
      progress.clear();
      if (!options.json)
        print_now("\n" + to_string(section.setting) + "\n" +
                  fmt::format(kTargetLine, "operation", "bytes", "tutti us", "against", "its us", "ratio", "of least",
                              "wanted", "floor", ""));
      most_allocations = std::max(most_allocations, turns.most_allocations(kOurs));
      any_turns = any_turns || (!section.setting.two_hosts || hosts);
      for (const Target& target : section.targets) {
        const Judgement judgement = judge(target, turns);
        tally.count(judgement.verdict);
        print_now(options.json ? target_json(target, judgement) : target_line(target, judgement));
      }
    }
  }
  if (!options.json) print_now("\n");
  if (any_turns) judge_allocations(most_allocations, options.json, tally);
  TUTTI_TRY(judge_simulations(only, options.json, tally));
  if (!options.json) {
    print_now(fmt::format("\nverdict: {} of {} met", tally.met, tally.met + tally.not_met + tally.beyond_floor));
    if (tally.beyond_floor) print_now(fmt::format(", {} beyond what the floor reaches here", tally.beyond_floor));
    print_now(tally.unknown ? fmt::format(", {} not measured\n", tally.unknown) : std::string("\n"));
  }
  return tally.not_met + tally.beyond_floor == 0 ? 0 : 1;
}

}  // namespace tutti::bench
