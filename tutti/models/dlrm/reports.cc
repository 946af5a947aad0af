#include "tutti/models/dlrm/reports.h"

#include <fmt/format.h>

#include <ctime>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/metrics/gather_trace.h"
#include "tutti/models/dlrm/graph.h"
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

void write_profile(const Group& world, const std::string& folder, const Trace& trace) {
  const auto prefix = folder + "/dlrm_s_pytorch" + time_stamp();
  write_chrome_trace(world, trace, prefix + ".json").or_throw();
  if (world.rank() != 0) return;
  write_file(prefix + "_shape.prof", profile_table(trace, {.by_detail = true})).or_throw();
  write_file(prefix + "_total.prof", profile_table(trace)).or_throw();
}

}  // namespace

RecorderOptions recorder_options(const Group& world, const ReportOptions& report) {
  RecorderOptions options{.step_scalars = false, .tensorboard_option = "--tensor-board-filename"};
  if (!report.tensor_board.empty()) options.tensorboard = report.out_dir + "/" + report.tensor_board;
  if (report.profiling)
    options.write_trace = [&world, folder = report.out_dir](const Trace& trace) {
      write_profile(world, folder, trace);
    };
  return options;
}

void write_graph(const Group& world, const ReportOptions& report, const Architecture& architecture) {
  if (!report.compute_graph || world.rank() != 0) return;
  const auto nodes = compute_graph(architecture);
  write_file(report.out_dir + "/dlrm_s_pytorch_graph.dot", dot_text(nodes)).or_throw();
  write_file(report.out_dir + "/dlrm_s_pytorch_graph.svg", svg_text(nodes)).or_throw();
}

}  // namespace tutti::dlrm
