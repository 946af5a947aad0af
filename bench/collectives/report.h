#pragma once
// What `tutti bench` prints.
#include <cstdio>
#include <string>

#include "bench/collectives/measure.h"

namespace tutti::bench {

// {"peer":"tutti","op":"all_reduce","ranks":2,"bytes":262144,"us":5.9,"us_min":5.7,"plan":"direct","p99_us":..,"max_us":..,"wrong":0}
std::string json_line(const Operation& operation, int ranks, const Figure& figure);

// The table for people: a head for each operation, a row for each size.
std::string table_head(const Operation& operation, int ranks, const std::string& circumstances);
std::string table_row(const Operation& operation, int ranks, const Figure& figure);
// How far the operation is from the speed of this host's memory: `copy` is copy_seconds() for the bytes of the figure.
std::string verdict(const Operation& operation, const Figure& figure, double copy);

}  // namespace tutti::bench
