#pragma once
// What `tutti bench` prints.
#include <cstdio>
#include <string>

#include "bench/collectives/measure.h"

namespace tutti::bench {

// What all figures of a run have in common.
struct Circumstances {
  std::string engine = "tutti";
  int ranks = 0;   // in a group
  int groups = 1;  // at once
  int hosts = 1;
  std::string dtype = "f32", op = "sum", memory = "heap";
  bool rewrite = false;
  bool pinned = false;
};

// One line with the keys of the peers (peer, op, ranks, bytes, us, us_min) and those of the circumstances and columns:
// {"peer":"tutti","op":"all_reduce","ranks":2,"bytes":262144,"us":5.9,"us_min":5.7,"p50_us":..,"p99_us":..,...}
std::string json_line(const Operation& operation, const Circumstances& where, const Figure& figure);

// The line of an operation that was not measured, and why: {"peer":"tutti","op":"all_to_all","ranks":4,
// "not_measured":"no size from ..."}
std::string json_not_measured(const Operation& operation, const Circumstances& where, const std::string& why);

// The table for people: a head for each operation, a row for each size.
std::string table_head(const Operation& operation, const Circumstances& where);
std::string table_row(const Operation& operation, const Circumstances& where, const Figure& figure);
// How far the operation is from what the memory or the wire gives, and whether its results were right.
std::string verdict(const Operation& operation, const Circumstances& where, const Figure& last, std::size_t wrong);

}  // namespace tutti::bench
