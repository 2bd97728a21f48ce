// Calls every unit of the big file of symbols_bench, so that the linker keeps them all.
#include <cstdio>
#include <string>

#define UNITS(each) each(1) each(2) each(3) each(4) each(5) each(6) each(7) each(8) each(9) each(10) each(11) each(12)
#define DECLARED(unit) size_t unit_##unit(const std::string& seed);
#define CALLED(unit) sum += unit_##unit(seed);

UNITS(DECLARED)

int main(int, char** arguments) {
    const std::string seed = arguments[0];
    size_t sum = 0;
    UNITS(CALLED)
    std::printf("%zu\n", sum);
}
