#pragma once
// The options of `tutti run`: as text, by the groups of its help, and what they mean for a job. An option is a member
// of its group's struct here (or of JobOptions, where the text is the meaning), a line in declare_GROUP() and, if it is
// not taken as it is, a line in interpret_GROUP(), which follow each other in run_options.cc.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "tutti/launch/job.h"

namespace tutti::cli {

struct RankTexts {
  std::string ranks;  // empty: 1
  std::string input;  // empty: 0
  bool module = false, no_python = false;
};
struct PlaceTexts {
  std::string visible = "all", bind, numa_binding;
};
struct NodeTexts {
  std::string nodes, node_rank, master_port, store_port;
  std::string backend = "static", endpoint, conf;
  std::string local_address;
  bool standalone = false;
  std::string connect_timeout = "5min";
};
struct SshTexts {
  std::string hosts, hostfile, shell;
  std::vector<std::string> variables;
};
struct OutputTexts {
  std::string only_ranks, quiet_ranks, redirects, tee, only_local_ranks, show = "all", level, format = "text";
  bool no_prefix = false, quiet = false;
};
struct SpeedTexts {
  bool no_tune = false, keep_memory = false;
};
struct WatchingTexts {
  std::string hang_timeout;
  std::string node_timeout = "2.5s";
};
struct HealingTexts {
  std::string max_restarts = "0", restart_pause = "100ms", no_progress = "3";
};
struct EndingTexts {
  std::string grace = "5s", signal_grace = "30s", time_limit;
};

struct RunTexts {
  RankTexts ranks;
  PlaceTexts places;
  NodeTexts nodes;
  SshTexts ssh;
  OutputTexts output;
  SpeedTexts speed;
  WatchingTexts watching;
  HealingTexts healing;
  EndingTexts ending;
  std::string elsewhere;                    // an option of torchrun that has no meaning here, if one was given
  std::vector<std::string> without_effect;  // options of torchrun that were given and change nothing here
};

// Torchrun's variables for options without a value, PET_STANDALONE and its like, are 1 or 0. kUsage: one is not.
Status check_flag_variables();
void declare(CLI::App& app, RunTexts& texts, launch::JobOptions& job);
// A value that nobody typed: which of torchrun's variables it came from, as a hint.
Error with_source(Error error);
// `rest` is what CLI11 left: the program and its arguments, perhaps after "--".
Status interpret(const RunTexts& texts, std::vector<std::string> rest, launch::JobOptions& job);

}  // namespace tutti::cli
