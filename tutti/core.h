#pragma once
// Everything above the Torch line.
#include "tutti/comm/collectives.h"
#include "tutti/comm/group.h"
#include "tutti/comm/mesh_groups.h"
#include "tutti/comm/objects.h"
#include "tutti/launch/spawn.h"
#include "tutti/runtime/init.h"
