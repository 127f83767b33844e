// SPDX-License-Identifier: Apache-2.0
// The explorer: runs the protocol's source under an adversary. See docs/protocol.md.
//
//   explorer explore [--seconds S] [--schedules N] [--per-scenario N] [--seed N] [--jobs N] [--from-zero]
//   explorer exhaust                 every ordered pair of algorithms, and ll three times, to the end
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

constexpr uint64_t kStepsOfScenario = 200000;  // after which another one is more use
constexpr size_t kTraceLines = 60;

struct Options {
    double seconds = 10;
    uint64_t schedules = ~0ull;
    uint32_t per_scenario = 2000;
    uint64_t seed = 1;
    uint32_t jobs = 1;
    bool from_zero = false;  // only scenarios in which the counters start at zero
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

bool starts_late(const Scenario &s) { return s.first_call != 0 || s.first_round != 0; }

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
        tally.scenarios++;
        if (options.from_zero && starts_late(random_scenario(scenario))) continue;
        prepare(machine, scenario);
        const uint64_t last_step = tally.steps + kStepsOfScenario;
        for (uint32_t n = 0;
             n < options.per_scenario && tally.schedules < budget && tally.steps < last_step; n++) {
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

std::string title(const Scenario &s) {
    std::string text;
    for (const CallSpec &call : s.calls) text += std::string(algo_name(call.algo)) + " ";
    text += s.cumulative ? "cumulative release" : "drained stores";
    return text + (s.trouble == Trouble::kUserAbort ? ", user abort" : "");
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
                   (unsigned long long)(schedules + whole + cut + 1));
            print_failure(machine, "exhaust");
            return false;
        }
        (machine.pruned() ? cut : whole)++;
    } while (strategy.advance());
    printf("%-60s %8llu schedules to their end, %8llu cut short, %8llu states\n",
           title(scenario).c_str(), (unsigned long long)whole, (unsigned long long)cut,
           (unsigned long long)strategy.states());
    fflush(stdout);
    schedules += whole + cut;
    return true;
}

int exhaust() {
    uint64_t schedules = 0;
    for (const bool cumulative : {false, true})
        for (const Trouble trouble : {Trouble::kUserAbort, Trouble::kNone}) {
            // A rank that has aborted may be two calls ahead: in the half that a peer still reads.
            Scenario thrice = smallest_scenario({rdnaar::kAlgoLl, rdnaar::kAlgoLl, rdnaar::kAlgoLl},
                                                1, cumulative);
            thrice.trouble = trouble;
            if (!exhaust_one(thrice, schedules)) return 1;
            for (const uint32_t first : kAlgos)
                for (const uint32_t second : kAlgos) {
                    Scenario s = smallest_scenario({first, second}, 2, cumulative);
                    s.trouble = trouble;
                    if (!exhaust_one(s, schedules)) return 1;
                }
        }
    printf("complete: %llu schedules\n", (unsigned long long)schedules);
    return 0;
}

int usage() {
    fprintf(stderr,
            "explorer explore [--seconds S] [--schedules N] [--per-scenario N] [--seed N] "
            "[--jobs N] [--from-zero]\n"
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
    for (int i = 2; i < argc; i++) {
        const std::string name = argv[i];
        if (name == "--from-zero") {
            options.from_zero = true;
            continue;
        }
        if (++i == argc) return usage();
        const uint64_t value = strtoull(argv[i], nullptr, 10);
        if (name == "--seconds")
            options.seconds = double(value);
        else if (name == "--schedules")
            options.schedules = value;
        else if (name == "--per-scenario")
            options.per_scenario = uint32_t(value);
        else if (name == "--seed")
            options.seed = value;
        else if (name == "--jobs")
            options.jobs = uint32_t(value);
        else
            return usage();
    }
    if (options.jobs == 0 || options.jobs > 64 || options.per_scenario == 0) return usage();
    return explore(options);
}

}  // namespace
}  // namespace explorer

int main(int argc, char **argv) { return explorer::main_(argc, argv); }
