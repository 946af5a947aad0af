#pragma once
// TUTTI_INDEPENDENT before a loop: no turn of it needs what another wrote, so that compilers may vectorise it without
// asking whether its pointers overlap. (Clang's word for it warns of each loop that it then leaves alone.)
#if defined(__clang__)
#define TUTTI_INDEPENDENT
#else
#define TUTTI_INDEPENDENT _Pragma("GCC ivdep")
#endif
