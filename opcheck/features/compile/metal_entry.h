// Calls a kernel with arguments that are only known as pointers: for each kernel, OPCHECK_ENTRY(name) is a function
// that execute/kernels.py finds by its name.
#pragma once
#include <metal_stdlib>

extern "C" const char* opcheck_dispatch(
    void (*)(void* const*, const uint*), void (*)(), void* const*, const uint*, const uint*, int, int);

namespace opcheck {

template <typename... T> struct types {};

// One parameter at a time: buffers and numbers come from args, in their order; then the thread's positions.
template <typename F, typename... Done>
void call(F f, types<>, void* const*, const uint* const*, Done... done) {
  f(done...);
}
template <typename F, typename T, typename... Left, typename... Done>
void call(F f, types<T*, Left...>, void* const* args, const uint* const* at, Done... done) {
  call(f, types<Left...>(), args + 1, at, done..., (T*)*args);
}
template <typename F, typename T, typename... Left, typename... Done>
void call(F f, types<T&, Left...>, void* const* args, const uint* const* at, Done... done) {
  call(f, types<Left...>(), args + 1, at, done..., *(T*)*args);
}
template <typename F, typename... Left, typename... Done>
void call(F f, types<uint, Left...>, void* const* args, const uint* const* at, Done... done) {
  call(f, types<Left...>(), args, at + 1, done..., **at);
}
template <typename F, typename... Left, typename... Done>
void call(F f, types<uint2, Left...>, void* const* args, const uint* const* at, Done... done) {
  call(f, types<Left...>(), args, at + 1, done..., uint2((*at)[0], (*at)[1]));
}
template <typename F, typename... Left, typename... Done>
void call(F f, types<uint3, Left...>, void* const* args, const uint* const* at, Done... done) {
  call(f, types<Left...>(), args, at + 1, done..., uint3((*at)[0], (*at)[1], (*at)[2]));
}

template <auto F> struct entry;
template <typename... A, void (*F)(A...)> struct entry<F> {
  static void run(void* const* args, const uint* numbers) {
    const uint* const at[] = {numbers, numbers + 3};
    call(F, types<A...>(), args, at);
  }
};

} // namespace opcheck

#define OPCHECK_ENTRY(name)                                                                             \
  extern "C" const char* opcheck_##name(                                                                \
      void* const* args, const uint* grid, const uint* group, int together, int backwards) {            \
    return opcheck_dispatch(opcheck::entry<&name>::run, nullptr, args, grid, group, together, backwards);        \
  }
