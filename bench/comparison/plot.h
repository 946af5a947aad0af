#pragma once
// A picture of time against size, made by gnuplot.
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::bench {

struct Plot {
  std::string title;
  struct Series {
    std::string name;
    std::vector<std::pair<std::size_t, double>> points;  // bytes, microseconds
    bool is_limit = false;                               // drawn as a dashed line without marks
  };
  std::vector<Series> series;
};

// What is wrong with drawing into this file, before hours are spent on figures for it: the name has to end in .svg or
// .png, its folder has to exist, gnuplot to be here.
Status can_plot(const std::string& file);
// The script for gnuplot. Sizes and times on logarithmic axes.
std::string script_for(const Plot& plot, const std::string& file);
Status draw(const Plot& plot, const std::string& file);

}  // namespace tutti::bench
