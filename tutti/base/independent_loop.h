#pragma once
// TUTTI_INDEPENDENT before a loop: no iteration uses data that another iteration writes. So compilers may vectorize it
// without checking whether its pointers overlap. (Clang's own pragma warns about each loop that it then does not
// vectorize.)
#if defined(__clang__)
#define TUTTI_INDEPENDENT
#else
#define TUTTI_INDEPENDENT _Pragma("GCC ivdep")
#endif
