#pragma once
// The groups that a rank of a GPT's grid speaks in.
#include "tutti/comm/group.h"
#include "tutti/models/gpt/options.h"

namespace tutti::gpt {

struct GridGroups {
  Grid grid;
  Group world;
  Group tensor;         // who share every layer
  Group context;        // who share every sequence
  Group pipeline;       // by stage
  Group data;           // who have the same part of the model and other samples
  Group averaging;      // data and context: who average gradients
  Group model;          // tensor and pipeline: who have the whole model together
  Group embedding;      // who have the first and the last stage; on others none
  Group message_parts;  // MessageOptions::split_over: the tensor group, or none where messages travel whole
  int last_stage = 0;   // rank of the pipeline that has it; 0 has the first one
};

// Every rank calls; options: of for_world(). Throws Exception.
GridGroups make_grid_groups(const Group& world, const Options& options);

}  // namespace tutti::gpt
