#pragma once
// A sum over numbered parts in an order that does not depend on who adds: over a fixed binary tree, in which the parts
// [begin, end) are two halves that meet at (begin + end) / 2. Who adds neighbouring parts that make a whole subtree,
// and then meets the others by the same tree, gets the same bits as one who adds all. (So do 2^k processes whose number
// divides that of the parts, each with its share of neighbours: the tree's upper levels lie between them.)

namespace tutti {

// Parts come in order. With part `part` of `parts` there, so many pairs of neighbouring sums become one: what a stack
// of sums has to add, each time the two topmost, for the tree.
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
