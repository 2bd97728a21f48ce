// Sampling: the kernel side's own draw and the weight that both sides compute, compiled here.
#include "bpf/sampling.h"

#include <cmath>
#include <random>
#include <vector>

#include "catch.hpp"
#include "heap/sampling.hpp"

using namespace memtrace;

namespace {

constexpr double mean_bytes = 524288;

double relative_error(double value, double truth) {
    return std::abs(value / truth - 1);
}

double probability(double size_bytes, double mean) {
    return -std::expm1(-std::max(size_bytes, 1.0) / mean);
}

/// One thread that allocates under sampling.
class SampledThread {
  public:
    SampledThread(uint64_t seed, uint32_t mean) : random_(seed), mean_(mean) {
        sampler_draw(&sampler_, random_(), mean);
    }

    bool takes(uint64_t size_bytes) {
        if (!sampler_takes(&sampler_, size_bytes)) return false;
        sampler_draw(&sampler_, random_(), mean_);
        return true;
    }

  private:
    std::mt19937_64 random_;
    uint32_t mean_;
    sampler sampler_{};
};

Block block_of(uint64_t size_bytes, uint32_t mean) {
    Block block;
    block.size_bytes = size_bytes;
    block.sampling_mean_bytes = mean;
    return block;
}

/// Estimates against the truth, run by run.
struct Runs {
    double sum = 0;
    double sum_of_squares = 0;
    double truth = 0;
    size_t count = 0;

    void add(double estimate) {
        sum += estimate;
        sum_of_squares += estimate * estimate;
        ++count;
    }
    /// How many standard errors of the mean it is away from the truth.
    double deviation() const {
        const auto n = static_cast<double>(count);
        const double mean = sum / n;
        const double variance = (sum_of_squares / n - mean * mean) / (n - 1);
        return std::abs(mean - truth) / std::sqrt(variance);
    }
};

}  // namespace

TEST_CASE("the drawn distance is -ln of the random number, also where that is tiny", "[sampling]") {
    std::mt19937_64 random(1);
    double worst = 0;
    for (int draw = 0; draw < 200'000; ++draw) {
        uint64_t number = random();
        if (draw % 3 == 1) number = ~(number >> random() % 34);
        if (draw % 3 == 2) number >>= random() % 63;
        if (number == 0) continue;
        const auto share = static_cast<long double>(number) / 18446744073709551616.0L;
        const long double rest = static_cast<long double>(0 - number) / 18446744073709551616.0L;
        const long double truth = number >> 63 ? -std::log1p(-rest) : -std::log(share);
        // No mean is so large that less than this mattered.
        if (truth < 1e-10L) continue;
        const long double result = static_cast<long double>(exponential_of(number)) / (1ull << 57);
        worst = std::max(worst, relative_error(static_cast<double>(result), static_cast<double>(truth)));
    }
    CHECK(worst < 1e-7);
}

TEST_CASE("a weight is 1 / (1 - exp(-size / mean))", "[sampling]") {
    for (const uint32_t mean : {2u, 10u, 4096u, 524288u, MT_MAX_SAMPLING_MEAN_BYTES}) {
        for (double size = 0; size < 1e14; size = size * 1.3 + 1) {
            const auto size_bytes = static_cast<uint64_t>(size);
            INFO(size_bytes << " bytes, mean " << mean);
            const double truth = 1 / probability(static_cast<double>(size_bytes), mean);
            const mt_u64 weight = mt_sampling_weight(size_bytes, mean);
            CHECK(relative_error(static_cast<double>(weight) / MT_WEIGHT_ONE, truth) < 1e-7);
            CHECK(std::abs(static_cast<double>(mt_sampled_blocks(weight)) / (1 << MT_SAMPLED_BLOCKS_SHIFT) - truth) <
                  1e-6 + truth * 1e-7);
            const double bytes = truth * static_cast<double>(size_bytes);
            CHECK(std::abs(static_cast<double>(mt_sampled_bytes(size_bytes, weight)) / (1 << MT_SAMPLED_BYTES_SHIFT) -
                           bytes) < 0.01 + bytes * 2e-7);
        }
    }
    CHECK(mt_sampling_weight(1, 1) == MT_WEIGHT_ONE);
    CHECK(mt_sampling_weight(1, 0) == MT_WEIGHT_ONE);
    CHECK(mt_sampled_bytes(1ull << 47, MT_WEIGHT_ONE) == 1ull << 55);
}

TEST_CASE("sampled sums are unbiased for sizes from 1 byte to 100 MB, in bytes and in blocks", "[sampling]") {
    constexpr int run_count = 1500;
    // Of each size 8 means' worth of bytes, so that every size has a chance, and single blocks of the large ones.
    for (const uint64_t size_bytes :
         {1ull, 7ull, 100ull, 4096ull, 70'000ull, 500'000ull, 3'000'000ull, 100'000'000ull}) {
        const uint32_t mean = size_bytes < 64 ? 512 : static_cast<uint32_t>(mean_bytes);
        const uint64_t blocks = std::max<uint64_t>(8ull * mean / size_bytes, 3);
        Runs bytes{.truth = static_cast<double>(blocks * size_bytes)};
        Runs counts{.truth = static_cast<double>(blocks)};
        for (int run = 0; run < run_count; ++run) {
            SampledThread thread(static_cast<uint64_t>(run) * 1000 + size_bytes, mean);
            uint64_t sampled_bytes = 0;
            uint64_t sampled_blocks = 0;
            for (uint64_t block = 0; block < blocks; ++block) {
                if (!thread.takes(size_bytes)) continue;
                const mt_u64 weight = mt_sampling_weight(size_bytes, mean);
                sampled_bytes += mt_sampled_bytes(size_bytes, weight);
                sampled_blocks += mt_sampled_blocks(weight);
            }
            bytes.add(static_cast<double>(sampled_bytes) / (1 << MT_SAMPLED_BYTES_SHIFT));
            counts.add(static_cast<double>(sampled_blocks) / (1 << MT_SAMPLED_BLOCKS_SHIFT));
        }
        INFO(size_bytes << " bytes");
        if (size_bytes >= MT_ALWAYS_SAMPLED_MEANS * uint64_t{mean}) {
            CHECK(bytes.sum == bytes.truth * run_count);
            CHECK(counts.sum == counts.truth * run_count);
        } else {
            CHECK(bytes.deviation() < 4);
            CHECK(counts.deviation() < 4);
        }
    }
}

TEST_CASE("mixed sizes are unbiased, and one standard error covers the truth in 68 % of the sites", "[sampling]") {
    constexpr int site_count = 3000;
    std::mt19937_64 random(7);
    std::lognormal_distribution<double> sizes(8, 2);
    int covered = 0;
    double standardized = 0;
    for (int site = 0; site < site_count; ++site) {
        SampledThread thread(random(), 65536);
        double truth = 0;
        SampledSums sums;
        while (truth < 100 * 65536.0) {
            const auto size_bytes = static_cast<uint64_t>(std::min(sizes(random), 1e6)) + 1;
            truth += static_cast<double>(size_bytes);
            if (thread.takes(size_bytes)) sums.add(block_of(size_bytes, 65536));
        }
        const double difference = sums.size_bytes - truth;
        covered += std::abs(difference) <= static_cast<double>(sums.error_bytes());
        standardized += difference / std::sqrt(sums.variance);
    }
    CHECK(std::abs(static_cast<double>(covered) / site_count - 0.68) < 0.04);
    // A site's error is estimated from the same blocks as its bytes, which pulls this a little below 0.
    CHECK(std::abs(standardized / site_count) < 0.1);
}

TEST_CASE("a distance that is drawn anew with another mean keeps the estimate unbiased", "[sampling]") {
    constexpr int run_count = 2000;
    constexpr uint64_t size_bytes = 3000;
    constexpr int blocks = 600;
    Runs bytes{.truth = blocks * double{size_bytes}};
    for (int run = 0; run < run_count; ++run) {
        std::mt19937_64 random(static_cast<uint64_t>(run));
        sampler state{};
        SampledSums sums;
        for (int block = 0; block < blocks; ++block) {
            const uint32_t mean = block % 100 < 50 ? 4096 : 65536;
            if (state.mean_bytes != mean) sampler_draw(&state, random(), mean);
            if (!sampler_takes(&state, size_bytes)) continue;
            sums.add(block_of(size_bytes, mean));
            sampler_draw(&state, random(), mean);
        }
        bytes.add(sums.size_bytes);
    }
    CHECK(bytes.deviation() < 4);
}
