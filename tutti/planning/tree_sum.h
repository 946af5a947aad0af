#pragma once
// A sum over numbered parts in an order that does not depend on which process adds. It uses a fixed binary tree, in
// which the parts [begin, end) are two halves that meet at (begin + end) / 2. A process may add the adjacent parts of a
// whole subtree and then combine its sum with those of other processes by the same tree. It gets the same bits as a
// process that adds all parts. (For example 2^k processes, if 2^k divides the number of parts and each has an equal
// share of adjacent parts: the upper levels of the tree are then between the processes.)

namespace tutti {

// For parts that arrive in order. The number of pairs of adjacent sums to merge once part `part` of `parts` has
// arrived. A stack of sums adds its two topmost entries that many times.
constexpr int merges_after(int part, int parts) {
  int merges = 0;
  for (int begin = 0, end = parts; end - begin > 1;) {
    if (end == part + 1) ++merges;
    const int middle = begin + (end - begin) / 2;
    (part < middle ? end : begin) = middle;
  }
  return merges;
}

}  // namespace tutti
