// The picture of a plan: the memory of each pipeline rank, where the ranks are, and the pipeline.
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "apps/tutti/plan_train_report.h"
#include "tutti/base/text.h"
#include "tutti/planning/grid_drawing.h"
#include "tutti/planning/schedules/drawing.h"
#include "tutti/planning/training/explain.h"

namespace tutti::cli {
namespace {

constexpr int kMostDrawnRanks = 256;     // of a grid; of a larger one a replica is drawn
constexpr int kMostDrawnActions = 6000;  // of a pipeline; a longer step is drawn with fewer microbatches

// Pictures below one another.
class Stack {
 public:
  // `svg`: a whole drawing, whose view begins at 0 0.
  void add(const std::string& svg) {
    constexpr std::string_view kView = "viewBox=\"0 0 ";
    const std::size_t begin = svg.find(kView) + kView.size();
    const auto sizes = split(svg.substr(begin, svg.find('"', begin) - begin), ' ');
    const double width = parse_double(sizes.at(0)).value_or(0), height = parse_double(sizes.at(1)).value_or(0);
    body_ +=
        fmt::format("<svg y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\"{}", height_, width, height, svg.substr(4));
    width_ = std::max(width_, width);
    height_ += height;
  }
  std::string text() const {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\">\n"
        "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"#fff\"/>\n{2}</svg>\n",
        width_, height_, body_);
  }

 private:
  std::string body_;
  double width_ = 0, height_ = 0;
};

// A bar for each rank of the pipeline, with a line at the limit.
std::string draw_memory(const TrainQuestion& question, const RankedPlan& plan, double limit) {
  constexpr const char* kColours[] = {"#4e79a7", "#76b7b2", "#59a14f", "#f28e2b", "#edc948", "#b07aa1", "#9c755f"};
  constexpr int kLeft = 64, kTop = 44, kRow = 22, kWidth = 800;
  const int microbatches = plan.plan.microbatches(question.global_batch), ranks = plan.plan.pipeline;
  const double scale = kWidth / std::max(limit, plan.memory.total());
  const int bottom = kTop + ranks * kRow;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<text x=\"8\" y=\"24\" font-size=\"15\">memory of a rank of each stage; the line is the "
      "limit "
      "of {2}</text>\n",
      kLeft + kWidth + 16, bottom + 44, bytes_text(std::uint64_t(limit)));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto kinds =
        parts_of(planning::memory_of_rank(question.model, plan.plan, question.options.runtime, microbatches, rank));
    double x = kLeft;
    svg += fmt::format("<text x=\"8\" y=\"{}\">rank {}</text>\n", kTop + rank * kRow + 14, rank);
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      const double wide = kinds[i].second * scale;
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"><title>{} {}</title>"
          "</rect>\n",
          x, kTop + rank * kRow, wide, kRow - 4, kColours[i], kinds[i].first,
          bytes_text(std::uint64_t(kinds[i].second)));
      x += wide;
    }
  }
  svg += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#000\"/>\n",
                     kLeft + limit * scale, kTop - 6, bottom);
  double x = kLeft;
  const auto kinds = parts_of(plan.memory);
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    svg += fmt::format(
        "<rect x=\"{:.0f}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/><text x=\"{:.0f}\" y=\"{}\">"
        "{}</text>\n",
        x, bottom + 14, kColours[i], x + 16, bottom + 25, kinds[i].first);
    x += 40 + 7.0 * double(std::string_view(kinds[i].first).size());
  }
  return svg + "</svg>\n";
}

std::string draw_grid(const TrainQuestion& question, const ParallelPlan& plan) {
  const bool is_whole = plan.devices() <= kMostDrawnRanks;
  const int ranks = is_whole ? plan.devices() : plan.devices() / plan.data;
  const Grid grid(ranks, {.tensor = plan.tensor, .pipeline = plan.pipeline, .context = plan.context});
  const planning::NodeLayout layout(question.cluster);
  std::vector<int> node_of;
  for (int rank = 0; rank < ranks; ++rank) {
    // The replicas of a stage are between two stages, so of one replica the ranks are further apart.
    const int place = is_whole ? rank
                               : rank % (plan.tensor * plan.context) +
                                     grid.pipeline_rank(rank) * plan.tensor * plan.context * plan.data;
    node_of.push_back(layout.node_of(place));
  }
  return draw_svg(grid, node_of,
                  is_whole ? std::string("the ranks, by node")
                           : fmt::format("the ranks of one of {} replicas, by node", plan.data));
}

std::string draw_pipeline(const TrainQuestion& question, const ParallelPlan& plan) {
  const int all = plan.microbatches(question.global_batch);
  const int few = std::max(1, kMostDrawnActions / (3 * plan.stages()) / plan.pipeline) * plan.pipeline;
  const int microbatches = std::min(all, few);
  const planning::StepModel model(question.model, question.cluster, question.options.runtime,
                                  microbatches * plan.data * plan.micro_batch);
  const std::string title = microbatches == all
                                ? fmt::format("the pipeline of a step: {} microbatches", all)
                                : fmt::format("the pipeline with {} of {} microbatches", microbatches, all);
  return draw_svg(model.timeline(plan), title, true);
}

}  // namespace

std::string to_svg(const TrainQuestion& question, const RankedPlan& plan, double limit) {
  Stack stack;
  stack.add(draw_memory(question, plan, limit));
  stack.add(draw_grid(question, plan.plan));
  if (plan.plan.pipeline > 1) stack.add(draw_pipeline(question, plan.plan));
  return stack.text();
}

}  // namespace tutti::cli
