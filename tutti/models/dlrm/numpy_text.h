#pragma once
// Arrays as numpy prints them, for --debug-mode: digits up to a precision, trailing zeros left out, columns aligned,
// three entries at each end of what has more than a thousand.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::dlrm {

std::string numpy_text(std::span<const std::int64_t> vector);
std::string numpy_text(std::span<const double> vector, int precision);
// [rows, columns], row by row.
std::string numpy_text(std::span<const double> matrix, std::size_t columns, int precision);
// The same of a large matrix (is_summarised) of which only the first and the last kEdgeRows rows are at hand.
std::string numpy_text_of_edges(std::span<const double> rows, std::size_t columns, int precision);

inline constexpr std::int64_t kEdgeRows = 3;
// Whether rows are left out of the text of such a matrix.
bool is_summarised(std::size_t rows, std::size_t columns);

}  // namespace tutti::dlrm
