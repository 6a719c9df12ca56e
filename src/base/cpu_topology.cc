#include "base/cpu_topology.h"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>

namespace fathom {

namespace {

constexpr int kCpusMax = 4096;

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

Result<int> parse_cpu(std::string_view text, std::string_view whole) {
    int cpu = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), cpu);
    if (failure != std::errc{} || end != text.data() + text.size() || cpu < 0 || cpu >= kCpusMax)
        return invalid_argument("processor list \"{}\": \"{}\" is no processor in 0..{}", whole,
                                text, kCpusMax - 1);
    return cpu;
}

// Calls part(text) for every piece between separators.
template <class Part>
Status for_each_part(std::string_view text, char separator, const Part& part) {
    while (!text.empty()) {
        const std::size_t at = std::min(text.find(separator), text.size());
        FATHOM_RETURN_IF_ERROR(part(text.substr(0, at)));
        text.remove_prefix(std::min(at + 1, text.size()));
    }
    return {};
}

}  // namespace

Result<std::vector<int>> parse_cpu_list(std::string_view text) {
    std::vector<int> cpus;
    FATHOM_RETURN_IF_ERROR(for_each_part(text, ',', [&](std::string_view range) -> Status {
        const std::size_t dash = range.find('-');
        FATHOM_ASSIGN(const int first, parse_cpu(range.substr(0, dash), text));
        int last = first;
        if (dash != std::string_view::npos) {
            FATHOM_ASSIGN(last, parse_cpu(range.substr(dash + 1), text));
        }
        if (last < first)
            return invalid_argument("processor list \"{}\": \"{}\" runs backwards", text, range);
        for (int cpu = first; cpu <= last; ++cpu)
            cpus.push_back(cpu);
        return {};
    }));
    return cpus;
}

CpuTopology CpuTopology::detect() {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::vector<int> allowed;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
            if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) allowed.push_back(cpu);
    }
    return read("", allowed);
}

CpuTopology CpuTopology::read(const std::string& root, const std::vector<int>& allowed) {
    std::map<int, int> node_of;
    const std::string nodes_dir = root + "/sys/devices/system/node/";
    const auto online = parse_cpu_list(first_line(nodes_dir + "online"));
    if (online.ok()) {
        for (const int node : *online) {
            const auto cpus =
                parse_cpu_list(first_line(fmt::format("{}node{}/cpulist", nodes_dir, node)));
            if (!cpus.ok()) continue;
            for (const int cpu : *cpus)
                node_of[cpu] = node;
        }
    }
    struct Place {
        int sibling, node, cpu;  // in order of importance
        auto operator<=>(const Place&) const = default;
    };
    std::vector<Place> places;
    for (const int cpu : allowed) {
        const auto siblings = parse_cpu_list(first_line(fmt::format(
            "{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, cpu)));
        int rank = 0;  // how many of its siblings come before it
        if (siblings.ok()) {
            for (const int other : *siblings)
                rank += other < cpu &&
                        std::find(allowed.begin(), allowed.end(), other) != allowed.end();
        }
        places.push_back({rank, node_of.count(cpu) != 0 ? node_of[cpu] : 0, cpu});
    }
    std::sort(places.begin(), places.end());
    CpuTopology topology;
    for (const Place& place : places) {
        topology.cpus.push_back(place.cpu);
        topology.nodes.push_back(place.node);
        topology.cores += place.sibling == 0;
    }
    return topology;
}

Result<CpuTopology> CpuTopology::parse(std::string_view text) {
    CpuTopology topology;
    int node = 0;
    FATHOM_RETURN_IF_ERROR(for_each_part(text, '|', [&](std::string_view list) -> Status {
        FATHOM_ASSIGN(const std::vector<int> listed, parse_cpu_list(list));
        for (const int cpu : listed) {
            topology.cpus.push_back(cpu);
            topology.nodes.push_back(node);
        }
        ++node;
        return {};
    }));
    topology.cores = static_cast<int>(topology.cpus.size());
    if (topology.cpus.empty())
        return invalid_argument("processor list \"{}\": no processor is named", text);
    return topology;
}

}  // namespace fathom
