#pragma once
// The one place where the version is written; CMakeLists.txt, the package files and `tutti --version` read it here.
#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0
#define TUTTI_VERSION "0.1.0"
