#pragma once
// Everything above the Torch line.
#include "tutti/checkpoint/job_checkpoints.h"
#include "tutti/checkpoint/open.h"
#include "tutti/checkpoint/resume.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/group.h"
#include "tutti/comm/mesh_groups.h"
#include "tutti/comm/objects.h"
#include "tutti/launch/spawn.h"
#include "tutti/runtime/init.h"
