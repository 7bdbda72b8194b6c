// The threads of a Metal kernel in one CPU thread: each runs until it needs the others.
//
// A thread is a fiber; or the body runs many lanes of a simdgroup in a loop, up to the place where each waits, and a frame
// has what they need behind it (lane_loops.py).
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
enum Together { kAlone, kFibers, kLooped };

struct Numbers {
  unsigned grid[3], local[3], group[3], group_size[3], groups[3], grid_size[3];
  unsigned index, lane, simdgroup, simdgroups, width;
};

using Fold = void (*)(const void*, unsigned, void*);

// Two buffers in turn: lanes read the last exchange while others already begin the next.
struct Simdgroup {
  alignas(16) unsigned char values[2][kLanes * kWidest];
  alignas(16) unsigned char folded[kLanes * kWidest];
  unsigned here[2], size, turn;
  Fold folded_by;
  // In a loop: the lanes that can go on, and those at a barrier.
  unsigned ready, stopped;
};

using Body = void (*)(void* const*, const unsigned*);
using Lanes = void (*)(
    void* const*, const unsigned*, unsigned, void*, unsigned, unsigned, const void*, void*, unsigned);
using Before = void (*)();

// Of each thread, apart from each other: what is looked at whenever a thread waits fits into the first cache.
State states[kMost];
Numbers numbers[kMost];
ucontext_t contexts[kMost];
Simdgroup simdgroups[kMost / kLanes];
char* stacks;
char* frames;
size_t frame_size, frame_room;
bool isRow;
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
  swapcontext(&scheduler, &contexts[current]);
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
    group.folded_by = nullptr;
    resume_lanes(first, State::exchange);
  }
}

// The threads of one threadgroup, from the first to the last barrier.
void run_group(bool backwards) {
  for (unsigned i = 0; i < count; ++i) {
    states[i] = State::ready;
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

// What a lane does next is its place, the bytes that it exchanges, and how it waits: for all threads, for an exchange, or
// for the lanes that do not wait, at the end of a turn of a loop.
enum Waits { kBarrier, kExchanges, kTurns, kDone };
constexpr unsigned kWays = 3;

unsigned* next_of(unsigned first) { return reinterpret_cast<unsigned*>(frames + first / kLanes * frame_size); }

// Runs lanes that are at the same place in a row of threads.
void run(unsigned first, unsigned low, unsigned high) {
  Simdgroup& group = simdgroups[first / kLanes];
  unsigned* next = next_of(first);
  Numbers own = numbers[isRow ? first : first + low];
  if (isRow) own.grid[0] += low, own.local[0] += low, own.index += low, own.lane += low;
  reinterpret_cast<Lanes>(body)(
      arguments, own.grid, next[low] >> 8, next, low, high, group.values[group.turn ^ 1], group.values[group.turn],
      group.here[group.turn ^ 1]);
}

// Runs the lanes that can go on, as many at once as possible.
void run_ready(unsigned first, unsigned lanes, bool backwards) {
  const Simdgroup& group = simdgroups[first / kLanes];
  const unsigned* next = next_of(first);
  if (backwards) {
    for (unsigned i = lanes; i-- > 0;)
      if (group.ready >> i & 1) run(first, i, i + 1);
    return;
  }
  for (unsigned low = 0; low < lanes;) {
    if (!(group.ready >> low & 1)) {
      ++low;
      continue;
    }
    const unsigned most = isRow ? lanes : least(lanes, low + numbers[first + low].group_size[0] - numbers[first + low].local[0]);
    unsigned high = low + 1;
    while (high < most && group.ready >> high & 1 && next[high] == next[low]) ++high;
    run(first, low, high);
    low = high;
  }
}

void run_lanes_of(unsigned first, bool backwards) {
  Simdgroup& group = simdgroups[first / kLanes];
  const unsigned lanes = least(kLanes, count - first);
  const unsigned* next = next_of(first);
  const unsigned all = lanes == kLanes ? ~0u : (1u << lanes) - 1;
  const auto areTogether = [&] {
    unsigned differing = 0;
    for (unsigned i = 1; i < lanes; ++i) differing |= next[i] ^ next[0];
    return !differing;
  };
  for (bool together = areTogether(); group.ready;) {
    if (together && group.ready == all && !backwards && isRow) {
      run(first, 0, lanes);
    } else {
      run_ready(first, lanes, backwards);
    }
    together = areTogether();
    unsigned here[4] = {};
    if (together) here[next[0] & kWays] = all;
    for (unsigned i = 0; i < lanes && !together; ++i) here[next[i] & kWays] |= 1u << i;
    group.ready = here[kTurns];
    if (group.ready) continue;
    group.ready = here[kExchanges];
    group.stopped = here[kBarrier];
    if (!group.ready) return;
    const unsigned size = next[__builtin_ctz(group.ready)] >> 2 & 31;
    for (unsigned i = 0; i < kLanes && !(together && lanes == kLanes); ++i) {
      if (!(group.ready >> i & 1)) {
        std::memset(group.values[group.turn] + i * size, 0, size);
      } else if ((next[i] >> 2 & 31) != size) {
        problem = "the lanes of a simdgroup exchange values of different sizes";
      }
    }
    group.here[group.turn] = group.ready;
    group.turn ^= 1;
  }
}

// The threads of one threadgroup, whose body runs many lanes.
void run_group_of_lanes(bool backwards) {
  const unsigned groups = (count + kLanes - 1) / kLanes;
  for (unsigned i = 0; i < groups; ++i) {
    const unsigned lanes = least(kLanes, count - i * kLanes);
    simdgroups[i].ready = lanes == kLanes ? ~0u : (1u << lanes) - 1;
    simdgroups[i].stopped = simdgroups[i].turn = 0;
    std::memset(next_of(i * kLanes), 0, kLanes * sizeof(unsigned));
  }
  for (unsigned stopped = count; stopped;) {
    for (unsigned i = 0; i < groups; ++i) run_lanes_of((backwards ? groups - 1 - i : i) * kLanes, backwards);
    stopped = 0;
    for (unsigned i = 0; i < groups; ++i) {
      simdgroups[i].ready = simdgroups[i].stopped;
      stopped += __builtin_popcount(simdgroups[i].stopped);
      simdgroups[i].stopped = 0;
    }
    if (stopped && stopped != count) problem = "not all threads of a threadgroup reach a barrier";
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
extern "C" const void* opcheck_exchange(const void* value, unsigned size) {
  opcheck_deposit(value, size);
  wait(State::exchange);
  Simdgroup& group = simdgroups[current / kLanes];
  return group.values[group.turn ^ 1];
}

// The lanes of the last exchange, as bits.  Cleared for the next turn but one, so what is read here is this turn's.
extern "C" unsigned opcheck_here() {
  const Simdgroup& group = simdgroups[current / kLanes];
  return group.here[group.turn ^ 1];
}

// What the lanes' values come to: the first lane that is here computes it for the others.
extern "C" void* opcheck_folded(Fold fold) {
  Simdgroup& group = simdgroups[current / kLanes];
  if (group.folded_by != fold) fold(group.values[group.turn ^ 1], group.here[group.turn ^ 1], group.folded);
  group.folded_by = fold;
  return group.folded;
}

extern "C" unsigned opcheck_lane() { return current % kLanes; }

// The lanes of a simdgroup go on together, where the kernel has no barrier for them.
extern "C" void opcheck_step() { wait(State::step); }

// The lanes of a simdgroup wait for each other: an exchange of nothing.
extern "C" void opcheck_simdgroup_barrier() {
  const unsigned nothing = 0;
  opcheck_exchange(&nothing, sizeof nothing);
}

// d = a * b + c of 8x8 matrices, of which each lane has two elements of a row (intrinsics.py, _PLACE).
extern "C" void opcheck_matrix(const float* a, const float* b, const float* c, float* d) {
  float left[kLanes][2], right[kLanes][2];
  std::memcpy(left, opcheck_exchange(a, 8), sizeof left);
  std::memcpy(right, opcheck_exchange(b, 8), sizeof right);
  const unsigned lane = opcheck_lane();
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

// Runs a kernel over a grid; a message where its threads do not go together, else null.  `before` is called before each
// threadgroup, unless it is null; a frame has so many bytes for a simdgroup.
extern "C" const char* opcheck_dispatch_lanes(
    Body kernel, Before before, void* const* args, const unsigned* grid, const unsigned* size, int how, int backwards,
    size_t frame) {
  problem = nullptr;
  together = how;
  if (how == kFibers && !stacks) stacks = static_cast<char*>(std::malloc(size_t(kMost) * kStack));
  body = kernel;
  arguments = args;
  unsigned groups[3];
  for (unsigned i = 0; i < 3; ++i) groups[i] = (grid[i] + size[i] - 1) / size[i];
  frame_size = (frame + 63) / 64 * 64;
  if (frame_room < frame_size) {
    std::free(frames);
    frame_room = frame_size;
    frames = static_cast<char*>(std::aligned_alloc(64, kMost / kLanes * frame_room));
  }
  const unsigned number = groups[0] * groups[1] * groups[2];
  for (unsigned at = 0; at < number; ++at) {
    const unsigned x = at % groups[0] * size[0], y = at / groups[0] % groups[1] * size[1],
                   z = at / groups[0] / groups[1] * size[2];
    if (before) before();
    const unsigned left[] = {least(size[0], grid[0] - x), least(size[1], grid[1] - y), least(size[2], grid[2] - z)};
    const Numbers first = {
        {x, y, z}, {0, 0, 0}, {x / size[0], y / size[1], z / size[2]}, {left[0], left[1], left[2]},
        {groups[0], groups[1], groups[2]}, {grid[0], grid[1], grid[2]}, 0, 0, 0,
        (left[0] * left[1] * left[2] + kLanes - 1) / kLanes, kLanes};
    count = left[0] * left[1] * left[2];
    // Lanes in a loop get the numbers of the first.
    isRow = how == kLooped && left[1] * left[2] == 1;
    for (unsigned at_thread = 0; at_thread < count; at_thread += isRow ? kLanes : 1) {
      Numbers& own = numbers[how ? at_thread : 0];
      own = first;
      own.grid[0] += own.local[0] = at_thread % left[0];
      own.grid[1] += own.local[1] = at_thread / left[0] % left[1];
      own.grid[2] += own.local[2] = at_thread / left[0] / left[1];
      own.index = at_thread, own.lane = at_thread % kLanes, own.simdgroup = at_thread / kLanes;
      if (!how) kernel(args, own.grid);
    }
    if (how == kLooped) run_group_of_lanes(backwards);
    if (how == kFibers) run_group(backwards);
  }
  return problem;
}

extern "C" const char* opcheck_dispatch(
    Body kernel, Before before, void* const* args, const unsigned* grid, const unsigned* size, int how, int backwards) {
  return opcheck_dispatch_lanes(kernel, before, args, grid, size, how, backwards, 0);
}
