#pragma once
// Each rank's share of the machine: hardware threads, a GPU, and the arguments that depend on the rank.
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/launch/affinity/binding.h"

namespace tutti::launch {

struct ShareOptions {
  Bind bind = Bind::kNone;
  bool near_gpus = false;           // bind to the NUMA nodes of the ranks' GPUs, if they have any
  std::string devices;              // "0,2-3": positions in the list of visible GPUs; empty: all of them
  bool one_device_each = false;     // each rank sees only its own GPU, as CUDA's number 0
  bool virtual_local_rank = false;  // one_device_each, and LOCAL_RANK is 0, as torchrun's option of this name
  bool pass_local_rank = false;     // --local-rank=N behind the program's arguments
};

// The share of one rank. Empty members stay as this process has them.
struct Share {
  std::vector<int> cpus;
  std::string gpu;        // its name; empty: it sees none
  Environment variables;  // to set

  // "CPU 0-3, GPU 2", for the table of ranks.
  std::string text() const;
};

// The GPUs that the job may use, by name: those of `visible` that `list` ("0,2-3", --devices) chooses; all if it is
// empty.
Result<std::vector<std::string>> chosen_devices(const std::string& list, const std::vector<std::string>& visible);

// The shares of `ranks` ranks by local rank. `visible`: visible_gpus() of this process. `topology` is not used for
// Bind::kNone. `near`: as for bind_ranks(). kUsage: a GPU each for more ranks than there are GPUs.
Result<std::vector<Share>> share_out(const ShareOptions& options, const Topology& topology,
                                     const std::vector<std::string>& visible, int ranks,
                                     const std::vector<int>& near = {});

// $NAME and ${NAME} become their values, $$ becomes $, all else stays: Template.safe_substitute() of Python.
std::string substituted(std::string_view text, const Environment& values);

// The arguments of one rank: every ${local_rank} becomes its number, as in torchrun.
std::vector<std::string> arguments_of_rank(const std::vector<std::string>& arguments, int local_rank,
                                           bool pass_local_rank);

}  // namespace tutti::launch
