#pragma once
// Named axes of parallelism. Mesh({{"pp", 4}, {"dp", 2}, {"tp", 2}}) arranges 16 ranks as a grid in which the last axis
// varies fastest. The ranks that differ only along some axes form a group: along "tp" there are 8 groups of adjacent
// ranks, along "pp" 4 groups with stride 4. Pure arithmetic; comm creates Groups from it. Mistakes throw Exception.
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class Mesh {
 public:
  struct Axis {
    std::string name;
    int size;
  };
  // Names must be distinct and non-empty, sizes positive.
  explicit Mesh(std::vector<Axis> axes);

  int size() const { return size_; }  // total number of ranks
  std::span<const Axis> axes() const { return axes_; }
  int axis_size(std::string_view axis) const;
  bool has_axis(std::string_view axis) const;

  // The coordinate of a rank along one axis, or along all axes in the order of axes().
  int coordinate(int rank, std::string_view axis) const;
  std::vector<int> coordinates(int rank) const;
  int rank_at(std::span<const int> coordinates) const;

  // The ranks, ascending, that share all coordinates with `rank` except those along `along`.
  std::vector<int> group_of(int rank, std::span<const std::string> along) const;
  std::vector<int> group_of(int rank, std::string_view axis) const;
  // All such groups, ordered by their first rank.
  std::vector<std::vector<int>> groups(std::span<const std::string> along) const;
  std::vector<std::vector<int>> groups(std::string_view axis) const;
  // The index of the rank's group in groups(along): the color for Group::split().
  int group_index(int rank, std::span<const std::string> along) const;

  // "pp=4 x dp=2 x tp=2"
  std::string to_string() const;

 private:
  std::size_t index_of(std::string_view axis) const;
  void require_rank(int rank) const;

  std::vector<Axis> axes_;
  std::vector<int> strides_;
  int size_ = 1;
};

}  // namespace tutti
