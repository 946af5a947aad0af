#pragma once
// One rank's part of `tutti bench`.
#include <string>
#include <vector>

#include "bench/collectives/measure.h"

namespace tutti::bench {

struct BenchOptions {
  std::vector<const Operation*> operations;
  std::vector<std::size_t> sizes;  // bytes, ascending
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  enum class Memory { kHeap, kPrivate, kCuda } memory = Memory::kHeap;
  std::string groups = "world";  // groups.h
  std::string engine;            // "": the world's own choice
  std::string transport;         // likewise
  std::string algorithm;         // likewise
  bool pin = true;               // each rank to a core of its own, where there are enough
  bool json = false;
  bool progress = false;    // a line on standard error that is written over
  bool is_started = false;  // by `tutti bench -n`, which tells itself, by its exit code, that not all was measured
  Method method;
};

// Joins the world that the environment tells of and measures; rank 0 prints. Exit code: 0, 1 if a result was wrong, 2,
// unless it is_started, if for an operation no size was large enough for an element, or the groups cannot be. Throws
// Exception.
int run_rank(const BenchOptions& options);

}  // namespace tutti::bench
