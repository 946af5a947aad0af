#pragma once
// Which rank steps which elements of which parameter, and where weights lie so that ranks of one host reach them.
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/optim/rule_state.h"

namespace tutti {

// Elements of a parameter that is cut into equal parts of whole cache lines, one a rank; what is left after the last
// belongs to every rank alike.
struct Cut {
  std::int64_t part = 0, ranks = 1, count = 0;
  Run of(int rank) const { return {part * rank, part}; }
  Run tail() const { return {part * ranks, count - part * ranks}; }
};
Cut cut_evenly(std::int64_t count, std::int64_t element_bytes, int ranks);

// A parameter, and what of it is this rank's.
struct Shard {
  std::string name;
  at::Tensor weight;  // the whole, detached
  DType dtype = DType::kF32;
  std::size_t group = 0;            // of parameters: which rule steps it
  bool counts = true;               // in norms over several ranks' parts of a model: no other rank has it as well
  bool large = true;                // cut for itself, as Cut says; small ones are cut together
  Run mine;                         // stepped by this rank alone
  Run tail;                         // stepped by every rank
  std::vector<std::byte*> weights;  // of all ranks; empty: out of reach
  RuleState state;                  // of mine, then of the tail

  // In a step:
  at::Tensor gradient;  // of this rank, not averaged; undefined: none, or let go
  bool averaged = false;
  at::Tensor mine_average, tail_average;  // of its elements, once `averaged`

  std::int64_t element_bytes() const { return std::int64_t(size_of(dtype)); }
  std::byte* weight_at(std::int64_t element) const {  // on the CPU
    return static_cast<std::byte*>(weight.data_ptr()) + element * element_bytes();
  }
  void end_step();
};

// The weights of all small parameters of one type on one device, one after another: cut as a whole, and gathered as
// one.
struct Pack {
  at::Tensor weights;  // [ranks * part]
  std::int64_t part = 0;
};

struct Shards {
  std::vector<Shard> all;  // by parameter
  std::vector<Pack> packs;
};

// Every rank calls. With more than one rank the parameters' memory becomes the group's where it is on the CPU (the
// tensors stay the same), one parameter after another, so that no more than one is there twice.
Shards make_shards(const Group& group, const std::string& rule, const std::vector<std::string>& names,
                   const std::vector<at::Tensor>& parameters, const std::vector<bool>& large);

}  // namespace tutti
