// The threads of a Metal kernel in one CPU thread: each runs until it needs the others.
//
// A thread is a fiber, or a coroutine of LLVM: that returns where it waits, and its frame begins with the function that
// resumes it (optimizing.py).
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

enum class State : unsigned char { ready, barrier, exchange, step, done };
enum Together { kAlone, kFibers, kCoroutines };

struct Numbers {
  unsigned grid[3], local[3], group[3], group_size[3], groups[3], grid_size[3];
  unsigned index, lane, simdgroup, simdgroups, width;
};

struct Room {
  void* memory;
  size_t size;
};

// Two buffers in turn: lanes read the last exchange while others already begin the next.
struct Simdgroup {
  alignas(16) unsigned char values[2][kLanes * kWidest];
  alignas(16) unsigned char folded[kLanes * kWidest];
  unsigned here[2], size, turn;
  bool isFolded;
};

using Body = void (*)(void* const*, const unsigned*);
using Before = void (*)();

// Of each thread, apart from each other: what is looked at whenever a thread waits fits into the first cache.
State states[kMost];
void* frames[kMost];
Numbers numbers[kMost];
Room rooms[kMost];
ucontext_t contexts[kMost];
Simdgroup simdgroups[kMost / kLanes];
char* stacks;
ucontext_t scheduler;
unsigned current, count;
int together;
Body body;
void* const* arguments;
const char* problem;

void start() {
  body(arguments, numbers[current].grid);
  states[current] = State::done;
}

unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }

// Runs the current thread until it waits.
void advance() {
  void* frame = frames[current];
  if (together == kFibers) {
    swapcontext(&scheduler, &contexts[current]);
  } else if (frame) {
    (*static_cast<void (**)(void*)>(frame))(frame);
  } else {
    body(arguments, numbers[current].grid);
  }
}

void wait(State why) {
  states[current] = why;
  swapcontext(&contexts[current], &scheduler);
}

// Runs each lane until it waits; returns the states in which lanes wait, as bits.
unsigned run_lanes(unsigned first, bool backwards) {
  unsigned waiting = 0;
  const unsigned end = least(first + kLanes, count);
  for (unsigned i = first; i < end; ++i) {
    current = backwards ? first + end - 1 - i : i;
    if (states[current] == State::ready) advance();
    waiting |= 1u << static_cast<int>(states[current]);
  }
  return waiting;
}

void resume_lanes(unsigned first, State state) {
  const unsigned end = least(first + kLanes, count);
  for (unsigned i = first; i < end; ++i) states[i] = states[i] == state ? State::ready : states[i];
}

void run_simdgroup(unsigned first, bool backwards) {
  while (true) {
    const unsigned waiting = run_lanes(first, backwards);
    if (waiting >> static_cast<int>(State::step) & 1) {
      resume_lanes(first, State::step);
      continue;
    }
    if (!(waiting >> static_cast<int>(State::exchange) & 1)) return;
    Simdgroup& group = simdgroups[first / kLanes];
    group.turn ^= 1;
    group.here[group.turn] = 0;
    group.isFolded = false;
    resume_lanes(first, State::exchange);
  }
}

// The threads of one threadgroup, from the first to the last barrier.
void run_group(bool backwards) {
  for (unsigned i = 0; i < count; ++i) {
    states[i] = State::ready;
    frames[i] = nullptr;
    if (together == kCoroutines) continue;
    getcontext(&contexts[i]);
    contexts[i].uc_stack.ss_sp = stacks + size_t(i) * kStack;
    contexts[i].uc_stack.ss_size = kStack;
    contexts[i].uc_link = &scheduler;
    makecontext(&contexts[i], start, 0);
  }
  const unsigned groups = (count + kLanes - 1) / kLanes;
  for (unsigned i = 0; i < groups; ++i) simdgroups[i].here[0] = simdgroups[i].here[1] = simdgroups[i].turn = 0;
  for (bool waiting = true; waiting;) {
    for (unsigned i = 0; i < groups; ++i) run_simdgroup((backwards ? groups - 1 - i : i) * kLanes, backwards);
    unsigned stopped = 0;
    for (unsigned i = 0; i < count; ++i) stopped += states[i] == State::barrier;
    waiting = stopped != 0;
    if (waiting && stopped != count) problem = "not all threads of a threadgroup reach a barrier";
    for (unsigned i = 0; i < count; ++i) states[i] = states[i] == State::barrier ? State::ready : states[i];
  }
}

} // namespace

extern "C" void opcheck_barrier() { wait(State::barrier); }

// Copies a value; of a size that the compiler sees, by one instruction.
static void put(unsigned char* to, const void* value, unsigned size) {
  switch (size) {
    case 4: std::memcpy(to, value, 4); return;
    case 8: std::memcpy(to, value, 8); return;
    case 16: std::memcpy(to, value, 16); return;
    default: std::memcpy(to, value, size);
  }
}

// Leaves a lane's value for the others.
extern "C" void opcheck_deposit(const void* value, unsigned size) {
  const unsigned lane = current % kLanes;
  Simdgroup& group = simdgroups[current / kLanes];
  const unsigned turn = group.turn;
  if (size > kWidest || (group.here[turn] && group.size != size)) {
    problem = "the lanes of a simdgroup exchange values of different sizes";
    size = least(size, kWidest);
  }
  if (!group.here[turn]) std::memset(group.values[turn], 0, kLanes * size);
  group.size = size;
  group.here[turn] |= 1u << lane;
  put(group.values[turn] + lane * size, value, size);
  states[current] = State::exchange;
}

// The values that all lanes left, when they were there.
extern "C" const void* opcheck_collect(unsigned& here, unsigned& lane) {
  Simdgroup& group = simdgroups[current / kLanes];
  const unsigned turn = group.turn ^ 1;
  lane = current % kLanes;
  // Cleared for the next turn but one, so what is read here is this turn's.
  here = group.here[turn];
  return group.values[turn];
}

extern "C" const void* opcheck_exchange(const void* value, unsigned size, unsigned& here, unsigned& lane) {
  opcheck_deposit(value, size);
  wait(State::exchange);
  return opcheck_collect(here, lane);
}

// Places for what folds of the lanes' values come to: the first lane that is here computes them for the others.
extern "C" void* opcheck_folded(unsigned& isFirst) {
  Simdgroup& group = simdgroups[current / kLanes];
  isFirst = !group.isFolded;
  group.isFolded = true;
  return group.folded;
}

// Memory for the frame of the current thread's coroutine.
extern "C" void* opcheck_frame(size_t size) {
  Room& room = rooms[current];
  if (room.size < size) {
    std::free(room.memory);
    room.size = (size + 63) / 64 * 64;
    room.memory = std::aligned_alloc(64, room.size);
  }
  return room.memory;
}

extern "C" void opcheck_begin(void* frame) { frames[current] = frame; }

extern "C" void opcheck_wait(int why) { states[current] = static_cast<State>(why); }

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

// Runs a kernel over the chosen threadgroups of a grid, by their numbers, or over all; a message where its threads do not
// go together, else null.  `before` is called before each threadgroup, unless it is null.
extern "C" const char* opcheck_dispatch_chosen(
    Body kernel, Before before, void* const* args, const unsigned* grid, const unsigned* size, int how, int backwards,
    const unsigned* chosen, unsigned number) {
  problem = nullptr;
  together = how;
  if (how == kFibers && !stacks) stacks = static_cast<char*>(std::malloc(size_t(kMost) * kStack));
  body = kernel;
  arguments = args;
  unsigned groups[3];
  for (unsigned i = 0; i < 3; ++i) groups[i] = (grid[i] + size[i] - 1) / size[i];
  if (!chosen) number = groups[0] * groups[1] * groups[2];
  for (unsigned place = 0; place < number; ++place) {
    const unsigned at = chosen ? chosen[place] : place;
    const unsigned x = at % groups[0] * size[0], y = at / groups[0] % groups[1] * size[1],
                   z = at / groups[0] / groups[1] * size[2];
    if (before) before();
    const unsigned left[] = {least(size[0], grid[0] - x), least(size[1], grid[1] - y), least(size[2], grid[2] - z)};
    const Numbers first = {
        {x, y, z}, {0, 0, 0}, {x / size[0], y / size[1], z / size[2]}, {left[0], left[1], left[2]},
        {groups[0], groups[1], groups[2]}, {grid[0], grid[1], grid[2]}, 0, 0, 0,
        (left[0] * left[1] * left[2] + kLanes - 1) / kLanes, kLanes};
    count = 0;
    for (unsigned k = 0; k < left[2]; ++k)
      for (unsigned j = 0; j < left[1]; ++j)
        for (unsigned i = 0; i < left[0]; ++i) {
          Numbers& own = numbers[how ? count : 0];
          own = first;
          own.grid[0] += own.local[0] = i;
          own.grid[1] += own.local[1] = j;
          own.grid[2] += own.local[2] = k;
          own.index = count, own.lane = count % kLanes, own.simdgroup = count / kLanes;
          ++count;
          if (!how) kernel(args, own.grid);
        }
    if (how) run_group(backwards);
  }
  return problem;
}

extern "C" const char* opcheck_dispatch(
    Body kernel, Before before, void* const* args, const unsigned* grid, const unsigned* size, int how, int backwards) {
  return opcheck_dispatch_chosen(kernel, before, args, grid, size, how, backwards, nullptr, 0);
}
