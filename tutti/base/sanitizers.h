#pragma once
// Which sanitizers this file is compiled with: 0 or 1 each. g++ and clang say it in different ways.
#if defined(__has_feature)  // clang
#if __has_feature(address_sanitizer)
#define TUTTI_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define TUTTI_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TUTTI_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define TUTTI_TSAN 1
#endif
#ifndef TUTTI_ASAN
#define TUTTI_ASAN 0
#endif
#ifndef TUTTI_TSAN
#define TUTTI_TSAN 0
#endif
