#pragma once
// The same matrix kernels however a trainer is started.

namespace tutti::cli {

// OpenBLAS chooses its kernels when it is loaded, and results of different kernels differ in their last bits.
// `tutti run` chooses for its ranks, by OPENBLAS_CORETYPE. A program that promises the same bits calls this before it
// meets other ranks: if OpenBLAS has chosen other kernels, the program executes itself again, once, with that variable.
// A choice of the user stays.
void use_kernels_of_tutti_run();

}  // namespace tutti::cli
