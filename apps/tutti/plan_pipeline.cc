// tutti plan pipeline: a schedule drawn, or a measured run of one, with its bubble and its memory.
#include <fmt/core.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/options/help_text.h"
#include "apps/tutti/command.h"
#include "apps/tutti/plan_shared.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/planning/schedules/drawing.h"
#include "tutti/planning/schedules/measured.h"

namespace tutti::cli {
namespace in_plan_pipeline {
namespace {

constexpr const char* kSynopsis = "tutti plan pipeline --stages P --microbatches M [OPTIONS]";
constexpr const char* kFooter = R"(
A row of the picture is a rank, and time goes to the right. F3 is the forward of microbatch 3 and B3 its backward. Where
a schedule splits the backward, I3 is the gradient of the input and W3 that of the weights. F3b belongs to the rank's
second chunk. Dots are the bubble. Costs are those of a whole rank for one microbatch, in any unit; its chunks share
them.

Examples:
  tutti plan pipeline --stages 4 --microbatches 8
  tutti plan pipeline --stages 4 --microbatches 8 --schedule interleaved --chunks 2 --svg pipeline.svg
  tutti plan pipeline --stages 8 --microbatches 32 --schedule all
  tutti plan pipeline --measured step.json --svg step.svg

Exit codes:
  0  planned
  1  the file is not a measured pipeline, or the picture cannot be written
  2  wrong usage, a missing file, or a shape that the schedule cannot take)";

struct Texts {
  std::string stages, microbatches, schedule = "1f1b", chunks, group, measured, columns = "0", svg;
  std::string forward = "1", backward_input = "1", backward_weight = "1", message = "0";
  bool forward_only = false, json = false;
};

void declare(CLI::App& app, Texts& texts) {
  set_help(app, kFooter, kSynopsis);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto add = [&](const char* group, const char* names, std::string& target, const char* words, const char* type) {
    app.add_option(names, target, words)->group(group)->type_name(type);
  };
  add("The pipeline", "-p,--stages", texts.stages, "ranks of the pipeline", "P");
  add("The pipeline", "-m,--microbatches", texts.microbatches, "microbatches of a step", "M");
  add("The pipeline", "--schedule", texts.schedule,
      "1f1b (default), fill-drain, interleaved, zb-h1, zb-v; all: compare those that take the shape", "NAME");
  add("The pipeline", "--chunks", texts.chunks, "model chunks on each rank (interleaved and zb-v: 2; else 1)", "V");
  add("The pipeline", "--group", texts.group,
      "interleaved: microbatches that pass a chunk before the next one's turn (P)", "N");
  app.add_flag("--forward-only", texts.forward_only, "evaluation: no backward")->group("The pipeline");
  add("The pipeline", "--measured", texts.measured,
      "draw a run in place of a plan: what to_json() of a measured_timeline() wrote "
      "(docs/concepts/pipeline.md)",
      "FILE");
  add("Costs of a rank", "--forward", texts.forward, "forward of one microbatch (1)", "T");
  add("Costs of a rank", "--backward-input", texts.backward_input, "gradient of the input of one microbatch (1)", "T");
  add("Costs of a rank", "--backward-weight", texts.backward_weight, "gradient of the weights from one microbatch (1)",
      "T");
  add("Costs of a rank", "--message", texts.message, "a message from a rank to the next (0)", "T");
  add("Output", "--svg", texts.svg, "write the picture to this file", "FILE");
  add("Output", "--columns", texts.columns, "width of the picture in the terminal (0: as wide as necessary)", "N");
  app.add_flag("--json", texts.json, "a line of JSON for each schedule, and no picture")->group("Output");
}

struct Question {
  std::vector<ScheduleKind> kinds;
  bool all = false;
  PipelineShape shape;
  bool chunks_given = false;
  StageCosts costs;  // of a rank with one chunk
  int columns = 0;
};

Status interpret(const Texts& texts, Question& question) {
  constexpr int kMost = 1 << 20;
  question.columns = int(TUTTI_TRY(whole_number("--columns", texts.columns, 0, 10000)));
  if (!texts.measured.empty()) {
    if (!texts.stages.empty() || !texts.microbatches.empty())
      return usage("--measured draws what ran: it takes no --stages and no --microbatches");
    return {};
  }
  if (texts.stages.empty() || texts.microbatches.empty())
    return not_given(texts.stages.empty() ? "--stages" : "--microbatches", kSynopsis,
                     "tutti plan pipeline --stages 4 --microbatches 8");
  PipelineShape& shape = question.shape;
  shape.ranks = int(TUTTI_TRY(whole_number("--stages", texts.stages, 1, kMost)));
  shape.microbatches = int(TUTTI_TRY(whole_number("--microbatches", texts.microbatches, 1, kMost)));
  question.chunks_given = !texts.chunks.empty();
  if (question.chunks_given) shape.chunks = int(TUTTI_TRY(whole_number("--chunks", texts.chunks, 1, kMost)));
  if (!texts.group.empty()) shape.microbatch_group = int(TUTTI_TRY(whole_number("--group", texts.group, 1, kMost)));
  shape.forward_only = texts.forward_only;
  std::vector<std::string> names;
  for (const ScheduleKind kind : kScheduleKinds) names.emplace_back(name(kind));
  names.emplace_back("all");
  const std::size_t chosen = TUTTI_TRY(choose("--schedule", texts.schedule, names));
  question.all = chosen == std::size(kScheduleKinds);
  if (question.all)
    question.kinds.assign(std::begin(kScheduleKinds), std::end(kScheduleKinds));
  else
    question.kinds = {kScheduleKinds[chosen]};
  question.costs = {{TUTTI_TRY(real_number("--forward", texts.forward, 0, 1e9))},
                    {TUTTI_TRY(real_number("--backward-input", texts.backward_input, 0, 1e9))},
                    {TUTTI_TRY(real_number("--backward-weight", texts.backward_weight, 0, 1e9))},
                    TUTTI_TRY(real_number("--message", texts.message, 0, 1e9))};
  if (question.costs.forward[0] + question.costs.backward_input[0] + question.costs.backward_weight[0] <= 0)
    return usage("all costs are 0: then there is no picture to draw");
  return {};
}

struct Answer {
  Schedule schedule;
  Timeline timeline;
  std::optional<double> formula;
};

Answer answer(const Question& question, ScheduleKind kind) {
  PipelineShape shape = question.shape;
  if (!question.chunks_given)
    shape.chunks = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kZeroBubbleV ? 2 : 1;
  if (question.all && kind != ScheduleKind::kInterleaved) {
    shape.microbatch_group = 0;
    shape.chunks = kind == ScheduleKind::kZeroBubbleV ? 2 : 1;
  }
  if (question.all && kind == ScheduleKind::kInterleaved) shape.chunks = std::max(shape.chunks, 2);
  StageCosts costs = question.costs;
  for (auto* cost : {&costs.forward[0], &costs.backward_input[0], &costs.backward_weight[0]}) *cost /= shape.chunks;
  Answer answer{.schedule = make_schedule(kind, shape), .timeline = {}, .formula = {}};
  answer.timeline = simulate(answer.schedule, costs);
  answer.formula = bubble_by_formula(answer.schedule, costs);
  return answer;
}

std::string headline(const Answer& answer) {
  const PipelineShape& shape = answer.schedule.shape;
  return fmt::format("{}: {} rank{}{}, {} microbatch{}, bubble {:.1f} %", name(answer.schedule.kind), shape.ranks,
                     shape.ranks == 1 ? "" : "s", shape.chunks > 1 ? fmt::format(" x {} chunks", shape.chunks) : "",
                     shape.microbatches, shape.microbatches == 1 ? "" : "es", 100 * answer.timeline.bubble());
}

// In activations of all layers of a rank for one microbatch.
double most_kept(const Answer& answer, int rank) {
  return double(answer.timeline.most_kept(rank)) / answer.schedule.shape.chunks;
}
double most_kept(const Answer& answer) {
  double most = 0;
  for (int rank = 0; rank < answer.schedule.shape.ranks; ++rank) most = std::max(most, most_kept(answer, rank));
  return most;
}

std::string formula_words(const Answer& answer) {
  return answer.formula ? fmt::format("{:.1f} %", 100 * *answer.formula) : "none for this shape";
}

std::string to_text(const Question& question, const Answer& answer) {
  std::string text = headline(answer) + "\n" + draw_text(answer.timeline, question.columns);
  text += fmt::format("time {:g}, of which the busiest rank works {:g}; bubble by the formula: {}\n",
                      answer.timeline.length(), answer.timeline.length() / (1 + answer.timeline.bubble()),
                      formula_words(answer));
  if (question.shape.forward_only) return text;
  text += "kept at most (activations of a rank's layers for one microbatch):";
  for (int rank = 0; rank < answer.schedule.shape.ranks; ++rank) text += fmt::format(" {:g}", most_kept(answer, rank));
  return text + "\n";
}

std::string to_json(const Answer& answer) {
  const PipelineShape& shape = answer.schedule.shape;
  nlohmann::ordered_json line = {{"schedule", name(answer.schedule.kind)},
                                 {"ranks", shape.ranks},
                                 {"chunks", shape.chunks},
                                 {"microbatches", shape.microbatches},
                                 {"time", answer.timeline.length()},
                                 {"bubble", answer.timeline.bubble()}};
  if (answer.formula) line["bubble_by_formula"] = *answer.formula;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    line["most_kept"].push_back(most_kept(answer, rank));
    line["actions"].push_back(to_string(answer.schedule.actions[rank], shape.chunks));
  }
  return line.dump() + "\n";
}

void print_comparison(const std::vector<Answer>& answers) {
  fmt::print("{:<12} {:>6} {:>10} {:>9} {:>12} {:>10}\n", "schedule", "chunks", "time", "bubble", "by formula", "kept");
  for (const Answer& answer : answers)
    fmt::print("{:<12} {:>6} {:>10g} {:>7.1f} % {:>12} {:>10g}\n", name(answer.schedule.kind),
               answer.schedule.shape.chunks, answer.timeline.length(), 100 * answer.timeline.bubble(),
               answer.formula ? fmt::format("{:.1f} %", 100 * *answer.formula) : "-", most_kept(answer));
  fmt::print("\nkept: the most activations that a rank keeps, in those of all its layers for one microbatch\n");
}

constexpr std::uint64_t kMostMeasured = std::uint64_t(256) << 20;  // bytes of a file

Status draw_measured(const Texts& texts, int columns) {
  auto parsed = measured_pipeline(TUTTI_TRY(read_file(texts.measured, kMostMeasured)));
  if (!parsed.ok()) {
    Error error = parsed.error();
    error.operation = texts.measured;
    return error;
  }
  const Timeline& timeline = parsed->timeline;
  const std::string title = fmt::format("{}: bubble {:.1f} %", parsed->title, 100 * timeline.bubble());
  if (!texts.svg.empty()) TUTTI_TRY(write_picture(texts.svg, draw_svg(timeline, title, /*seconds=*/true)));
  std::vector<double> kept;
  for (int rank = 0; rank < int(timeline.ranks.size()); ++rank)
    kept.push_back(double(timeline.most_kept(rank)) / timeline.chunks);
  if (texts.json) {
    const nlohmann::ordered_json line = {{"title", parsed->title},      {"ranks", timeline.ranks.size()},
                                         {"chunks", timeline.chunks},   {"seconds", timeline.length()},
                                         {"bubble", timeline.bubble()}, {"most_kept", kept}};
    fmt::print("{}\n", line.dump());
    return {};
  }
  fmt::print("{}\n{}", title, draw_text(timeline, columns));
  fmt::print("time {}, of which the busiest rank works {}\n", seconds_text(timeline.length()),
             seconds_text(timeline.length() / (1 + timeline.bubble())));
  fmt::print("kept at most (activations of a rank's layers for one microbatch): {:g}\n", fmt::join(kept, " "));
  return {};
}

Status act(const Texts& texts) {
  Question question;
  TUTTI_TRY(interpret(texts, question));
  if (!texts.measured.empty()) return draw_measured(texts, question.columns);
  if (question.all && !texts.svg.empty()) return usage("--svg draws one schedule", "name it with --schedule");
  std::vector<Answer> answers;
  for (const ScheduleKind kind : question.kinds) answers.push_back(answer(question, kind));
  if (!texts.svg.empty()) TUTTI_TRY(write_picture(texts.svg, draw_svg(answers[0].timeline, headline(answers[0]))));
  if (texts.json) {
    for (const Answer& one : answers) fmt::print("{}", to_json(one));
  } else if (question.all) {
    print_comparison(answers);
  } else {
    fmt::print("{}", to_text(question, answers[0]));
  }
  return {};
}

}  // namespace
}  // namespace in_plan_pipeline

int plan_pipeline_command(std::vector<std::string> arguments) {
  using namespace in_plan_pipeline;
  CLI::App app("Draws a pipeline schedule, with its bubble and its memory.", "tutti plan pipeline");
  Texts texts;
  declare(app, texts);
  if (const auto code = parse(app, std::move(arguments))) return *code;
  try {
    act(texts).or_throw();
    return 0;
  } catch (const Exception& error) {
    report("tutti plan pipeline", error.error());
    return tutti::launch::exit_code_of(error.error().code);
  }
}

}  // namespace tutti::cli
