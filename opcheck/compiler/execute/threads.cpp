// The threads of a Metal kernel as fibers of one CPU thread: each runs until it needs the others.
//
// A threadgroup's threads stop at a barrier until all of them are there.  The 32 lanes of a simdgroup stop where they
// exchange values until no lane of theirs can run: those that are there by then are the active ones.
#include <cstdlib>
#include <cstring>
#include <ucontext.h>

namespace {

constexpr unsigned kLanes = 32, kMost = 1024, kStack = 64 << 10, kWidest = 16;

enum class State { ready, barrier, exchange, done };

struct Thread {
  ucontext_t context;
  State state;
  unsigned grid[3], local[3];
};

// Two buffers in turn: lanes read the last exchange while others already begin the next.
struct Simdgroup {
  alignas(16) unsigned char values[2][kLanes * kWidest];
  unsigned here[2], size, turn;
};

using Body = void (*)(void* const*, const unsigned*, const unsigned*);

Thread threads[kMost];
Simdgroup simdgroups[kMost / kLanes];
char* stacks;
ucontext_t scheduler;
unsigned current, count;
Body body;
void* const* arguments;
const char* problem;

void start() {
  body(arguments, threads[current].grid, threads[current].local);
  threads[current].state = State::done;
}

void wait(State why) {
  Thread& self = threads[current];
  self.state = why;
  swapcontext(&self.context, &scheduler);
}

bool run_lanes(unsigned first, bool backwards) {
  bool exchange = false;
  for (unsigned i = 0; i < kLanes; ++i) {
    current = first + (backwards ? kLanes - 1 - i : i);
    if (current >= count) continue;
    if (threads[current].state == State::ready) swapcontext(&scheduler, &threads[current].context);
    exchange |= threads[current].state == State::exchange;
  }
  return exchange;
}

void run_simdgroup(unsigned first, bool backwards) {
  while (run_lanes(first, backwards)) {
    Simdgroup& group = simdgroups[first / kLanes];
    group.turn ^= 1;
    group.here[group.turn] = 0;
    for (unsigned i = first; i < first + kLanes && i < count; ++i)
      if (threads[i].state == State::exchange) threads[i].state = State::ready;
  }
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

// Runs a kernel over a grid of threads; a message where its threads do not go together, else null.
extern "C" const char* opcheck_dispatch(
    Body kernel, void* const* args, const unsigned* grid, const unsigned* size, int together, int backwards) {
  problem = nullptr;
  if (together && !stacks) stacks = static_cast<char*>(std::malloc(size_t(kMost) * kStack));
  body = kernel;
  arguments = args;
  for (unsigned z = 0; z < grid[2]; z += size[2])
    for (unsigned y = 0; y < grid[1]; y += size[1])
      for (unsigned x = 0; x < grid[0]; x += size[0]) {
        count = 0;
        for (unsigned k = z; k < least(z + size[2], grid[2]); ++k)
          for (unsigned j = y; j < least(y + size[1], grid[1]); ++j)
            for (unsigned i = x; i < least(x + size[0], grid[0]); ++i) {
              Thread& thread = threads[count++];
              const unsigned at[] = {i, j, k, i - x, j - y, k - z};
              std::memcpy(thread.grid, at, sizeof thread.grid);
              std::memcpy(thread.local, at + 3, sizeof thread.local);
              if (!together) {
                kernel(args, thread.grid, thread.local);
                count = 0;
              }
            }
        if (together) run_group(backwards);
      }
  return problem;
}
