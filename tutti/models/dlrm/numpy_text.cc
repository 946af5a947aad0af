// numpy looks at all numbers that it will print before it prints one: whether they need an exponent (above 1e8, below
// 1e-4, or more than 1000 apart), and how many digits they have on both sides of the point.
#include "tutti/models/dlrm/numpy_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti::dlrm {
namespace {

constexpr std::size_t kThreshold = 1000, kEdge = kEdgeRows, kLineWidth = 75;

// The entries of `count` that are shown, in order; a gap is marked by `count`.
std::vector<std::size_t> shown(std::size_t count, bool summarise) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < count; ++i) {
    if (summarise && count > 2 * kEdge && i == kEdge) {
      places.push_back(count);
      i = count - kEdge;
    }
    places.push_back(i);
  }
  return places;
}

class FloatText {
 public:
  FloatText(const std::vector<double>& values, int precision) : precision_(precision) {
    double largest = 0, smallest = INFINITY;
    for (double value : values) {
      if (!std::isfinite(value) || value == 0) continue;
      largest = std::max(largest, std::abs(value));
      smallest = std::min(smallest, std::abs(value));
    }
    exponent_ = largest >= 1e8 || (largest > 0 && (smallest < 1e-4 || largest / smallest > 1000));
    for (double value : values) {
      const auto text = digits(value);
      const auto point = text.find('.');
      if (point == std::string::npos) {
        left_ = std::max(left_, std::isfinite(value) ? text.size() : 0);
        special_ = std::max(special_, std::isfinite(value) ? 0 : text.size());
        continue;
      }
      left_ = std::max(left_, point);
      right_ = std::max(right_, mantissa_end(text) - point - 1);
    }
    special_ = special_ > left_ + 1 + right_ ? special_ : left_ + 1 + right_ + (exponent_ ? 4 : 0);
  }

  std::string operator()(double value) const {
    auto text = digits(value);
    if (!std::isfinite(value)) return std::string(special_ > text.size() ? special_ - text.size() : 0, ' ') + text;
    const auto point = text.find('.');
    text.insert(0, left_ - std::min(left_, point), ' ');
    const auto end = mantissa_end(text);
    const auto missing = right_ - std::min(right_, end - text.find('.') - 1);
    text.insert(end, missing, exponent_ ? '0' : ' ');
    return text;
  }

 private:
  static std::size_t mantissa_end(const std::string& text) { return std::min(text.find('e'), text.size()); }
  std::string digits(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    auto text = exponent_ ? fmt::format("{:.{}e}", value, precision_) : fmt::format("{:.{}f}", value, precision_);
    if (text.find('.') == std::string::npos) text.insert(mantissa_end(text), ".");
    for (auto end = mantissa_end(text); text[end - 1] == '0'; --end) text.erase(end - 1, 1);
    return text;
  }

  int precision_;
  bool exponent_ = false;
  std::size_t left_ = 0, right_ = 0, special_ = 0;
};

// "[a b c]", broken at numpy's line width; `indent` spaces stand before the lines that follow.
std::string bracketed(const std::vector<std::string>& words, std::size_t indent) {
  std::string text = "[";
  std::size_t column = indent;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0 && column + words[i].size() + 1 > kLineWidth) {
      text += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (i > 0) {
      text += " ";
      ++column;
    }
    text += words[i];
    column += words[i].size();
  }
  return text + "]";
}

}  // namespace

std::string numpy_text(std::span<const std::int64_t> vector) {
  std::vector<std::string> words;
  std::size_t width = 0;
  for (auto place : shown(vector.size(), vector.size() > kThreshold)) {
    words.push_back(place == vector.size() ? "..." : fmt::format("{}", vector[place]));
    if (words.back() != "...") width = std::max(width, words.back().size());
  }
  for (auto& word : words) {
    if (word != "...") word.insert(0, width - word.size(), ' ');
  }
  return bracketed(words, 1);
}

std::string numpy_text(std::span<const double> vector, int precision) {
  const auto places = shown(vector.size(), vector.size() > kThreshold);
  std::vector<double> values;
  for (auto place : places) {
    if (place < vector.size()) values.push_back(vector[place]);
  }
  const FloatText text(values, precision);
  std::vector<std::string> words;
  for (auto place : places) words.push_back(place == vector.size() ? "..." : text(vector[place]));
  return bracketed(words, 1);
}

bool is_summarised(std::size_t rows, std::size_t columns) { return rows > 2 * kEdge && rows * columns > kThreshold; }

namespace {

// `gap`: the row before which the rest is left out; `rows`: none.
std::string matrix_text(std::span<const double> matrix, std::size_t columns, int precision, std::size_t gap,
                        bool summarise) {
  const std::size_t rows = columns == 0 ? 0 : matrix.size() / columns;
  const auto places = shown(columns, summarise);
  std::vector<double> values;
  for (std::size_t row = 0; row < rows; ++row) {
    for (auto column : places) {
      if (column < columns) values.push_back(matrix[row * columns + column]);
    }
  }
  const FloatText text(values, precision);
  std::string out = "[";
  for (std::size_t row = 0; row < rows; ++row) {
    if (row > 0) out += "\n ";
    if (row == gap) out += "...\n ";
    std::vector<std::string> words;
    for (auto column : places) words.push_back(column == columns ? "..." : text(matrix[row * columns + column]));
    out += bracketed(words, 2);
  }
  return out + "]";
}

}  // namespace

std::string numpy_text(std::span<const double> matrix, std::size_t columns, int precision) {
  const std::size_t rows = columns == 0 ? 0 : matrix.size() / columns;
  if (!is_summarised(rows, columns)) return matrix_text(matrix, columns, precision, rows, matrix.size() > kThreshold);
  const auto edge = kEdge * columns;
  std::vector<double> edges(matrix.begin(), matrix.begin() + std::ptrdiff_t(edge));
  edges.insert(edges.end(), matrix.end() - std::ptrdiff_t(edge), matrix.end());
  return numpy_text_of_edges(edges, columns, precision);
}

std::string numpy_text_of_edges(std::span<const double> rows, std::size_t columns, int precision) {
  return matrix_text(rows, columns, precision, kEdge, true);
}

}  // namespace tutti::dlrm
