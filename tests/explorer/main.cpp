// SPDX-License-Identifier: Apache-2.0
// The explorer: runs the protocol's source under an adversary. See docs/protocol.md.
//
//   explorer explore [--seconds S] [--schedules N] [--seed N] [--jobs N]
//   explorer exhaust                 every ordered pair of algorithms, to the end
//   explorer replay SCENARIO:NUMBER  one schedule again, with its trace
//
// Exit code: 0 nothing found, 1 a check failed, 2 usage.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "strategy.h"

namespace explorer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kSchedulesOfScenario = 500;
constexpr size_t kTraceLines = 60;

struct Options {
    double seconds = 10;
    uint64_t schedules = ~0ull;
    uint64_t seed = 1;
    uint32_t jobs = 1;
};

// What one worker did. Plain, since it goes through a pipe.
struct Tally {
    uint64_t schedules, steps, scenarios, failures;
    uint64_t by_world[kRanks + 1], by_trouble[6];
};

double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Strategies {
    RandomWalk random;
    ByPriority priority;
    Strategy &of(uint32_t number) {
        return number % 2 == 0 ? static_cast<Strategy &>(random) : priority;
    }
};

// The first schedule of a scenario tells those after it how long they are, so it always goes before.
bool run_one(Machine &machine, Strategies &strategies, uint64_t scenario, uint32_t number,
             bool tracing) {
    if (number != 0 && machine.usual_length() == 0)
        run_one(machine, strategies, scenario, 0, false);
    return machine.run(strategies.of(number), mix(scenario, number), tracing);
}

void prepare(Machine &machine, uint64_t scenario) {
    machine.prepare(random_scenario(scenario), mix(scenario));
}

void print_failure(Machine &machine, const std::string &replay) {
    printf("FAILED %s: %s\n", check_name(machine.failure().check), machine.failure().text.c_str());
    printf("scenario: %s", describe(machine.scenario()).c_str());
    printf("replay: explorer %s\n", replay.c_str());
    const std::vector<std::string> &trace = machine.trace();
    const size_t from = trace.size() > kTraceLines ? trace.size() - kTraceLines : 0;
    printf("trace, %zu of %zu lines:\n", trace.size() - from, trace.size());
    for (size_t i = from; i < trace.size(); i++) printf("  %s\n", trace[i].c_str());
    fflush(stdout);
}

int replay(const char *id) {
    char *end = nullptr;
    const uint64_t scenario = strtoull(id, &end, 16);
    if (*end != ':') return 2;
    const uint32_t number = uint32_t(strtoul(end + 1, nullptr, 10));
    Machine machine;
    Strategies strategies;
    prepare(machine, scenario);
    if (run_one(machine, strategies, scenario, number, true)) {
        printf("scenario: %s", describe(machine.scenario()).c_str());
        for (const std::string &line : machine.trace()) printf("  %s\n", line.c_str());
        printf("no check failed in %u steps\n", machine.steps());
        return 0;
    }
    print_failure(machine, std::string("replay ") + id);
    return 1;
}

Tally work(const Options &options, uint32_t worker) {
    Machine machine;
    Strategies strategies;
    Tally tally{};
    const Clock::time_point start = Clock::now();
    const uint64_t budget = options.schedules / options.jobs;
    while (tally.schedules < budget && since(start) < options.seconds) {
        const uint64_t scenario = mix(options.seed, tally.scenarios * options.jobs + worker);
        prepare(machine, scenario);
        tally.scenarios++;
        for (uint32_t n = 0; n < kSchedulesOfScenario && tally.schedules < budget; n++) {
            const bool ok = run_one(machine, strategies, scenario, n, false);
            tally.schedules++;
            tally.steps += machine.steps();
            tally.by_world[machine.scenario().world]++;
            tally.by_trouble[uint32_t(machine.scenario().trouble)]++;
            if (ok) continue;
            tally.failures++;
            char id[64];
            snprintf(id, sizeof id, "replay %llx:%u", (unsigned long long)scenario, n);
            printf("caught by %s after %llu schedules\n", check_name(machine.failure().check),
                   (unsigned long long)tally.schedules);
            prepare(machine, scenario);
            if (run_one(machine, strategies, scenario, n, true))
                printf("the schedule does not fail again: %s\n", id);
            print_failure(machine, id);
            return tally;
        }
    }
    return tally;
}

int explore(const Options &options) {
    const Clock::time_point start = Clock::now();
    std::vector<int> pipes;
    for (uint32_t w = 0; w < options.jobs; w++) {
        int ends[2];
        if (pipe(ends) != 0) return 2;
        fflush(stdout);
        if (fork() == 0) {
            const Tally tally = work(options, w);
            const bool sent = write(ends[1], &tally, sizeof tally) == long(sizeof tally);
            fflush(stdout);
            _exit(sent ? 0 : 2);
        }
        close(ends[1]);
        pipes.push_back(ends[0]);
    }
    Tally all{};
    bool lost = false;
    for (const int from : pipes) {
        Tally one{};
        lost = read(from, &one, sizeof one) != long(sizeof one) || lost;
        const uint64_t *words = reinterpret_cast<const uint64_t *>(&one);
        for (size_t i = 0; i < sizeof one / 8; i++)
            reinterpret_cast<uint64_t *>(&all)[i] += words[i];
    }
    while (wait(nullptr) > 0) continue;
    const double seconds = since(start);
    printf("%llu schedules of %llu scenarios, %llu steps in %.1f s: %.2f million steps a second\n",
           (unsigned long long)all.schedules, (unsigned long long)all.scenarios,
           (unsigned long long)all.steps, seconds, double(all.steps) / seconds / 1e6);
    printf("by world: 2 %llu, 3 %llu, 4 %llu\n", (unsigned long long)all.by_world[2],
           (unsigned long long)all.by_world[3], (unsigned long long)all.by_world[4]);
    printf(
        "by trouble: none %llu, late %llu, timeout %llu, user abort %llu, kill %llu, mismatch "
        "%llu\n",
        (unsigned long long)all.by_trouble[0], (unsigned long long)all.by_trouble[1],
        (unsigned long long)all.by_trouble[2], (unsigned long long)all.by_trouble[3],
        (unsigned long long)all.by_trouble[4], (unsigned long long)all.by_trouble[5]);
    if (lost) printf("a worker has ended without a word\n");
    return all.failures != 0 || lost;
}

// One scenario to the end. False: a check failed.
bool exhaust_one(const Scenario &scenario, uint64_t &schedules) {
    Machine machine;
    machine.set_exhaustive(true);
    machine.prepare(scenario, 1);
    Exhaustive strategy;
    uint64_t whole = 0, cut = 0;
    do {
        if (!machine.run(strategy, 1, false)) {
            machine.run(strategy, 1, true);
            printf("caught by %s after %llu schedules\n", check_name(machine.failure().check),
                   (unsigned long long)(whole + cut + 1));
            print_failure(machine, "exhaust");
            return false;
        }
        (machine.pruned() ? cut : whole)++;
    } while (strategy.advance());
    printf("%-8s%-8s %-18s %-10s %8llu schedules to their end, %8llu cut short, %8llu states\n",
           algo_name(scenario.calls[0].algo), algo_name(scenario.calls[1].algo),
           scenario.cumulative ? "cumulative release" : "drained stores",
           scenario.trouble == Trouble::kNone ? "" : "user abort", (unsigned long long)whole,
           (unsigned long long)cut, (unsigned long long)strategy.states());
    fflush(stdout);
    schedules += whole + cut;
    return true;
}

int exhaust() {
    uint64_t schedules = 0;
    for (const Trouble trouble : {Trouble::kNone, Trouble::kUserAbort})
        for (const bool cumulative : {false, true})
            for (uint32_t first = 1; first <= 3; first++)
                for (uint32_t second = 1; second <= 3; second++) {
                    Scenario s = smallest_scenario(first, second, cumulative);
                    s.trouble = trouble;
                    if (!exhaust_one(s, schedules)) return 1;
                }
    printf("complete: %llu schedules\n", (unsigned long long)schedules);
    return 0;
}

int usage() {
    fprintf(stderr,
            "explorer explore [--seconds S] [--schedules N] [--seed N] [--jobs N]\n"
            "explorer exhaust\n"
            "explorer replay SCENARIO:NUMBER\n");
    return 2;
}

int main_(int argc, char **argv) {
    if (argc < 2) return usage();
    const std::string command = argv[1];
    if (command == "exhaust" && argc == 2) return exhaust();
    if (command == "replay" && argc == 3) return replay(argv[2]);
    if (command != "explore") return usage();
    Options options;
    for (int i = 2; i + 1 < argc; i += 2) {
        const std::string name = argv[i];
        if (name == "--seconds") {
            options.seconds = atof(argv[i + 1]);
        } else if (name == "--schedules") {
            options.schedules = strtoull(argv[i + 1], nullptr, 10);
        } else if (name == "--seed") {
            options.seed = strtoull(argv[i + 1], nullptr, 10);
        } else if (name == "--jobs") {
            options.jobs = uint32_t(atoi(argv[i + 1]));
        } else {
            return usage();
        }
    }
    if (argc % 2 != 0 || options.jobs == 0 || options.jobs > 64) return usage();
    return explore(options);
}

}  // namespace
}  // namespace explorer

int main(int argc, char **argv) { return explorer::main_(argc, argv); }
