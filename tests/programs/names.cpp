// C++ names: namespaces, templates, operators, lambdas, an anonymous namespace.
//
//   main → shop::Market<int, shop::Fair>::trade(std::vector<int, …>&)
//        → shop::(anonymous namespace)::Ledger::operator()(int) const
//        → double shop::weigh<double, 3ul>(double)                        the busy leaf
//
// and, one round in four, main → run(…) → main::{lambda(int)#1} → shop::weigh, where the lambda has no name of its own.
//
// Promised by: noinline, a frame kept in the leaf, work after each call. Arguments: [SECONDS]. Says "ready" when the loop begins.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
#include <vector>

static volatile double total;

// A function that calls nothing gets no frame from gcc, whatever the flags (12.2, x86_64), and a walk along frame pointers
// then skips its caller. Asking for the frame's address makes one.
#define KEEP_FRAME() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))

namespace shop {

struct Fair {
    static constexpr int rounds = 20;
};

template <typename Number, std::size_t Steps>
__attribute__((noinline)) Number weigh(Number start)
{
    KEEP_FRAME();
    Number sum = start;
    for (int i = 0; i < 300000; i++) {
        for (std::size_t step = 0; step < Steps; step++)
            sum = sum * Number(0.999) + Number(i);
        total = double(sum);
    }
    return sum;
}

namespace {
struct Ledger {
    __attribute__((noinline)) double operator()(int item) const
    {
        double sum = weigh<double, 3>(item);
        total = total + 1;
        return sum + 1;
    }
};
} // namespace

template <typename Item, typename Policy>
class Market {
public:
    __attribute__((noinline)) double trade(std::vector<Item> &items)
    {
        double sum = 0;
        Ledger ledger;
        for (int i = 0; i < Policy::rounds; i++)
            sum += ledger(items[std::size_t(i) % items.size()]);
        return sum;
    }
};

} // namespace shop

template <typename Work>
__attribute__((noinline)) double run(Work work)
{
    double sum = 0;
    for (int i = 0; i < 5; i++)
        sum += work(i);
    return sum;
}

int main(int argc, char **argv)
{
    alarm(argc > 1 ? unsigned(std::atoi(argv[1])) : 60);
    std::puts("ready");
    std::fflush(stdout);
    std::vector<int> items{1, 2, 3};
    shop::Market<int, shop::Fair> market;
    for (;;) {
        total = total + market.trade(items);
        total = total + run([](int i) __attribute__((noinline)) {
            double sum = shop::weigh<double, 3>(i);
            total = total + 1;
            return sum + 1;
        });
    }
}
