#pragma once
// A timeline of a pipeline as a picture: a row for each rank, time to the right.
#include <string>

#include "tutti/planning/schedules/timeline.h"

namespace tutti {

// For a terminal: each action as its name where that fits, else as its letter; dots where a rank waits. `columns`: the
// width to fill, without the names of the rows; 0: as wide as the shortest action needs to show its name, at most 240.
std::string draw_text(const Timeline& timeline, int columns = 0);

// For a page: colours by kind of action, light or dark by chunk. `title` stands above (plain text), `seconds` makes the
// axis one of time, else it counts units.
std::string draw_svg(const Timeline& timeline, const std::string& title, bool seconds = false);

}  // namespace tutti
