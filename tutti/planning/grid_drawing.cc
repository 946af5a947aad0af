#include "tutti/planning/grid_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tutti/planning/schedules/drawing.h"

namespace tutti {
namespace {

// The ranks of a stage from left to right.
struct Columns {
  struct Column {
    int data, context, tensor;
  };
  explicit Columns(const Grid& grid) : grid(grid), block(grid.tensor_size()) {
    for (int data = 0; data < grid.data_size(); ++data)
      for (int context = 0; context < grid.context_size(); ++context)
        for (int tensor = 0; tensor < grid.tensor_size(); ++tensor) columns.push_back({data, context, tensor});
  }
  // The rank of a stage in a column.
  int rank(int stage, std::size_t column) const {
    const Column& at = columns[column];
    std::vector<int> coordinates;
    for (const Mesh::Axis& axis : grid.mesh().axes())
      coordinates.push_back(axis.name == "tp"   ? at.tensor
                            : axis.name == "cp" ? at.context
                            : axis.name == "dp" ? at.data
                            : axis.name == "pp" ? stage
                                                : 0);
    return grid.mesh().rank_at(coordinates);
  }

  const Grid& grid;
  int block;  // columns of a tensor group
  std::vector<Column> columns;
};

// A coordinate above the columns.
struct Header {
  const char* axis;
  int size;
  int Columns::Column::*coordinate;
};
std::vector<Header> headers_of(const Grid& grid) {
  std::vector<Header> headers;
  for (const Header& header : {Header{"dp", grid.data_size(), &Columns::Column::data},
                               {"cp", grid.context_size(), &Columns::Column::context},
                               {"tp", grid.tensor_size(), &Columns::Column::tensor}})
    if (header.size > 1) headers.push_back(header);
  return headers;
}

// "rank 5: tp 1, dp 0, pp 2"
std::string words_of(const Grid& grid, int rank) {
  std::string text = fmt::format("rank {}", rank);
  const char* before = ": ";
  const auto axes = grid.mesh().axes();
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    if (axis->size == 1) continue;
    text += fmt::format("{}{} {}", before, axis->name, grid.mesh().coordinate(rank, axis->name));
    before = ", ";
  }
  return text;
}

constexpr std::array<const char*, 8> kFills = {"#a9c8ee", "#b4dcb8", "#f2d6a8", "#dcbfe6",
                                               "#f3bdb8", "#b6dede", "#d9d9a6", "#cfcfcf"};

}  // namespace

std::string draw_text(const Grid& grid, int columns) {
  const Columns layout(grid);
  const std::vector<Header> headers = headers_of(grid);
  // Wide enough for the largest rank, and for a coordinate such as "tp 15".
  std::size_t width = std::to_string(grid.size() - 1).size();
  for (const Header& header : headers)
    if (header.axis == std::string_view("tp") || layout.block == 1)
      width = std::max(width, 3 + std::to_string(header.size - 1).size());
  const std::size_t label = grid.pipeline_size() > 1 ? 3 + std::to_string(grid.pipeline_size() - 1).size() : 0;
  const std::size_t gap = layout.block > 1 ? 3 : 1;  // before a block
  const std::size_t wide = gap + std::size_t(layout.block) * (width + 1) - 1;
  const std::size_t blocks = layout.columns.size() / std::size_t(layout.block);
  std::size_t shown = std::size_t(std::max(columns, 1)) > label ? (std::size_t(columns) - label) / wide : 1;
  shown = std::clamp<std::size_t>(shown, 1, blocks);
  const std::size_t cells = shown * std::size_t(layout.block);

  const auto separator = [&](std::size_t column) {
    return std::string(column % std::size_t(layout.block) == 0 ? gap : 1, ' ');
  };
  std::string text;
  for (const Header& header : headers) {
    std::string line(label, ' ');
    for (std::size_t column = 0; column < cells; ++column) {
      const int here = layout.columns[column].*header.coordinate;
      // An outer coordinate is written once, above the first of its columns.
      const bool fresh = column == 0 || header.coordinate == &Columns::Column::tensor ||
                         layout.columns[column - 1].*header.coordinate != here ||
                         layout.columns[column - 1].data != layout.columns[column].data;
      line += separator(column) + fmt::format("{:>{}}", fresh ? fmt::format("{} {}", header.axis, here) : "", width);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  for (int stage = 0; stage < grid.pipeline_size(); ++stage) {
    std::string line = label > 0 ? fmt::format("{:<{}}", fmt::format("pp {}", stage), label) : "";
    for (std::size_t column = 0; column < cells; ++column)
      line += separator(column) + fmt::format("{:>{}}", layout.rank(stage, column), width);
    text += line + "\n";
  }
  if (shown < blocks)
    text += fmt::format("not shown: {} more {}, to the right\n", (blocks - shown) * std::size_t(layout.block),
                        (blocks - shown) * std::size_t(layout.block) == 1 ? "column" : "columns");
  return text;
}

std::string draw_svg(const Grid& grid, std::span<const int> host_of, const std::string& title) {
  constexpr int kLeft = 58, kTop = 40, kCell = 40, kHigh = 26, kGap = 12, kHeader = 16;
  constexpr std::size_t kMostAcross = 48;  // cells; further blocks are drawn below
  const Columns layout(grid);
  const std::vector<Header> headers = headers_of(grid);
  const std::size_t block = std::size_t(layout.block), blocks = layout.columns.size() / block;
  const std::size_t across = std::clamp<std::size_t>(kMostAcross / block, 1, blocks);
  const std::size_t bands = (blocks + across - 1) / across;
  const int stages = grid.pipeline_size();
  const int band_high = int(headers.size()) * kHeader + stages * (kHigh + 4) + 18;
  const int block_wide = int(block) * kCell + kGap;
  const int hosts = host_of.empty() ? 0 : *std::max_element(host_of.begin(), host_of.end()) + 1;
  const int full_width = std::max(kLeft + int(across) * block_wide + 8, 420);
  const int full_height = kTop + int(bands) * band_high + 30;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n"
      "<text x=\"8\" y=\"24\" font-size=\"15\">{2}</text>\n",
      full_width, full_height, svg_text(title));
  const auto x_of = [&](std::size_t column) {
    const std::size_t in_band = column % (across * block);
    return kLeft + int(in_band / block) * block_wide + int(in_band % block) * kCell;
  };
  for (std::size_t band = 0; band < bands; ++band) {
    const int top = kTop + int(band) * band_high;
    const std::size_t begin = band * across * block, end = std::min(begin + across * block, layout.columns.size());
    int y = top;
    for (const Header& header : headers) {
      y += kHeader;
      for (std::size_t column = begin; column < end; ++column) {
        const int here = layout.columns[column].*header.coordinate;
        const bool inner = header.coordinate == &Columns::Column::tensor;
        if (!inner && column % block != 0) continue;
        svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\">{} {}</text>\n",
                           x_of(column) + (inner ? kCell : int(block) * kCell) / 2, y - 4, header.axis, here);
      }
    }
    for (int stage = 0; stage < stages; ++stage, y += kHigh + 4) {
      if (stages > 1) svg += fmt::format("<text x=\"8\" y=\"{}\">pp {}</text>\n", y + 17, stage);
      for (std::size_t column = begin; column < end; ++column) {
        const int rank = layout.rank(stage, column);
        const int host = host_of.empty() ? -1 : host_of[std::size_t(rank)];
        svg += fmt::format(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#fff\"><title>{}{}</title></rect>"
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
            x_of(column), y, kCell, kHigh, kFills[std::size_t(host < 0 ? stage : host) % kFills.size()],
            words_of(grid, rank), host < 0 ? "" : fmt::format(", host {}", host), x_of(column) + kCell / 2, y + 17,
            rank);
        if (block > 1 && column % block == block - 1)
          svg += fmt::format(
              "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#555\" rx=\"4\"/>\n",
              x_of(column - (block - 1)) - 1, y - 1, int(block) * kCell + 2, kHigh + 2);
      }
    }
  }
  const std::string legend = host_of.empty() ? std::string("A color is a stage.")
                             : hosts > int(kFills.size())
                                 ? fmt::format("A color is a host; {} hosts share {} colors.", hosts, kFills.size())
                                 : fmt::format("A color is one of {} {}.", hosts, hosts == 1 ? "host" : "hosts");
  return svg + fmt::format("<text x=\"8\" y=\"{}\">{}{}</text>\n</svg>\n", full_height - 14, legend,
                           block > 1 ? " A frame is a tensor group." : "");
}

}  // namespace tutti
