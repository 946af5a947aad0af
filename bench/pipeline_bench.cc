// pipeline_bench: the bubble of each schedule, and what the interpreter and a message cost.
//
//   tutti run -n 4 pipeline_bench [MILLISECONDS] [FOLDER]
//
// Four ranks, eight microbatches, stages of equal known cost: a timed wait stands for compute, so that four ranks on
// two cores wait for one another and not for a core. MILLISECONDS (50): of a rank's forward of a microbatch; the
// gradients of inputs and of weights take as long each. Of three steps the median counts. FOLDER: measured steps are
// written there, for `tutti plan pipeline --measured`. Ends with 1 if a bubble is more than 1.05 of its formula, that
// of zb-h1 more than a third of 1f1b's and 5 %, or an action costs 20 us or more.
//
// The cost of an action is looked for where nobody waits: the middle one of three ranks takes three times as long as
// its neighbours, so whatever it needs is there, and what lies between the end of one action and the beginning of the
// next is the interpreter's: a receive is made ready, one is taken, one tensor is sent. The floor is the same by the
// calls of the group alone, without schedule and tensors.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/pipeline/pipeline.h"
#include "tutti/planning/schedules/measured.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/weight_gradients.h"

namespace {

using namespace tutti;

struct Labour {
  Duration time;
  bool busy = false;  // keeps the core awake, as compute does; else sleeps
};

void wait(const Labour& work) {
  if (!work.busy) return std::this_thread::sleep_for(work.time);
  for (const auto begin = now(); now() - begin < work.time;) {
  }
}

// A stage that takes its time, in forward and for each of the two gradients.
struct Waiting : torch::autograd::Function<Waiting> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor&,
                            std::int64_t nanoseconds, bool busy) {
    context->saved_data["time"] = nanoseconds;
    context->saved_data["busy"] = busy;
    wait({Duration(nanoseconds), busy});
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const Labour half{Duration(context->saved_data["time"].toInt()), context->saved_data["busy"].toBool()};
    wait(half);
    if (WeightGradients* const later = WeightGradients::current())
      later->put([half] { wait(half); });
    else
      wait(half);
    return {gradients[0], at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

constexpr std::int64_t kElements = 256;

std::vector<Chunk> waiting_chunks(const Schedule& schedule, int rank, const Labour& work) {
  std::vector<Chunk> chunks;
  for (int c = 0; c < schedule.shape.chunks; ++c) {
    const bool is_last = schedule.stage_of(rank, c) == schedule.shape.stages() - 1;
    const at::Tensor weight = at::zeros({}).requires_grad_();
    chunks.push_back([=](int, const at::Tensor& input) {
      const at::Tensor x = input.defined() ? input : at::ones({kElements});
      const at::Tensor y = Waiting::apply(x, weight, std::int64_t(work.time.count()), work.busy);
      return is_last ? y.sum() : y;
    });
  }
  return chunks;
}

PipelineOptions options() { return {.messages = {.sizes = {kElements}}, .record_times = true}; }

double measured_bubble(const Group& world, const Schedule& schedule, Duration time, const std::string& folder) {
  Pipeline pipeline(world, waiting_chunks(schedule, world.rank(), {time / schedule.shape.chunks}), options());
  std::vector<std::pair<double, Timeline>> steps;
  for (int step = 0; step < 4; ++step) {
    barrier(world);
    const StepResult result = pipeline.run(schedule);
    Timeline timeline = measured_timeline(world, schedule, result.times);
    if (step > 0) steps.emplace_back(timeline.bubble(), std::move(timeline));
  }
  std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto& [bubble, timeline] = steps[steps.size() / 2];
  if (world.rank() == 0 && !folder.empty()) {
    const std::string title = fmt::format("{}, measured: {} ranks, {} microbatches", name(schedule.kind),
                                          schedule.shape.ranks, schedule.shape.microbatches);
    write_file(fmt::format("{}/{}.json", folder, name(schedule.kind)), to_json({title, timeline})).or_throw();
  }
  return bubble;
}

bool bubbles(const Group& world, Duration time, const std::string& folder) {
  bool good = true;
  double of_1f1b = 0;
  if (world.rank() == 0) fmt::print("{:<12} {:>9} {:>11} {:>7}\n", "schedule", "bubble", "by formula", "ratio");
  for (const ScheduleKind kind : kScheduleKinds) {
    const bool chunked = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kZeroBubbleV;
    const Schedule schedule =
        make_schedule(kind, {.ranks = world.size(), .microbatches = 8, .chunks = chunked ? 2 : 1});
    const double bubble = measured_bubble(world, schedule, time, folder), formula = *bubble_by_formula(schedule);
    if (world.rank() == 0)
      fmt::print("{:<12} {:>7.2f} % {:>9.2f} % {:>7.3f}\n", name(kind), 100 * bubble, 100 * formula, bubble / formula);
    good &= bubble <= 1.05 * formula;
    if (kind == ScheduleKind::kOneForwardOneBackward) of_1f1b = bubble;
    if (kind == ScheduleKind::kZeroBubbleH1) good &= bubble <= of_1f1b / 3 * 1.05;
  }
  return good;
}

struct Gap {
  double median = 0, p90 = 0;
};
Gap gap_of(std::vector<double> gaps) {
  std::sort(gaps.begin(), gaps.end());
  return {1e6 * gaps[gaps.size() / 2], 1e6 * gaps[gaps.size() * 9 / 10]};
}

constexpr int kMicrobatches = 400;
// The middle rank is busy, or sleeps; the others sleep.
Labour work_of(int rank, bool busy) { return {std::chrono::microseconds(rank == 1 ? 600 : 100), busy && rank == 1}; }

// Of the middle rank, between actions that are followed by one of their kind.
Gap interpreter(const Group& three, bool busy) {
  const Schedule schedule = make_schedule(ScheduleKind::kFillDrain, {.ranks = 3, .microbatches = kMicrobatches});
  Pipeline pipeline(three, waiting_chunks(schedule, three.rank(), work_of(three.rank(), busy)), options());
  pipeline.run(schedule);
  const StepResult result = pipeline.run(schedule);
  std::vector<double> gaps;
  for (std::size_t i = 1; i < result.times.size(); ++i)
    if (result.times[i].action.kind == result.times[i - 1].action.kind)
      gaps.push_back(result.times[i].begin - result.times[i - 1].end);
  return gap_of(std::move(gaps));
}

// The same messages forward by the calls of the group.
Gap floor_of(const Group& three, bool busy) {
  const int rank = three.rank();
  std::vector<std::vector<float>> in(kMicrobatches, std::vector<float>(kElements)), out = in;
  std::vector<Work> receives(kMicrobatches), sends;
  std::vector<double> gaps;
  const auto receive = [&](int i) {
    if (rank > 0 && i < kMicrobatches)
      receives[std::size_t(i)] = irecv(three, std::span(in[std::size_t(i)]), rank - 1, i);
  };
  receive(0);
  for (int i = 0; i < kMicrobatches; ++i) {
    const auto begin = now();
    receive(i + 1);
    receives[std::size_t(i)].get();
    const Duration before = now() - begin;
    wait(work_of(rank, busy));
    const auto after = now();
    if (rank < 2) sends.push_back(isend(three, std::span<const float>(out[std::size_t(i)]), rank + 1, i));
    if (i > 0) gaps.push_back(to_seconds(before + (now() - after)));
  }
  for (const Work& send : sends) send.get();
  return gap_of(std::move(gaps));
}

bool costs(const Group& world) {
  const std::vector<int> first{0, 1, 2};
  const Group three = world.new_group(first).or_throw();
  bool good = true;
  for (const bool busy : {true, false}) {
    std::array<double, 4> figures{};
    if (three) {
      const Gap ours = interpreter(three, busy), floor = floor_of(three, busy);
      figures = {ours.median, ours.p90, floor.median, floor.p90};
    }
    broadcast(world, std::span<double>(figures), 1);
    if (world.rank() == 0)
      fmt::print(
          "an action, between stages that {}: {:.1f} us (p90 {:.1f}); its messages alone: {:.1f} us (p90 {:.1f})\n",
          busy ? "compute" : "sleep", figures[0], figures[1], figures[2], figures[3]);
    if (busy) good = figures[0] < 20;
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  int milliseconds = 50;
  if (argc > 3 ||
      (argc >= 2 && (std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), milliseconds).ec != std::errc() ||
                     milliseconds < 1))) {
    fmt::print(stderr, "usage: tutti run -n 4 pipeline_bench [MILLISECONDS, at least 1] [FOLDER]\n");
    return 2;
  }
  const std::string folder = argc == 3 ? argv[2] : "";
  if (!folder.empty()) std::filesystem::create_directories(folder);
  at::set_num_threads(1);
  const Group world = init();
  if (world.size() != 4) {
    fmt::print(stderr, "pipeline_bench: {} ranks, expected 4: tutti run -n 4 pipeline_bench\n", world.size());
    return 2;
  }
  const bool small = bubbles(world, std::chrono::milliseconds(milliseconds), folder), cheap = costs(world);
  return all_reduce(world, std::int32_t(small && cheap), ReduceOp::kMin) == 1 ? 0 : 1;
}
