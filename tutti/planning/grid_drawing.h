#pragma once
// Draws a Grid: a row per pipeline stage, and a column per rank of a stage. The ranks of a tensor group are side by
// side, and together they are a block. Blocks that differ in the context rank come next, then those that differ in the
// data rank. The picture does not depend on the grid's order; the numbers in it do.
#include <span>
#include <string>

#include "tutti/planning/grid.h"

namespace tutti {

// For a terminal. Shows the first blocks that fit in `columns`, at least one, and says how many are not shown.
std::string draw_text(const Grid& grid, int columns);

// For a web page. A color marks the host of a rank: host_of[rank], counted from 0. Where `host_of` is empty, it marks
// the stage. `title` is plain text above the drawing.
std::string draw_svg(const Grid& grid, std::span<const int> host_of, const std::string& title);

}  // namespace tutti
