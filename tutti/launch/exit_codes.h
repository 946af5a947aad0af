#pragma once
// What `tutti run` exits with when it is not the code of a rank (docs/launching.md, "The end").

namespace tutti {

inline constexpr int kExitUsage = 2;         // wrong usage: a restart would not mend it
inline constexpr int kExitRendezvous = 4;    // the nodes did not meet, or lost one another
inline constexpr int kExitSaved = 75;        // told to stop, the ranks have saved: start the job again later
inline constexpr int kExitNoProgress = 93;   // it fails in the same place again and again: do not start it again
inline constexpr int kExitTimeLimit = 124;   // --timeout
inline constexpr int kExitReaderGone = 141;  // nobody reads the output: the code of `yes | head`, 128 + SIGPIPE
inline constexpr int kExitKilled = 137;      // 128 + SIGKILL

}  // namespace tutti
