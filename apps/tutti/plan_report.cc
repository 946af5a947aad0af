// The answers as a table for people, and as JSON.
#include "apps/tutti/plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"
#include "tutti/comm/links/select.h"

namespace tutti::cli {
namespace {

// The rank that sends most stands for all.
comm::Outcome::Traffic busiest(const comm::Outcome& outcome) {
  comm::Outcome::Traffic most;
  for (const comm::Outcome::Traffic& traffic : outcome.traffic) {
    most.messages = std::max(most.messages, traffic.messages);
    most.bytes = std::max(most.bytes, traffic.bytes);
    most.added = std::max(most.added, traffic.added);
  }
  return most;
}

std::uint64_t busiest_host(const PlanQuestion& question, const comm::Outcome& outcome) {
  std::uint64_t most = 0;
  for (int host = 0; host < question.hosts.count(); ++host) {
    std::uint64_t sum = 0;
    for (const int rank : question.hosts.ranks_on(host)) sum += outcome.traffic[rank].bytes_between;
    most = std::max(most, sum);
  }
  return most;
}

std::string verdict(const PlanQuestion& question, const PlanAnswer& answer) {
  if (!answer.outcome) return "not simulated";
  if (!answer.outcome->finished) return "not finished: " + explain(question.scenario, *answer.outcome);
  return answer.outcome->wrong.empty() ? "right" : "WRONG: " + answer.outcome->wrong;
}

std::string hosts_words(const comm::Hosts& hosts) {
  if (hosts.count() == 1) return " on one host";
  if (hosts.most() == 1) return ", each on a host of its own";
  if (hosts.fewest() == hosts.most()) return fmt::format(" on {} hosts of {}", hosts.count(), hosts.most());
  return fmt::format(" on {} hosts of {} to {}", hosts.count(), hosts.fewest(), hosts.most());
}

std::string range_words(const comm::Range& range) {
  constexpr const char* kNames[] = {"in", "out", "scratch"};
  return fmt::format("{}[{}, {})", kNames[int(range.area)], range.offset, range.offset + range.bytes);
}

std::string step_words(const comm::Step& step) {
  switch (step.kind) {
    case comm::StepKind::kSend:
      return fmt::format("send {} to rank {}", range_words(step.from), step.peer);
    case comm::StepKind::kRecv:
      return fmt::format("receive {} from rank {}", range_words(step.into), step.peer);
    case comm::StepKind::kRecvReduce:
      return fmt::format("receive from rank {}, add to {}{}", step.peer, range_words(step.from),
                         step.from == step.into ? "" : " into " + range_words(step.into));
    case comm::StepKind::kCopy:
      return fmt::format("copy {} to {}", range_words(step.from), range_words(step.into));
    case comm::StepKind::kReduce:
      return fmt::format("add {} to {}", range_words(step.from), range_words(step.into));
  }
  return {};
}

comm::Plan plan_of(const PlanQuestion& question, comm::Algorithm algorithm) {
  comm::Shape shape = question.scenario.shape;
  shape.rank = *question.rank;
  return comm::make_plan(algorithm, question.scenario.kind, shape).or_throw();
}

std::string steps_text(const PlanQuestion& question, comm::Algorithm algorithm) {
  const comm::Plan plan = plan_of(question, algorithm);
  std::string text = fmt::format("\n{}, rank {}: {} steps\n", name(algorithm), *question.rank, plan.steps.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (i == std::size_t(question.steps)) {
      text += "  ...\n";
      break;
    }
    std::vector<std::string> after;
    for (const std::uint32_t earlier : plan.dependencies(plan.steps[i])) after.push_back(std::to_string(earlier));
    text += fmt::format("  {:>5}  {}{}\n", i, step_words(plan.steps[i]),
                        after.empty() ? "" : " after " + join(after, ", "));
  }
  return text;
}

}  // namespace

int exit_code_of(const std::vector<PlanAnswer>& answers) {
  return std::all_of(answers.begin(), answers.end(),
                     [](const PlanAnswer& answer) { return !answer.outcome || answer.outcome->right(); })
             ? 0
             : 1;
}

std::string to_text(const PlanQuestion& question, const std::vector<PlanAnswer>& answers) {
  const comm::Scenario& scenario = question.scenario;
  const Network& network = scenario.network;
  const comm::Bound bound = comm::bound_of(scenario.kind, scenario.shape, network);
  const std::string vector = scenario.kind == Kind::kBarrier
                                 ? std::string()
                                 : fmt::format(" of {} ({})", bytes_text(question.bytes), name(question.dtype));
  std::string text = fmt::format("{}{}, {} rank{}{}\n", name(scenario.kind), vector, scenario.shape.size,
                                 scenario.shape.size == 1 ? "" : "s", hosts_words(question.hosts));
  if (question.asked != question.bytes)
    text += fmt::format("{} of the {} bytes: a part of {} whole elements for each rank\n", question.bytes,
                        question.asked, scenario.shape.count);
  const auto link_words = [](const LinkCost& link) {
    return fmt::format("{}, {:.4g} GB/s, {} a message", seconds_text(link.latency), link.bandwidth / 1e9,
                       seconds_text(link.overhead));
  };
  if (question.hosts.count() > 1)
    text += fmt::format("between hosts: {}, {} card{} a host\n", link_words(network.between), network.cards,
                        network.cards == 1 ? "" : "s");
  if (question.hosts.most() > 1) text += fmt::format("inside a host: {}\n", link_words(network.inside));
  text += fmt::format("a rank adds {:.4g} GB/s; pieces of {}\n\n", network.add_bandwidth / 1e9,
                      bytes_text(scenario.shape.segment));
  text += fmt::format("{:<20} {:>7} {:>9} {:>11} {:>13} {:>11} {:>8}  {}\n", "algorithm", "rounds", "messages",
                      "bytes sent", "a host sends", "predicted", "/ bound", "result");
  for (const PlanAnswer& answer : answers) {
    const std::string label = std::string(name(answer.algorithm)) + (answer.algorithm == question.chosen ? " *" : "");
    if (!answer.outcome) {
      text += fmt::format("{:<20} not simulated: {}\n", label, answer.refusal);
      continue;
    }
    const comm::Outcome& outcome = *answer.outcome;
    const comm::Outcome::Traffic traffic = busiest(outcome);
    const std::string ratio = bound.seconds() > 0 ? fmt::format("{:.2f}", outcome.seconds / bound.seconds()) : "-";
    text += fmt::format("{:<20} {:>7} {:>9} {:>11} {:>13} {:>11} {:>8}  {}\n", label, outcome.rounds, traffic.messages,
                        bytes_text(traffic.bytes), bytes_text(busiest_host(question, outcome)),
                        seconds_text(outcome.seconds), ratio, verdict(question, answer));
  }
  text += fmt::format("{:<63} {:>11}  a hop, and the bytes that must pass the busiest card or rank\n", "bound",
                      seconds_text(bound.seconds()));
  text += fmt::format(
      "* what the table chooses. Rounds: messages in the longest chain of which each needs the one before; messages "
      "and "
      "bytes: of the rank that\n  sends most.\n");
  if (question.rank) {
    for (const PlanAnswer& answer : answers) text += steps_text(question, answer.algorithm);
  }
  return text;
}

std::string to_json(const PlanQuestion& question, const std::vector<PlanAnswer>& answers) {
  const comm::Scenario& scenario = question.scenario;
  const comm::Bound bound = comm::bound_of(scenario.kind, scenario.shape, scenario.network);
  std::string lines;
  for (const PlanAnswer& answer : answers) {
    nlohmann::ordered_json line = {{"op", name(scenario.kind)},
                                   {"algorithm", name(answer.algorithm)},
                                   {"chosen", answer.algorithm == question.chosen},
                                   {"ranks", scenario.shape.size},
                                   {"hosts", question.hosts.count()},
                                   {"bytes", question.bytes},
                                   {"bound_us", bound.seconds() * 1e6}};
    if (answer.outcome) {
      const comm::Outcome& outcome = *answer.outcome;
      const comm::Outcome::Traffic traffic = busiest(outcome);
      line["us"] = outcome.seconds * 1e6;
      line["rounds"] = outcome.rounds;
      line["steps"] = outcome.steps;
      line["messages"] = traffic.messages;
      line["bytes_sent"] = traffic.bytes;
      line["bytes_added"] = traffic.added;
      line["bytes_of_a_host"] = busiest_host(question, outcome);
      line["right"] = outcome.right();
    }
    if (!answer.outcome || !answer.outcome->right())
      line["why"] = answer.outcome ? verdict(question, answer) : "not simulated: " + answer.refusal;
    if (question.rank) {
      const comm::Plan plan = plan_of(question, answer.algorithm);
      line["rank"] = *question.rank;
      line["plan"] = nlohmann::json::array();
      for (std::size_t i = 0; i < std::min(plan.steps.size(), std::size_t(question.steps)); ++i)
        line["plan"].push_back(step_words(plan.steps[i]));
    }
    lines += line.dump() + "\n";
  }
  return lines;
}

}  // namespace tutti::cli
