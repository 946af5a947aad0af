#pragma once
// Draws the timeline of a pipeline: one row per rank, time to the right.
#include <string>

#include "tutti/planning/schedules/timeline.h"

namespace tutti {

// For a terminal. Shows each action by its name if it fits, otherwise by its letter, and waiting as dots. `columns` is
// the width to fill, without the row labels. 0: wide enough for the name of the shortest action, at most 240.
std::string draw_text(const Timeline& timeline, int columns = 0);

// For a web page. The color shows the kind of action, its lightness the chunk. `title` is plain text above the drawing.
// With `seconds` the axis shows time; otherwise it shows units.
std::string draw_svg(const Timeline& timeline, const std::string& title, bool seconds = false);

// Plain text as the content of an element of a drawing.
std::string svg_text(const std::string& text);

}  // namespace tutti
