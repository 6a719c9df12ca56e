// `fathom serve` as a child on a free port, with the tiny model of the repository.
#pragma once

#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "cli_process.h"
#include "gateway/testing/http_client.h"
#include "support.h"

namespace fathom::testing {

class ServeProcess {
  public:
    explicit ServeProcess(std::vector<std::string> more = {}) : child_(words(std::move(more))) {
        const std::string mark = "listening on http://127.0.0.1:";
        const bool up = child_.gather_until(
            [&] {
                const std::size_t at = child_.out().find(mark);
                return at != std::string::npos && child_.out().find('\n', at) != std::string::npos;
            },
            120'000'000);
        EXPECT_TRUE(up) << child_.out() << child_.err();
        if (!up) return;
        const char* digits = child_.out().c_str() + child_.out().find(mark) + mark.size();
        std::from_chars(digits, digits + 5, port_);
    }

    std::uint16_t port() const { return port_; }
    std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
    Child& child() { return child_; }

    HttpAnswer ask(const std::string& request) const {
        HttpClient client(port_);
        client.send(request);
        return client.answer();
    }
    // The value of a metric without labels (or with the labels spelled out), or -1.
    double metric(const std::string& name, const std::string& headers = {}) const {
        const std::string text = "\n" + ask(http_get("/metrics", headers)).body;
        const std::size_t at = text.find("\n" + name + " ");
        return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
    }
    std::int64_t resident_kib() const {
        std::ifstream status("/proc/" + std::to_string(child_.pid()) + "/status");
        std::string line;
        while (std::getline(status, line))
            if (line.rfind("VmRSS:", 0) == 0) return std::stoll(line.substr(6));
        return -1;
    }

  private:
    static std::vector<std::string> words(std::vector<std::string> more) {
        std::vector<std::string> all = {
            FATHOM_PROGRAM, "serve", "--model", source_path("models/tiny"), "--port", "0"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }

    Child child_;
    std::uint16_t port_ = 0;
};

}  // namespace fathom::testing
