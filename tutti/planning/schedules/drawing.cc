#include "tutti/planning/schedules/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/base/text.h"

namespace tutti {
namespace {

// The time range to draw.
struct Span {
  double begin = std::numeric_limits<double>::infinity(), shortest = begin, end = 0;
  std::size_t longest_name = 1;
};
Span span_of(const Timeline& timeline) {
  Span span;
  for (const auto& actions : timeline.ranks)
    for (const TimedAction& timed : actions) {
      span.begin = std::min(span.begin, timed.begin), span.end = std::max(span.end, timed.end);
      if (timed.end > timed.begin) span.shortest = std::min(span.shortest, timed.end - timed.begin);
      span.longest_name = std::max(span.longest_name, to_string(timed.action, timeline.chunks).size());
    }
  if (span.end <= span.begin) span.begin = 0, span.end = 1;
  return span;
}

struct Colour {
  int red, green, blue;
};
// Forward is blue, backward and the gradient of the input are green, the gradient of the weights is brown. Each has a
// shade for the first and one for the last chunk.
struct Shades {
  Colour first, last;
};
constexpr Shades kForward{{92, 148, 214}, {196, 218, 244}}, kBackward{{104, 176, 114}, {200, 230, 204}},
    kWeight{{214, 158, 88}, {246, 224, 194}};

// "#5c94d6": not all SVG viewers support hsl().
std::string colour(const Action& action, int chunks) {
  const Shades& shades = action.kind == ActionKind::kForward          ? kForward
                         : action.kind == ActionKind::kBackwardWeight ? kWeight
                                                                      : kBackward;
  const double at = chunks > 1 ? double(action.chunk) / (chunks - 1) : 0;
  const auto between = [&](int first, int last) { return int(std::lround(first + at * (last - first))); };
  return fmt::format("#{:02x}{:02x}{:02x}", between(shades.first.red, shades.last.red),
                     between(shades.first.green, shades.last.green), between(shades.first.blue, shades.last.blue));
}

}  // namespace

std::string svg_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else
      result += c;
  }
  return result;
}

std::string draw_text(const Timeline& timeline, int columns) {
  constexpr int kMost = 240;
  const Span span = span_of(timeline);
  const double length = span.end - span.begin;
  if (columns <= 0)
    columns = int(std::min<double>(std::ceil(length / span.shortest * double(span.longest_name + 1)), kMost));
  const auto column = [&](double at) { return int(std::lround((at - span.begin) / length * columns)); };
  const std::size_t digits = std::to_string(timeline.ranks.size() - 1).size();
  std::string text;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    std::string row(std::size_t(columns), '.');
    for (const TimedAction& timed : timeline.ranks[rank]) {
      const int begin = column(timed.begin), width = column(timed.end) - begin;
      if (width <= 0) continue;
      std::string name = to_string(timed.action, timeline.chunks);
      if (int(name.size()) > width) name = name.substr(0, 1);
      // Leaves the last column free, so that adjacent actions can be distinguished.
      std::string cell = name + std::string(std::size_t(width) - name.size(), name.size() > 1 ? '-' : name[0]);
      if (width > 1 && int(name.size()) < width) cell.back() = ' ';
      row.replace(std::size_t(begin), std::size_t(width), cell);
    }
    text += fmt::format("rank {:>{}} |{}|\n", rank, digits, row);
  }
  return text;
}

std::string draw_svg(const Timeline& timeline, const std::string& title, bool seconds) {
  constexpr int kLeft = 64, kTop = 44, kRow = 26, kGap = 4;
  const Span span = span_of(timeline);
  const double length = span.end - span.begin;
  const double narrowest = span.shortest < length ? span.shortest : length;
  const double width = std::clamp(length / narrowest * double(7 * span.longest_name + 6), 480.0, 2400.0);
  const double scale = width / length;
  const int bottom = kTop + int(timeline.ranks.size()) * (kRow + kGap);
  const double full_width = kLeft + width + 16;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1}\" fill=\"#fff\"/>\n"
      "<text x=\"{2}\" y=\"24\" font-size=\"15\">{3}</text>\n",
      full_width, bottom + 64, kLeft, svg_text(title));
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const int y = kTop + int(rank) * (kRow + kGap);
    svg += fmt::format("<text x=\"8\" y=\"{}\">rank {}</text>\n", y + 17, rank);
    svg +=
        fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"#eee\"/>\n", kLeft, y, width, kRow);
    for (const TimedAction& timed : timeline.ranks[rank]) {
      const double x = kLeft + (timed.begin - span.begin) * scale, wide = (timed.end - timed.begin) * scale;
      const std::string name = to_string(timed.action, timeline.chunks);
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\" stroke=\"#fff\" stroke-width=\"0.7\">"
          "<title>{} {} to {}</title></rect>\n",
          x, y, wide, kRow, colour(timed.action, timeline.chunks), name,
          seconds ? seconds_text(timed.begin - span.begin) : fmt::format("{:g}", timed.begin - span.begin),
          seconds ? seconds_text(timed.end - span.begin) : fmt::format("{:g}", timed.end - span.begin));
      if (wide >= 7.0 * double(name.size()))
        svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\">{}</text>\n",
                           x + wide / 2, y + 17, name);
    }
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\">0</text><text x=\"{:.0f}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
                     kLeft, bottom + 14, kLeft + width, bottom + 14,
                     seconds ? seconds_text(length) : fmt::format("{:g}", length));
  constexpr struct {
    ActionKind kind;
    const char* words;
  } kLegend[] = {{ActionKind::kForward, "F forward"},
                 {ActionKind::kBackward, "B backward, I gradient of the input"},
                 {ActionKind::kBackwardWeight, "W gradient of the weights"}};
  double x = kLeft;
  for (const auto& [kind, words] : kLegend) {
    svg += fmt::format(
        "<rect x=\"{:.0f}\" y=\"{}\" width=\"14\" height=\"14\" fill=\"{}\"/><text x=\"{:.0f}\" y=\"{}\">{}</text>\n",
        x, bottom + 32, colour({kind, 0, 0}, 1), x + 20, bottom + 44, words);
    x += 44 + 6.4 * double(std::string_view(words).size());
  }
  return svg + "</svg>\n";
}

}  // namespace tutti
