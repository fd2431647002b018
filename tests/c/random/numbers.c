/* Random numbers, equal for equal seeds (SplitMix64). */
#include "random.h"

static uint64_t state;

void seed(uint64_t seed)
{
    state = seed;
}

uint64_t number(void)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t below(uint64_t end)
{
    return number() % end;
}

uint64_t within(uint64_t least, uint64_t most)
{
    return least + below(most - least + 1);
}

bool one_in(uint64_t times)
{
    return below(times) == 0;
}
