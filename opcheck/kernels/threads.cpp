// The threads of a Metal kernel as fibers of one CPU thread: each runs until it needs the others.
//
// A threadgroup's threads stop at a barrier until all of them are there.  The 32 lanes of a simdgroup stop where they
// exchange values until no lane of theirs can run: those that are there by then are the active ones.  Kernels that rely
// on lanes in lockstep stop before each store as well, until every lane has made the loads that come before it.
//
// A body gets the kernel's arguments and the numbers of its thread, in the order of `Numbers` (lowering.py, POSITIONS).
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

namespace {

constexpr unsigned kLanes = 32, kMost = 1024, kStack = 128 << 10, kWidest = 16;

enum class State { ready, barrier, exchange, step, done };

struct Numbers {
  unsigned grid[3], local[3], group[3], group_size[3], groups[3], grid_size[3];
  unsigned index, lane, simdgroup, simdgroups, width;
};

struct Thread {
  ucontext_t context;
  State state;
  Numbers numbers;
};

// Two buffers in turn: lanes read the last exchange while others already begin the next.
struct Simdgroup {
  alignas(16) unsigned char values[2][kLanes * kWidest];
  unsigned here[2], size, turn;
};

using Body = void (*)(void* const*, const unsigned*);
using Before = void (*)();

Thread threads[kMost];
Simdgroup simdgroups[kMost / kLanes];
char* stacks;
ucontext_t scheduler;
unsigned current, count;
Body body;
void* const* arguments;
const char* problem;

void start() {
  body(arguments, threads[current].numbers.grid);
  threads[current].state = State::done;
}

void wait(State why) {
  Thread& self = threads[current];
  self.state = why;
  swapcontext(&self.context, &scheduler);
}

// Runs each lane until it waits; returns whether one waits in that state.
bool run_lanes(unsigned first, bool backwards, State state) {
  bool waits = false;
  for (unsigned i = 0; i < kLanes; ++i) {
    current = first + (backwards ? kLanes - 1 - i : i);
    if (current >= count) continue;
    if (threads[current].state == State::ready) swapcontext(&scheduler, &threads[current].context);
    waits |= threads[current].state == state;
  }
  return waits;
}

void resume_lanes(unsigned first, State state) {
  for (unsigned i = first; i < first + kLanes && i < count; ++i)
    if (threads[i].state == state) threads[i].state = State::ready;
}

void run_simdgroup(unsigned first, bool backwards) {
  do {
    while (run_lanes(first, backwards, State::step)) resume_lanes(first, State::step);
    if (!run_lanes(first, backwards, State::exchange)) return;
    Simdgroup& group = simdgroups[first / kLanes];
    group.turn ^= 1;
    group.here[group.turn] = 0;
    resume_lanes(first, State::exchange);
  } while (true);
}

// The threads of one threadgroup, from the first to the last barrier.
void run_group(bool backwards) {
  for (unsigned i = 0; i < count; ++i) {
    Thread& thread = threads[i];
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = stacks + size_t(i) * kStack;
    thread.context.uc_stack.ss_size = kStack;
    thread.context.uc_link = &scheduler;
    makecontext(&thread.context, start, 0);
    thread.state = State::ready;
  }
  std::memset(simdgroups, 0, sizeof simdgroups);
  const unsigned groups = (count + kLanes - 1) / kLanes;
  for (bool waiting = true; waiting;) {
    for (unsigned i = 0; i < groups; ++i) run_simdgroup((backwards ? groups - 1 - i : i) * kLanes, backwards);
    unsigned stopped = 0;
    for (unsigned i = 0; i < count; ++i) stopped += threads[i].state == State::barrier;
    waiting = stopped != 0;
    if (waiting && stopped != count) problem = "not all threads of a threadgroup reach a barrier";
    for (unsigned i = 0; i < count; ++i)
      if (threads[i].state == State::barrier) threads[i].state = State::ready;
  }
}

unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

} // namespace

extern "C" void opcheck_barrier() { wait(State::barrier); }

extern "C" const void* opcheck_exchange(const void* value, unsigned size, unsigned& here, unsigned& lane) {
  lane = current % kLanes;
  Simdgroup& group = simdgroups[current / kLanes];
  const unsigned turn = group.turn;
  if (size > kWidest || (group.here[turn] && group.size != size)) {
    problem = "the lanes of a simdgroup exchange values of different sizes";
    size = least(size, kWidest);
  }
  if (!group.here[turn]) std::memset(group.values[turn], 0, sizeof group.values[turn]);
  group.size = size;
  group.here[turn] |= 1u << lane;
  std::memcpy(group.values[turn] + lane * size, value, size);
  wait(State::exchange);
  // Cleared for the next turn but one, so what is read here is this turn's.
  here = group.here[turn];
  return group.values[turn];
}

extern "C" unsigned opcheck_lane() { return current % kLanes; }

// The lanes of a simdgroup go on together, where the kernel has no barrier for them.
extern "C" void opcheck_step() { wait(State::step); }

// The lanes of a simdgroup wait for each other: an exchange of nothing.
extern "C" void opcheck_simdgroup_barrier() {
  unsigned here, lane;
  const unsigned nothing = 0;
  opcheck_exchange(&nothing, sizeof nothing, here, lane);
}

// d = a * b + c of 8x8 matrices, of which each lane has two elements of a row (intrinsics.py, _PLACE).
extern "C" void opcheck_matrix(const float* a, const float* b, const float* c, float* d) {
  unsigned here, lane;
  float left[kLanes][2], right[kLanes][2];
  std::memcpy(left, opcheck_exchange(a, 8, here, lane), sizeof left);
  std::memcpy(right, opcheck_exchange(b, 8, here, lane), sizeof right);
  const unsigned row = (lane >> 1 & 3) | (lane >> 2 & 4), column = (lane & 1) << 1 | (lane >> 1 & 4);
  for (unsigned i = 0; i < 2; ++i) {
    float sum = c[i];
    for (unsigned k = 0; k < 8; ++k) {
      const unsigned of_a = (k >> 1 & 1) | (row & 3) << 1 | (k >> 2) << 3 | (row >> 2) << 4;
      const unsigned n = column + i, of_b = (n >> 1 & 1) | (k & 3) << 1 | (n >> 2) << 3 | (k >> 2) << 4;
      sum += left[of_a][k & 1] * right[of_b][n & 1];
    }
    d[i] = sum;
  }
}

// Runs a kernel over a grid of threads; a message where its threads do not go together, else null.  `before` is called
// before each threadgroup, unless it is null.
extern "C" const char* opcheck_dispatch(
    Body kernel, Before before, void* const* args, const unsigned* grid, const unsigned* size, int together,
    int backwards) {
  problem = nullptr;
  if (together && !stacks) stacks = static_cast<char*>(std::malloc(size_t(kMost) * kStack));
  body = kernel;
  arguments = args;
  unsigned groups[3];
  for (unsigned i = 0; i < 3; ++i) groups[i] = (grid[i] + size[i] - 1) / size[i];
  for (unsigned z = 0; z < grid[2]; z += size[2])
    for (unsigned y = 0; y < grid[1]; y += size[1])
      for (unsigned x = 0; x < grid[0]; x += size[0]) {
        count = 0;
        if (before) before();
        const unsigned left[] = {least(size[0], grid[0] - x), least(size[1], grid[1] - y), least(size[2], grid[2] - z)};
        for (unsigned k = 0; k < left[2]; ++k)
          for (unsigned j = 0; j < left[1]; ++j)
            for (unsigned i = 0; i < left[0]; ++i) {
              Thread& thread = threads[count];
              thread.numbers = {
                  {x + i, y + j, z + k}, {i, j, k}, {x / size[0], y / size[1], z / size[2]},
                  {left[0], left[1], left[2]}, {groups[0], groups[1], groups[2]}, {grid[0], grid[1], grid[2]},
                  count, count % kLanes, count / kLanes, (left[0] * left[1] * left[2] + kLanes - 1) / kLanes, kLanes};
              ++count;
              if (!together) {
                kernel(args, thread.numbers.grid);
                count = 0;
              }
            }
        if (together) run_group(backwards);
      }
  return problem;
}
