#include "tutti/models/dlrm/recorder.h"

#include <fmt/format.h>

#include <ctime>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/checkpoint/io/replace_file.h"
#include "tutti/comm/agree.h"
#include "tutti/metrics/gather_trace.h"
#include "tutti/models/dlrm/graph.h"
#include "tutti/trace/event_file.h"
#include "tutti/trace/profile_table.h"
#include "tutti/trace/region.h"

namespace tutti::dlrm {
namespace {

// "2026-11-21_10:18:36", as the reference's file names have it.
std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}_{:02}:{:02}:{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace

Recorder::Recorder(const Group& world, const Options& options) : world_(world), options_(options) {
  agree(world, world.rank() == 0 ? prepare_folders() : Status()).or_throw();
  if (options.report.profiling) start_trace();
}

Recorder::~Recorder() = default;

// Better now than after an hour of training.
Status Recorder::prepare_folders() {
  const auto& report = options_.report;
  const bool writes_there = !report.tensor_board.empty() || report.profiling || report.compute_graph;
  if (writes_there) TUTTI_TRY(of_option("--out-dir", make_writable_folder(report.out_dir)));
  if (!report.save_model.empty()) TUTTI_TRY(of_option("--save-model", make_writable_folder(report.save_model)));
  if (report.tensor_board.empty()) return {};
  auto events = EventFile::create(path(report.tensor_board));
  TUTTI_TRY(of_option("--tensor-board-filename", events.status()));
  events_ = *std::move(events);
  return {};
}

void Recorder::train_loss(double loss, std::int64_t step) {
  if (events_) events_->add_scalar("Train/Loss", loss, step);
}

void Recorder::test_scores(const TestScores& scores, std::int64_t step) {
  if (!events_) return;
  events_->add_scalar("Test/Acc", scores.accuracy, step);
  if (!scores.ranked) return;
  events_->add_scalar("mlperf-metrics-test/recall", scores.recall, step);
  events_->add_scalar("mlperf-metrics-test/precision", scores.precision, step);
  events_->add_scalar("mlperf-metrics-test/f1", scores.f1, step);
  events_->add_scalar("mlperf-metrics-test/ap", scores.average_precision, step);
  events_->add_scalar("mlperf-metrics-test/roc_auc", scores.auc, step);
}

void Recorder::write_graph(const Architecture& architecture) const {
  if (!options_.report.compute_graph || world_.rank() != 0) return;
  const auto nodes = compute_graph(architecture);
  write_file(path("dlrm_s_pytorch_graph.dot"), dot_text(nodes)).or_throw();
  write_file(path("dlrm_s_pytorch_graph.svg"), svg_text(nodes)).or_throw();
}

void Recorder::write_profile() const {
  if (!options_.report.profiling) return;
  const auto trace = stop_trace();
  const auto prefix = path("dlrm_s_pytorch" + time_stamp());
  write_chrome_trace(world_, trace, prefix + ".json").or_throw();
  if (world_.rank() != 0) return;
  write_file(prefix + "_shape.prof", profile_table(trace, {.by_detail = true})).or_throw();
  write_file(prefix + "_total.prof", profile_table(trace)).or_throw();
}

}  // namespace tutti::dlrm
